"""Keel on torch's own threads.

torch computes on a team of OpenMP threads that stay awake for a while after a call. A second set of threads would have
to be woken for each of Keel's calls, and to wait for cores that torch's threads still hold.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from keel import _core


def share() -> bool:
    """Makes Keel compute on torch's threads, if torch has such a team; otherwise Keel keeps its own."""
    if "ATen parallel backend: OpenMP" not in torch.__config__.parallel_info():
        return False
    for path in (None, str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so")):  # both are already loaded
        try:
            library = ctypes.CDLL(path)
            run, size = library.GOMP_parallel, library.omp_get_max_threads
        except (OSError, AttributeError):
            continue
        if size() == torch.get_num_threads():  # or it is not the library that torch uses
            _core.use_team(*(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in (run, size)))
            return True
    return False
