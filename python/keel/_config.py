"""keel.show_config: what this installation consists of."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from pathlib import Path
from typing import Literal, overload

import numpy as np

from keel import _core


@overload
def show_config(mode: Literal["stdout"] = "stdout") -> None: ...
@overload
def show_config(mode: Literal["dicts"]) -> dict[str, str]: ...
def show_config(mode: str = "stdout") -> dict[str, str] | None:
    """Prints what to include in a bug report: versions, the SIMD target in use, what is compiled and what is not.
    With mode="dicts" it returns the same instead.

    >>> import keel
    >>> keel.show_config("dicts")["keel"] == keel.__version__
    True
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f"[show_config] mode: expected 'stdout' or 'dicts', got {mode!r}")
    x = np.zeros((1, 1, 64, 64), np.float32)
    plan = dict(line.split(None, 1) for line in _core.explain(x, x, x, {}).splitlines() if " " in line)
    folder = Path(__file__).parent
    facts = {
        "keel": _core.version,
        "folder": str(folder),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors, SIMD {plan['target']}",
        "bundled": ", ".join(sorted(path.name for path in folder.glob("lib*.so*"))) or "nothing",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": _version("torch"),
        "keel.torch": _compiled_part(),
        "jax": _version("jax"),
        "keel.jax": _jax_part(),
        "transformers": _version("transformers"),
    }
    if mode == "dicts":
        return facts
    width = max(map(len, facts))
    for name, fact in facts.items():
        print(f"{name:{width}}  {fact}")
    return None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _jax_part() -> str:
    if importlib.util.find_spec("keel._jax") is None:
        return "without its compiled part, which needs jaxlib where the package is built"
    from keel import _jax

    return "compiled for version {}.{} of XLA's foreign function interface".format(*_jax.api_version)


def _compiled_part() -> str:
    if importlib.util.find_spec("torch") is None:
        return "needs torch"
    from keel.torch import _short

    return ("compiled part " if _short.compiled else "without its compiled part: ") + _short.about_compiled
