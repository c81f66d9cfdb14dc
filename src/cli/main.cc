#include <string_view>

#include "cli/commands.h"
#include "cli/common/program.h"

int main(int argc, char** argv) {
  using namespace keel::cli;
  return run_program([&] {
    CLI::App app("Scaled dot-product attention: run it, look at it, explain it.", "keel");
    prepare(app);
    app.require_subcommand(1);
    // What follows `lab` is for keel-lab to read.
    const bool lab = argc > 1 && argv[1] == std::string_view("lab");
    add_attend(app);
    add_info(app);
    add_lab(app, argv + (lab ? 2 : argc));
    add_bench(app);
    parse(app, lab ? 2 : argc, argv);
  });
}
