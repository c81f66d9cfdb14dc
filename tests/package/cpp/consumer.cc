// A program outside the source tree: attention worked out by hand, and an error caught across the library's edge.
#include <keel/keel.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace {

bool failed = false;

void check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  failed = true;
}

bool near(float got, double expected) { return std::fabs(got - expected) < 1e-6; }

}  // namespace

int main() {
  check(std::string_view(keel::version()) == KEEL_VERSION, "the header's, library's and package's versions agree");

  // With d_k = 4 the scale is 1/2: the scores of either query are 0 and ln 3, the weights 1/4 and 3/4.
  const float ln3 = std::log(3.0f);
  const std::array<float, 8> q{2, 0, 0, 0, /**/ 2, 0, 0, 0};
  const std::array<float, 8> k{0, 0, 0, 0, /**/ ln3, 0, 0, 0};
  const std::array<float, 4> v{8, 0, /**/ 0, 8};
  std::array<float, 4> out{};
  std::array<float, 2> lse{};
  keel::attention(keel::view(q.data(), {1, 1, 2, 4}), keel::view(k.data(), {1, 1, 2, 4}),
                  keel::view(v.data(), {1, 1, 2, 2}), keel::view(out.data(), {1, 1, 2, 2}),
                  {.causal = keel::Causal::top_left}, {.lse = keel::row_view(lse.data(), {1, 1, 2})});
  check(near(out[0], 8) && near(out[1], 0), "the first query sees the first key alone: out = (8, 0)");
  check(near(out[2], 2) && near(out[3], 6), "the second query weighs 1/4 and 3/4: out = (2, 6)");
  check(near(lse[0], 0) && near(lse[1], std::log(4.0)), "lse = (ln 1, ln 4)");

  try {
    keel::attention(keel::view(q.data(), {1, 1, 2, 4}), keel::view(k.data(), {1, 1, 2, 3}),
                    keel::view(v.data(), {1, 1, 2, 2}), keel::view(out.data(), {1, 1, 2, 2}));
    check(false, "a k of another head size raises keel::Error");
  } catch (const keel::Error& error) {
    check(error.code() == keel::ErrorCode::invalid_argument, "the error's code is invalid_argument");
    check(std::string_view(error.what()).starts_with("[attention] k"), "the error's message names the argument");
    check(near(out[2], 2), "a call that fails writes nothing");
  }
  return failed ? 1 : 0;
}
