#!/usr/bin/env python3
"""kill_test.py MPIRUN...: a command that runs mpi_test. One rank is killed in a call; all must end within ten seconds, with a
report and a status other than 0. Standard library only.
"""

import subprocess
import sys
import time

SECONDS = 10

started = time.monotonic()
try:
    ended = subprocess.run(
        [*sys.argv[1:], "--gtest_also_run_disabled_tests", "--gtest_filter=DISABLED_Mpi.ARankIsKilled"],
        capture_output=True, text=True, timeout=5 * SECONDS, check=False)
except subprocess.TimeoutExpired:
    sys.exit(f"expected an end within {SECONDS} s, got none in {5 * SECONDS} s")
took = time.monotonic() - started
said = ended.stdout + ended.stderr
if ended.returncode == 0:
    sys.exit(f"expected a status other than 0, got 0: {said}")
if took > SECONDS:
    sys.exit(f"expected an end within {SECONDS} s, got {took:.1f} s")
if "rank 1" not in said or "Killed" not in said:
    sys.exit(f"expected a report that rank 1 was killed, got: {said}")
print(f"all ended after {took:.1f} s")
