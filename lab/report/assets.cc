#include "lab/report/assets.h"

// The assembler reads a file into the read-only data between two labels. CMake provides the paths, and rebuilds this
// file when one of them changes.
#define KEEL_ASSET(name, path)                                                         \
  asm(".pushsection .rodata\n"                                                         \
      "keel_lab_" #name "_begin:\n.incbin \"" path                                     \
      "\"\n"                                                                           \
      "keel_lab_" #name                                                                \
      "_end:\n.byte 0\n"                                                               \
      ".popsection\n");                                                                \
  extern "C" const char keel_lab_##name##_begin[], keel_lab_##name##_end[];            \
  namespace keel::lab::assets {                                                        \
  std::string_view name() { return {keel_lab_##name##_begin, keel_lab_##name##_end}; } \
  }

KEEL_ASSET(page, KEEL_LAB_PAGE)
KEEL_ASSET(story, KEEL_LAB_STORY)
KEEL_ASSET(style, KEEL_LAB_STYLE)
KEEL_ASSET(charts, KEEL_LAB_CHARTS)
KEEL_ASSET(breaks, KEEL_LAB_BREAKS)
KEEL_ASSET(playground_page, KEEL_WEB_PAGE)
KEEL_ASSET(playground_html, KEEL_WEB_SECTIONS)
KEEL_ASSET(playground_style, KEEL_WEB_STYLE)
KEEL_ASSET(playground, KEEL_WEB_SCRIPTS)
#ifdef KEEL_WEB_KERNELS
KEEL_ASSET(kernels, KEEL_WEB_KERNELS)
#else
namespace keel::lab::assets {
std::string_view kernels() { return {}; }
}  // namespace keel::lab::assets
#endif
#ifdef KEEL_LAB_D3
KEEL_ASSET(d3, KEEL_LAB_D3)
#else
namespace keel::lab::assets {
std::string_view d3() { return {}; }
}  // namespace keel::lab::assets
#endif
