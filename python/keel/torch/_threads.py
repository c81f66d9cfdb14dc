"""Keel on torch's own threads.

torch computes on a team of OpenMP threads that stay awake between its calls. A second set of threads would have to be
woken for each of Keel's, and to wait for a core that torch's are still holding.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from keel import _core


def share() -> bool:
    """Lets Keel compute on torch's threads, where torch has such a team; elsewhere Keel goes on with its own."""
    if "ATen parallel backend: OpenMP" not in torch.__config__.parallel_info():
        return False
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))  # loaded already
        run, size = (
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            for name in ("GOMP_parallel", "omp_get_max_threads")
        )
    except (OSError, AttributeError):
        return False
    _core.use_team(run, size)
    return True
