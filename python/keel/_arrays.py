"""Creates the arrays that a call writes to: NumPy arrays, or tensors or CuPy arrays for a caller with these."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from keel import _core
from keel._blocks import check_lengths
from keel._classes import is_served_by_the_dispatcher, takes_over, what_is
from keel._options import TABLE, refuse_unknown


class NumpyMaker:
    """Results for NumPy arrays, and for those in CPU memory of any other library that supports DLPack. With CuPy as
    `library`, for its arrays."""

    def __init__(self, dtype: np.dtype[Any], library: Any = np) -> None:
        self.dtype = dtype
        self.rows = np.dtype(np.float64 if dtype == np.float64 else np.float32)
        self.library = library

    def empty(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        return self.library.empty(shape, self.dtype if dtype is None else dtype)

    def row(self, shape: tuple[int, ...]) -> Any:
        return self.library.empty(shape, self.rows)

    def count(self, shape: tuple[int, ...]) -> Any:
        return self.library.empty(shape, np.int64)

    def heads(self, shape: tuple[int, ...]) -> Any:
        return self.library.empty(shape, np.float64)

    def as_counts(self, numbers: Any) -> Any:
        return numbers.view(np.int64)

    def out_dtype(self, operation: str, dtype: Any) -> Any:
        """The dtype that the caller asked for; TypeError if outputs cannot have it."""
        try:
            asked = np.dtype(dtype)
        except TypeError:
            raise TypeError(f"[{operation}] out_dtype: expected a NumPy dtype, got {dtype!r}") from None
        return check_out_dtype(operation, asked, (self.dtype, self.rows))

    def like(self, array: Any, operation: str, name: str) -> Any:
        """For the gradient with respect to `array`."""
        dtype, shape, _ = _core.describe(operation, name, array)
        return self.library.empty(shape, numpy_dtype(dtype))


class TorchMaker:
    """Results for torch tensors, on their device."""

    def __init__(self, torch: Any, dtype: Any, device: Any = None) -> None:
        self.torch = torch
        self.dtype = dtype
        self.device = device
        self.rows = torch.float64 if dtype == torch.float64 else torch.float32

    def empty(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        return self.torch.empty(shape, dtype=self.dtype if dtype is None else dtype, device=self.device)

    def row(self, shape: tuple[int, ...]) -> Any:
        return self.empty(shape, self.rows)

    def count(self, shape: tuple[int, ...]) -> Any:
        return self.empty(shape, self.torch.int64)

    def heads(self, shape: tuple[int, ...]) -> Any:
        if self.device.type == "cpu":
            return np.empty(shape)
        return self.empty(shape, self.torch.float64)

    def as_counts(self, numbers: Any) -> Any:
        return numbers.view(np.int64 if isinstance(numbers, np.ndarray) else self.torch.int64)

    def out_dtype(self, operation: str, dtype: Any) -> Any:
        if not isinstance(dtype, self.torch.dtype):
            raise TypeError(f"[{operation}] out_dtype: expected a torch dtype, got {dtype!r}")
        return check_out_dtype(operation, dtype, (self.dtype, self.rows))

    def like(self, array: Any, operation: str, name: str) -> Any:
        _core.describe(operation, name, array)
        return self.empty(array.shape, array.dtype)


class NoMaker:
    """For GPU arrays of a library with which Keel cannot make arrays: refuses to make any."""

    def __init__(self, error: str) -> None:
        self.error = error

    def __getattr__(self, _: str) -> Any:
        raise TypeError(self.error)


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


def maker_for(operation: str, name: str, array: Any, out: Any = None) -> tuple[Any, tuple[int, ...]]:
    """The maker of the results of a call on `array`, and the shape of `array`. TypeError if it is not an array. If it
    is on a GPU and Keel cannot make arrays with its library, they are made with that of `out`."""
    dtype, shape, device = _core.describe(operation, name, array)
    if isinstance(array, np.ndarray):
        return NumpyMaker(array.dtype), tuple(shape)
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(array, torch.Tensor):
        return TorchMaker(torch, array.dtype, array.device), tuple(shape)
    if device == "cpu":
        return NumpyMaker(numpy_dtype(dtype)), tuple(shape)
    if cupy is not None and isinstance(array, cupy.ndarray):
        return NumpyMaker(numpy_dtype(dtype), cupy), tuple(shape)
    if out is not None:
        return maker_for(operation, "out", out)[0], tuple(shape)
    error = (
        f"[{operation}] out: expected a torch tensor or a CuPy array, since Keel can make no others on {device}, where "
        f"{name} is, got {'none' if name != 'out' else type(array).__name__}"
    )
    return NoMaker(error), tuple(shape)


def stream_of(array: Any) -> Any:
    """The stream that CuPy works on, for one of its arrays; None for others: the compiled part asks torch itself."""
    cupy = sys.modules.get("cupy")
    return cupy.cuda.get_current_stream() if cupy is not None and isinstance(array, cupy.ndarray) else None


def check_tensors(operation: str, **arrays: Any) -> None:
    """Raises for a torch tensor whose gradient would be lost here, or whose memory does not hold its values."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for name, array in arrays.items():
        if isinstance(array, torch.Tensor):
            _check_tensor(torch, operation, name, array)


def check_outputs(operation: str, **arrays: Any) -> None:
    """check_tensors for what a call writes to. It tells autograd, which may have saved these tensors."""
    check_tensors(operation, **arrays)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.autograd.graph.increment_version([x for x in arrays.values() if isinstance(x, torch.Tensor)])


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


def prepare(operation: str, options: Any, q: Any, k: Any) -> None:
    """Converts the given options, in place, to what the compiled part takes."""
    torch = sys.modules.get("torch")
    if options.get("stream") is None:
        options["stream"] = stream_of(q)
    if options.get("block_mask") is not None:
        n_q, n_k = (_core.describe(operation, name, x)[1][-2] for name, x in (("q", q), ("k", k)))
        check_lengths(operation, options["block_mask"], n_q, n_k)
    for name, value in options.items():
        if name in _ARRAYS:
            if torch is not None and isinstance(value, torch.Tensor):
                _check_tensor(torch, operation, name, value)
        elif name in _INTEGERS:
            options[name] = integers(operation, name, value)
        elif name not in TABLE:
            refuse_unknown(operation, name, TABLE)


def integers(operation: str, name: str, values: Any) -> Any:
    """Lengths or offsets as the library reads them: a list, or an array of int64. What is on a GPU stays there."""
    if values is None or isinstance(values, (list, tuple)):
        return values
    library = type(values).__module__.split(".")[0]
    if hasattr(values, "__dlpack_device__") and tuple(values.__dlpack_device__())[0] != 1:
        return values.long() if library == "torch" and not values.is_floating_point() else values
    if library == "torch":
        values = values.detach().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise TypeError(f"[{operation}] {name}: expected integers, got {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"[{operation}] {name}: expected 1 dimension, got {array.ndim}")
    return array.astype(np.int64)
