#!/usr/bin/env python3
"""train_gpt_faults_test.py PROGRAM: what examples/train_gpt says and leaves behind when something is wrong. Standard library
only.
"""

import json
import random
import resource
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = ""


def limit_memory():
    """So that a program that takes all it can get does not take this machine down."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


class TrainGpt(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.text = self.folder / "text"
        self.checkpoint = self.folder / "text.safetensors"
        self.write("etaoin shrdlu")

    def write(self, alphabet):
        self.text.write_text("".join(random.Random(1).choices(alphabet, k=4000)), encoding="ascii")

    def run_it(self, *flags):
        small = ["--layers", "1", "--heads", "2", "--d-model", "16", "--context", "16", "--batch", "2", "--steps", "4"]
        return subprocess.run([PROGRAM, str(self.text), *small, *flags], capture_output=True, check=False, preexec_fn=limit_memory)

    def expect(self, result, status, message):
        self.assertEqual(result.returncode, status, result)
        self.assertIn(message, result.stderr.decode())
        self.assertEqual(result.stderr.count(b"\n"), 1, result.stderr)

    def test_another_text_of_the_same_length_is_not_resumed(self):
        self.assertEqual(self.run_it().returncode, 0)
        before = self.checkpoint.read_bytes()
        self.write("etaoin shrdlv")
        self.expect(self.run_it(), 3, "expected a checkpoint of this run")
        self.assertEqual(self.checkpoint.read_bytes(), before)

    def test_a_loss_that_is_no_number_ends_the_run_and_leaves_the_checkpoint(self):
        flags = ["--lr", "1e30", "--save-every", "1"]
        self.expect(self.run_it(*flags), 1, "expected a finite loss, got")
        before = self.checkpoint.read_bytes()
        again = self.run_it(*flags)
        self.expect(again, 1, "expected a finite loss, got")
        self.assertIn(b"resumed at step", again.stdout)
        self.assertEqual(self.checkpoint.read_bytes(), before)

    def test_weights_that_are_no_numbers_are_not_saved(self):
        self.expect(self.run_it("--lr", "1e39", "--save-every", "1"), 1, "expected finite weights to save, got")
        self.assertFalse(self.checkpoint.exists())

    def test_a_checkpoint_that_cannot_be_written_is_found_before_training(self):
        file = self.folder / "file"
        file.write_text("x", encoding="ascii")
        for path, message in ((self.folder / "none" / "x", "expected a folder to write in"),
                              (file / "x", "expected a folder to write in"),
                              (self.folder, "expected a file to write, got \"a folder\"")):
            curve = self.folder / "curve"
            self.expect(self.run_it("--checkpoint", str(path), "--curve", str(curve)), 3, message)
            self.assertFalse(curve.exists() and curve.read_text(encoding="ascii"), "no step was made")

    def test_sizes_beyond_the_memory_are_refused_with_the_bound(self):
        self.expect(self.run_it("--batch", "99999999999"), 2, "--batch: expected at most ")
        self.expect(self.run_it("--batch", "9223372036854775807"), 2, "--batch: expected at most ")
        self.expect(self.run_it("--layers", "99999999999"), 2, "--layers, --d-model: expected a model that fits")
        self.expect(self.run_it("--d-model", "99999999998"), 2, "--layers, --d-model: expected a model that fits")
        self.expect(self.run_it("--context", "9223372036854775807"), 3, "the text is too short")
        self.expect(self.run_it("--lr", "nan"), 2, "--lr: expected a number")

    def test_control_characters_of_a_file_do_not_reach_the_terminal(self):
        header = json.dumps({"__metadata__": {"run": "\x1b]0;title\x07 \x9b2J"}}).encode()
        self.checkpoint.write_bytes(struct.pack("<Q", len(header)) + header)
        result = self.run_it()
        self.expect(result, 3, "got one of \\x1b]0;title\\x07 \\xc2\\x9b2J")
        self.checkpoint.unlink()
        self.write("ab\x1b\x07\x7f")
        result = self.run_it()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"\\x1b", result.stdout)
        for byte in (b"\x1b", b"\x07", b"\x7f"):
            self.assertNotIn(byte, result.stdout)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
