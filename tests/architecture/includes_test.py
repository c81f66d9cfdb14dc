#!/usr/bin/env python3
"""Plants good and bad includes in a small tree and sees that includes.py finds the bad ones, and those alone."""

import tempfile
import unittest
from pathlib import Path

import includes


def offences_of(file, line):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("// a comment\n" + line + "\n", encoding="utf-8")
        found, files = includes.offences(Path(folder))
        assert files == 1
        return found


class Includes(unittest.TestCase):
    def refused(self, file, line, why):
        found = offences_of(file, line)
        self.assertEqual(len(found), 1, f"{line} in {file} was not found")
        self.assertTrue(found[0].startswith(f"{file}:2: "), found[0])
        self.assertIn(why, found[0])

    def accepted(self, file, line):
        self.assertEqual(offences_of(file, line), [])

    def test_lower_folders_may_not_include_higher_ones(self):
        self.refused("src/core/a.cc", '#include "reference/reference.h"', "core may not include reference")
        self.refused("src/core/a.cc", '#  include "api/heads.h"', "core may not include api")
        self.refused("src/reference/a.cc", '#include "runtime/machine.h"', "reference may not include runtime")
        self.refused("src/runtime/a.cc", '#include "io/npy.h"', "runtime may not include io")
        self.refused("src/plan/a.cc", '#include "cpu/plan.h"', "plan may not include cpu")
        self.refused("src/cpu/a.cc", '#include "reference/row.h"', "cpu may not include reference")
        self.refused("src/plan/a.cc", '#include "reference/reference.h"', "plan may not include reference")
        self.refused("src/plan/a.cc", "#include <api/heads.h>", "plan may not include api")
        self.refused("src/api/a.cc", '#include "nn/tensor.h"', "api may not include nn")
        self.refused("src/api/a.cc", '#include "reference/reference.h"', "api may not include reference")
        self.refused("src/nn/a.cc", '#include "lab/report.h"', "nn may not include lab")
        self.refused("src/io/a.cc", '#include "nn/tape.h"', "io may not include nn")

    def test_higher_folders_may_include_lower_ones(self):
        self.accepted("src/core/a.cc", '#include "core/problem.h"')
        self.accepted("src/cpu/a.cc", '#include "runtime/machine.h"')
        self.accepted("src/plan/a.cc", '#include "core/problem.h"')
        self.accepted("src/nn/a.cc", '#include "runtime/parallel.h"')
        self.accepted("src/nn/a.cc", '#include "io/safetensors.h"')
        self.accepted("src/nn/a.cc", "#include <cblas.h>")
        self.accepted("lab/a.cc", '#include "nn/tensor.h"')
        self.accepted("src/core/a.cc", '#include "keel/view.h"')

    def test_bench_stands_beside_src(self):
        self.accepted("bench/a.cc", '#include "bench/row.h"')
        self.accepted("bench/a.cc", '#include "core/problem.h"')
        self.accepted("src/cli/a.cc", '#include "bench/measure.h"')
        self.refused("bench/a.cc", '#include "cli/terminal.h"', "bench may not include cli")
        self.refused("src/api/a.cc", '#include "bench/row.h"', "api may not include bench")

    def test_the_program_does_without_the_lab_and_the_training_layer(self):
        self.refused("src/cli/a.cc", '#include "lab/report.h"', "cli may not include lab")
        self.refused("src/cli/a.cc", '#include "nn/tensor.h"', "cli may not include nn")
        self.refused("src/cli/a.cc", '#include "lab/cli/say.h"', "cli may not include lab/cli")
        self.refused("src/cli/common/a.cc", '#include "cli/tensors.h"', "cli/common may not include cli")
        self.accepted("src/cli/a.cc", '#include "cli/common/terminal.h"')

    def test_the_command_line_of_the_lab_stands_on_the_lab(self):
        self.accepted("lab/cli/a.cc", '#include "lab/report/report.h"')
        self.accepted("lab/cli/a.cc", '#include "cli/common/terminal.h"')
        self.refused("lab/cli/a.cc", '#include "cli/tensors.h"', "lab/cli may not include cli")
        self.refused("lab/translate/a.cc", '#include "lab/cli/say.h"', "lab may not include lab/cli")
        self.refused("lab/a.cc", '#include "cli/common/terminal.h"', "lab may not include cli/common")

    def test_kernels_do_not_see_problem(self):
        self.refused("src/cpu/kernel-inl.h", '#include "core/problem.h"', "kernels never see Problem")
        self.refused("src/cpu/forward.h", '#include "plan/plan.h"', "kernels never see Problem")
        self.accepted("src/cpu/kernel-inl.h", '#include "core/call.h"')
        self.accepted("src/cpu/run_forward.cc", '#include "plan/plan.h"')

    def test_includes_are_not_relative(self):
        self.refused("src/core/a.cc", '#include "../plan/plan.h"', "not relative")

    def test_public_headers_include_only_keel_and_the_standard_library(self):
        for name in ("<hwy/highway.h>", "<tbb/parallel_for.h>", "<cblas.h>", "<cuda_runtime.h>", '"core/problem.h"'):
            self.refused("include/keel/a.h", f"#include {name}", "a public header includes only keel/")
        for name in ("<span>", "<stdint.h>", '"keel/view.h"'):
            self.accepted("include/keel/a.h", f"#include {name}")

    def test_the_library_uses_highway_and_tbb_alone(self):
        self.refused("src/api/a.cc", "#include <fmt/format.h>", "Highway and TBB alone")
        self.accepted("src/cpu/a.cc", "#include <hwy/highway.h>")
        self.accepted("src/cli/a.cc", "#include <fmt/format.h>")

    def test_examples_use_the_public_headers_alone(self):
        self.refused("examples/a.cc", '#include "core/problem.h"', "public headers alone")
        self.accepted("examples/a.cc", "#include <keel/keel.h>")

    def test_the_python_module_uses_the_public_headers_alone(self):
        self.refused("python/src/a.cc", '#include "core/problem.h"', "public headers alone")
        self.accepted("python/src/a.cc", '#include "keel/attention.h"')

    def test_a_new_folder_needs_a_place(self):
        self.refused("src/misc/a.cc", "#include <vector>", "no place in the order")


if __name__ == "__main__":
    unittest.main()
