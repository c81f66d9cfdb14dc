"""Creates the arrays that a call writes to: NumPy arrays, or tensors for a caller with tensors."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from keel import _core
from keel._classes import is_served_by_the_dispatcher, takes_over, what_is
from keel._options import TABLE, refuse_unknown


class NumpyMaker:
    """Results for NumPy arrays, and for those of any other library that supports DLPack."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.rows = np.dtype(np.float64 if dtype == np.float64 else np.float32)

    def empty(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        return np.empty(shape, self.dtype if dtype is None else dtype)

    def row(self, shape: tuple[int, ...]) -> Any:
        return np.empty(shape, self.rows)

    def count(self, shape: tuple[int, ...]) -> Any:
        return np.empty(shape, np.int64)

    def out_dtype(self, operation: str, dtype: Any) -> Any:
        """The dtype that the caller asked for; TypeError if outputs cannot have it."""
        try:
            asked = np.dtype(dtype)
        except TypeError:
            raise TypeError(f"[{operation}] out_dtype: expected a NumPy dtype, got {dtype!r}") from None
        return check_out_dtype(operation, asked, (self.dtype, self.rows))

    def like(self, array: Any, operation: str, name: str) -> Any:
        """For the gradient with respect to `array`."""
        dtype, shape = _core.describe(operation, name, array)
        return np.empty(shape, numpy_dtype(dtype))


class TorchMaker:
    """Results for torch tensors."""

    def __init__(self, torch: Any, dtype: Any) -> None:
        self.torch = torch
        self.dtype = dtype
        self.rows = torch.float64 if dtype == torch.float64 else torch.float32

    def empty(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        return self.torch.empty(shape, dtype=self.dtype if dtype is None else dtype)

    def row(self, shape: tuple[int, ...]) -> Any:
        return self.torch.empty(shape, dtype=self.rows)

    def count(self, shape: tuple[int, ...]) -> Any:
        return self.torch.empty(shape, dtype=self.torch.int64)

    def out_dtype(self, operation: str, dtype: Any) -> Any:
        if not isinstance(dtype, self.torch.dtype):
            raise TypeError(f"[{operation}] out_dtype: expected a torch dtype, got {dtype!r}")
        return check_out_dtype(operation, dtype, (self.dtype, self.rows))

    def like(self, array: Any, operation: str, name: str) -> Any:
        _core.describe(operation, name, array)
        return self.torch.empty(array.shape, dtype=array.dtype)


def check_out_dtype(operation: str, dtype: Any, allowed: tuple[Any, Any]) -> Any:
    """Outputs have the dtype of q, or that of lse."""
    if dtype not in allowed:
        names = " or ".join(dict.fromkeys(str(each) for each in allowed))
        raise TypeError(f"[{operation}] out_dtype: expected {names}, got {dtype}")
    return dtype


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype for one of Keel's names; bf16 needs ml_dtypes."""
    kinds: dict[str, Any] = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bool": np.bool_, "i64": np.int64}
    if name == "bf16":
        import ml_dtypes

        kinds[name] = ml_dtypes.bfloat16
    dtype: np.dtype[Any] = np.dtype(kinds[name])
    return dtype


def maker_for(operation: str, name: str, array: Any) -> tuple[NumpyMaker | TorchMaker, tuple[int, ...]]:
    """The maker of the results of a call on `array`, and the shape of `array`. TypeError if it is not an array."""
    dtype, shape = _core.describe(operation, name, array)
    if isinstance(array, np.ndarray):
        return NumpyMaker(array.dtype), tuple(shape)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return TorchMaker(torch, array.dtype), tuple(shape)
    return NumpyMaker(numpy_dtype(dtype)), tuple(shape)


def check_tensors(operation: str, **arrays: Any) -> None:
    """An error for a torch tensor whose gradient would be lost here, or whose memory does not hold its values."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for name, array in arrays.items():
        if isinstance(array, torch.Tensor):
            _check_tensor(torch, operation, name, array)


def _check_tensor(torch: Any, operation: str, name: str, array: Any) -> None:
    method = "__torch_function__" if takes_over(torch, array) else None
    if method is None and is_served_by_the_dispatcher(torch, array):
        method = "__torch_dispatch__"
    if method is not None:
        expected = "a tensor whose memory holds its values"
        raise TypeError(f"[{operation}] {name}: expected {expected}, got {what_is(array, method)}")
    if array.is_neg():
        raise ValueError(
            f"[{operation}] {name}: expected a tensor whose memory holds its values, got a lazy negation; "
            "use resolve_neg()"
        )
    if array.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"[{operation}] {name}: expected a tensor that needs no gradient, got one with requires_grad; "
            "keel.torch works under autograd"
        )


_ARRAYS = {name for name, option in TABLE.items() if option.kind in ("tensor", "number or tensor")}
_INTEGERS = {name for name, option in TABLE.items() if option.kind == "integers"}


def prepare(operation: str, options: Any) -> None:
    """Converts the given options, in place, to what the compiled part takes."""
    torch = sys.modules.get("torch")
    for name, value in options.items():
        if name in _ARRAYS:
            if torch is not None and isinstance(value, torch.Tensor):
                _check_tensor(torch, operation, name, value)
        elif name in _INTEGERS:
            options[name] = integers(operation, name, value)
        elif name not in TABLE:
            refuse_unknown(operation, name, TABLE)


def integers(operation: str, name: str, values: Any) -> Any:
    """Lengths or offsets as the library reads them: a list, or an array of int64."""
    if values is None or isinstance(values, (list, tuple)):
        return values
    if type(values).__module__.split(".")[0] == "torch":
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise TypeError(f"[{operation}] {name}: expected integers, got {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"[{operation}] {name}: expected 1 dimension, got {array.ndim}")
    return array.astype(np.int64)
