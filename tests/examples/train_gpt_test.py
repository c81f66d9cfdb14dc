#!/usr/bin/env python3
"""train_gpt_test.py PROGRAM: runs of examples/train_gpt that are interrupted (Ctrl-C), killed, and left alone give the same
loss at every step and the same weights at the end. Standard library only.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = 300


def command(program, folder, name):
    return [program, f"{folder}/text", "--layers", "1", "--heads", "2", "--d-model", "32", "--context", "32", "--batch", "4",
            "--dropout", "0.1", "--steps", str(STEPS), "--save-every", "25", "--checkpoint", f"{folder}/{name}.safetensors",
            "--curve", f"{folder}/{name}.curve"]


def curve(folder, name):
    """Step -> losses, all that were printed for it."""
    losses = {}
    for line in Path(f"{folder}/{name}.curve").read_text(encoding="ascii").splitlines():
        step, loss = line.split()
        losses.setdefault(int(step), set()).add(loss)
    return losses


def stop_after(command_line, folder, name, steps, with_signal):
    """Starts the run and stops it once its curve has this many lines."""
    process = subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True)
    file = Path(f"{folder}/{name}.curve")
    while process.poll() is None and not (file.exists() and file.read_bytes().count(b"\n") >= steps):
        time.sleep(0.001)
    process.send_signal(with_signal)
    return process.wait(), process.stdout.read()


def main(program):
    words = random.Random(1)
    vocabulary = ["".join(words.choices("etaoinshrdlu", k=words.randint(2, 7))) for _ in range(40)]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text").write_text(" ".join(words.choices(vocabulary, k=4000)), encoding="ascii")
        finish = lambda name: subprocess.run(command(program, folder, name), check=True, capture_output=True, text=True).stdout

        shown = finish("whole")
        assert "held-out loss" in shown and "--- sample 2" in shown, shown
        whole = curve(folder, "whole")
        assert sorted(whole) == list(range(1, STEPS + 1)), "one loss a step"

        status, said = stop_after(command(program, folder, "interrupted"), folder, "interrupted", 40, signal.SIGINT)
        assert status == 130 and "stopped at step" in said, (status, said)
        assert "resumed at step" in finish("interrupted")
        assert curve(folder, "interrupted") == whole, "the curve after Ctrl-C"

        status, _ = stop_after(command(program, folder, "killed"), folder, "killed", 90, signal.SIGKILL)
        assert status == -signal.SIGKILL, status
        assert "resumed at step" in finish("killed")
        assert curve(folder, "killed") == whole, "the curve after a crash"

        weights = Path(folder, "whole.safetensors").read_bytes()
        for name in ("interrupted", "killed"):
            assert Path(folder, f"{name}.safetensors").read_bytes() == weights, f"the weights of the {name} run"

        refused = subprocess.run([*command(program, folder, "whole"), "--seed", "2"], capture_output=True, text=True, check=False)
        assert refused.returncode == 3 and "expected a checkpoint of this run" in refused.stderr, refused
        shown = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
        for option in ("--layers", "--lr", "--checkpoint", "--curve"):
            assert option in shown.stdout, shown
        usage = subprocess.run([program, "--steps"], capture_output=True, text=True, check=False)
        assert usage.returncode == 2, usage
    print("interrupted, killed and left alone: the same curve and the same weights")


if __name__ == "__main__":
    main(sys.argv[1])
