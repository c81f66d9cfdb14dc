"""One thread for torch, and so for Keel: the calls of the tests are small, and other tests may be running."""

import os
from pathlib import Path

import pytest
import torch

# Without a GPU, arrays that say that they are on one are served by a libkeel_cuda for the CPU, if the tests are built.
GPU_ON_CPU = Path(__file__).parents[2] / "build/tests/cuda/libkeel_cuda_host.so"
if not torch.cuda.is_available() and GPU_ON_CPU.exists():
    os.environ["KEEL_CUDA_LIBRARY"] = str(GPU_ON_CPU)

from keel.torch import _operator, _sdpa, _short  # noqa: E402

torch.set_num_threads(1)

WAYS = {"compiled": _short.compiled and _short.compiled.sdpa, "python": _short.sdpa_in_python}


@pytest.fixture(params=WAYS)
def short_path(request, monkeypatch):
    """Each of the two short paths of scaled_dot_product_attention in turn."""
    assert WAYS[request.param], "the package was built without torch: keel._torch is missing"
    monkeypatch.setattr(_sdpa, "short", WAYS[request.param])
    return request.param


@pytest.fixture
def calls(monkeypatch):
    """The calls that reach Keel."""
    count = []
    for module, name in ((_operator, "attention"), (_sdpa, "short")):
        original = getattr(module, name)

        def counted(*arguments, original=original):
            result = original(*arguments)
            if result is not None:  # the short path leaves the rest to the operator
                count.append(1)
            return result

        monkeypatch.setattr(module, name, counted)
    return count
