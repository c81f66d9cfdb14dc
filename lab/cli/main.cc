#include "cli/common/program.h"
#include "lab/cli/calling.h"
#include "lab/cli/commands.h"

int main(int argc, char** argv) {
  using namespace keel::cli;
  return run_program([&] {
    CLI::App app("What 1/sqrt(d_k) does: experiments, claims and a report", "keel lab");
    prepare(app);
    add_lab(app);
    name_as_called(app);
    parse(app, argc, argv);
  });
}
