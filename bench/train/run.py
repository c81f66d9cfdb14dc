#!/usr/bin/env python3
"""run.py KEEL PYTHON [ROUNDS]: training speed of a 4-layer GPT (d_model 256, 4 heads, n = 256, batch 16, f32, AdamW), Keel's
program KEEL against torch eager run by PYTHON, in turns on the same cores, ROUNDS steps each after two to warm up.

    bench/train/run.py build/bin/keel_train build/venv/bin/python
"""

import statistics
import subprocess
import sys
from pathlib import Path

TOKENS = 16 * 256


class Competitor:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.seconds = []

    def step(self):
        self.process.stdin.write(b".")
        seconds, loss = map(float, self.process.stdout.readline().split())
        assert loss == loss, "the loss is NaN"
        self.seconds.append(seconds)

    def tokens_per_second(self, choose):
        return TOKENS / choose(self.seconds[2:])


def main(keel, python, rounds=20):
    ours = Competitor([keel])
    theirs = Competitor([python, str(Path(__file__).with_name("pytorch.py"))])
    for _ in range(int(rounds) + 2):
        ours.step()
        theirs.step()
    # The best step is the one that other programs on the machine disturbed least.
    for name, choose in (("median", statistics.median), ("best", min)):
        a, b = ours.tokens_per_second(choose), theirs.tokens_per_second(choose)
        print(f"{name} of {rounds} steps: keel {a:.0f} tokens/s, torch {b:.0f} tokens/s, ratio {a / b:.2f}")
    for competitor in (ours, theirs):
        competitor.process.stdin.close()
        competitor.process.wait()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
