"""keel.mpi over real processes, where mpi4py and mpirun are there."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest


def test_results_are_those_of_one_process_and_errors_those_of_all():
    pytest.importorskip("mpi4py")
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("mpirun was not found")
    worker = pathlib.Path(__file__).with_name("mpi_worker.py")
    settings = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    ended = subprocess.run(
        [mpirun, "-n", "2", "--oversubscribe", sys.executable, "-B", worker],
        capture_output=True, text=True, timeout=120, env=os.environ | settings, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("is content") == 2
