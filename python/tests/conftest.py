"""One thread for torch, and so for Keel: the calls of the tests are small, and other tests may be running."""

import pytest
import torch
from keel.torch import _sdpa, _short

torch.set_num_threads(1)

WAYS = {"compiled": _short.compiled and _short.compiled.sdpa, "python": _short.sdpa_in_python}


@pytest.fixture(params=WAYS)
def short_path(request, monkeypatch):
    """Each of the two short paths of scaled_dot_product_attention in turn."""
    assert WAYS[request.param], "the package was built without torch: keel._torch is missing"
    monkeypatch.setattr(_sdpa, "_short", WAYS[request.param])
    return request.param
