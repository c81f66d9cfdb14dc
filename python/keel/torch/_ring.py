"""Attention over the processes of a torch process group, under autograd."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from keel import _core
from keel._options import Options, refuse_unknown, takes
from keel._shard import shard
from keel.torch import _name
from keel.torch import _operator as operator
from keel.torch import _ring_tensors as tensors
from keel.torch._check import autocast, check_tensor, refuse

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from typing_extensions import Unpack

_OPERATION = "ring_attention"
_NAMES = tuple(Options.__annotations__)
Arrays = tuple[Tensor, Tensor, Tensor]


class _Transport:
    """What keel._core calls to reach the other ranks of a group: bytes between addresses in memory."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self._open: dict[int, tuple[Any, Tensor]] = {}
        self._last = 0

    def isend(self, to: int, tag: int, address: int, size: int) -> int:
        memory = _memory(address, size)
        return self._keep(dist.isend(memory, group=self.group, tag=tag, group_dst=to), memory)

    def irecv(self, source: int, tag: int, address: int, size: int) -> int:
        memory = _memory(address, size)
        return self._keep(dist.irecv(memory, group=self.group, tag=tag, group_src=source), memory)

    def wait(self, request: int) -> None:
        work, _ = self._open.pop(request)
        work.wait()

    def _keep(self, work: Any, memory: Tensor) -> int:
        self._last += 1
        self._open[self._last] = (work, memory)
        return self._last


def _memory(address: int, size: int) -> Tensor:
    """`size` bytes at an address, as torch takes them."""
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)


class _Ring(NamedTuple):
    """The ring of the library, for tensors in the memory of the CPU."""

    transport: _Transport
    sharding: tuple[int, int, str, str]

    def forward(self, q: Tensor, k: Tensor, v: Tensor, options: Any) -> tuple[Tensor, Tensor]:
        out = operator.empty_output(q, v)
        lse = q.new_empty(q.shape[:-1], dtype=operator.row_dtype(q.dtype))
        _core.ring_attention(self.transport, self.sharding, (q, k, v, out), options, {"lse": lse})
        return out, lse

    def backward(self, inputs: Any, options: Any, gradients: Any) -> None:
        _core.ring_attention_backward(self.transport, (*self.sharding, True), inputs, options, gradients)


class _RingOfTensors(NamedTuple):
    """That of keel.torch._ring_tensors, for tensors on a GPU."""

    whole: tensors.Whole

    def forward(self, q: Tensor, k: Tensor, v: Tensor, options: Any) -> tuple[Tensor, Tensor]:
        return tensors.forward(self.whole, q, k, v, options)

    def backward(self, inputs: Any, options: Any, gradients: Any) -> None:
        tensors.backward(self.whole, inputs, options, gradients)


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ring: _Ring | _RingOfTensors, q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> Any:
        out, lse = ring.forward(q, k, v, operator.given(flat))
        ctx.ring = ring
        ctx.save_for_backward(q, k, v, out, lse, *(flat[i] for i in operator.TENSORS))
        ctx.others = [None if i in operator.TENSORS else x for i, x in enumerate(flat)]
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> Any:
        apply: Any = _RingGradients.apply
        return None, *apply(ctx, dout, dlse, *ctx.saved_tensors)


class _RingGradients(torch.autograd.Function):
    """The gradients of _RingAttention, of which `of` is the context; they have none of their own."""

    @staticmethod
    def forward(ctx: Any, of: Any, dout: Tensor | None, dlse: Tensor | None, *saved: Tensor) -> Any:
        q, k, v, out, lse, *options = saved
        flat = list(of.others)
        for i, tensor in zip(operator.TENSORS, options):
            flat[i] = tensor
        # What one rank does all must do: dk and dv are sums over the queries of all ranks.
        needed = [name for name, needs in zip(operator.INPUTS, of.needs_input_grad[1:]) if needs]
        operator.check_differentiable(_OPERATION, needed)
        gradients = operator.new_gradients(q, k, v, flat, {*needed, "k", "v"})
        dout = torch.zeros_like(out) if dout is None else dout
        inputs = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "dout": dout, "dlse": dlse}
        of.ring.backward(inputs, operator.given(flat), gradients)
        results = operator.by_input(gradients, needed)
        return tuple(results.get(name) for name in operator.INPUTS[: 3 + len(flat)])

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(f"[{_OPERATION}] second derivatives are not computed over ranks")


@takes(Options)
def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    group: Any = None,
    layout: str = "zigzag",
    mode: str = "ring",
    n_q: int | None = None,
    n_k: int | None = None,
    return_lse: bool = False,
    **options: Unpack[Options],
) -> Any:
    """`keel.torch.attention` of this rank's queries over the keys of all ranks of a process group: gloo's for tensors
    on the CPU, NCCL's for those on GPUs.

    Each rank passes its rows of q, k and v, those that keel.torch.shard(n, size, rank, layout) names, and gets its rows
    of the output. All ranks make the same call, forward and backward; n_q and n_k, the rows of all ranks together, are
    gathered from them if left out. `mode` is "ring"; "ordered", whose results have the bits of a single process;
    or "decode", for a few queries that every rank has, over divided keys, without gradients. On a GPU it is "ring".

    Options mean what they mean in keel.torch.attention: causal masks, windows, ALiBi and dropout follow the positions
    in the whole sequence; lengths and offsets are the whole's; mask and bias have this rank's queries and all keys.
    Block masks, relative_bias, k_starts and origin are refused. The gradients of sinks, scales and biases that ranks
    share cover this rank's queries only; sum them over the ranks, like those of any other parameter.

    If a rank fails, all raise an error that names it; on GPUs, only if it fails before the work begins.
    """
    if not dist.is_initialized():
        raise RuntimeError(f"[{_OPERATION}] group: expected torch.distributed to be initialised, got no process group")
    q, k, v = autocast(q, k, v, options)
    ring_of = _ring_of_tensors if _by_tensors(q) else _ring
    ring, flat = ring_of(group, (q, k, v), options, (n_q, n_k, layout, mode))
    apply: Any = _RingAttention.apply
    out, lse = apply(ring, q, k, v, *flat)
    return (out, lse) if return_lse else out


def _by_tensors(q: Any) -> bool:
    return isinstance(q, Tensor) and q.is_cuda


def _ring(group: Any, arrays: Arrays, options: Any, sharding: Any) -> tuple[_Ring, list[Any]]:
    """The ring that all ranks agree on, and the options, with the seed of rank 0."""
    transport = _Transport(group)
    n_q, n_k, layout, mode = sharding
    try:
        flat = _checked(*arrays, options)
        q, k, _ = arrays
        mine = [q.shape[2], k.shape[2], *divmod(operator.seed_of(flat), 2**32)]
    except Exception as error:
        with contextlib.suppress(ValueError):  # which the others learn and raise here; this rank's own says more
            _core.ring_share(transport, [0.0] * 4, str(error))
        raise
    all_ranks = _core.ring_share(transport, [float(x) for x in mine])
    operator.set_seed(flat, int(all_ranks[0][2]) * 2**32 + int(all_ranks[0][3]))  # rank 0's, for all
    if n_q is None:
        n_q = q.shape[2] if mode == "decode" else int(sum(each[0] for each in all_ranks))
    if n_k is None:
        n_k = int(sum(each[1] for each in all_ranks))
    return _Ring(transport, (n_q, n_k, layout, mode)), flat


def _ring_of_tensors(group: Any, arrays: Arrays, options: Any, sharding: Any) -> tuple[_RingOfTensors, list[Any]]:
    """The same for tensors on a GPU. What ranks tell each other is waited for."""
    device = arrays[0].device
    try:
        flat = _checked(*arrays, options)
        if sharding[3] != "ring":
            refuse(_OPERATION, "mode", "'ring' on a GPU", repr(sharding[3]), NotImplementedError)
        alike = [repr(x) for x in flat if not isinstance(x, Tensor)], sharding
        mine = arrays[0].shape[2], arrays[1].shape[2], operator.seed_of(flat), alike
    except Exception as error:
        with contextlib.suppress(ValueError):
            tensors.share(_OPERATION, group, device, None, str(error))
        raise
    all_ranks = tensors.share(_OPERATION, group, device, mine)
    for rank, each in enumerate(all_ranks):
        if each[3] != all_ranks[0][3]:
            refuse(_OPERATION, "options", "those of rank 0 on all ranks", f"others on rank {rank}")
    operator.set_seed(flat, all_ranks[0][2])
    n_q, n_k = (sum(each[i] for each in all_ranks) if sharding[i] is None else sharding[i] for i in range(2))
    whole = tensors.Whole(n_q, n_k, sharding[2], group)
    failure = None
    try:
        tensors.check(_OPERATION, whole, *arrays, operator.given(flat))
    except Exception as error:
        failure = error
    with contextlib.suppress(ValueError) if failure else contextlib.nullcontext():
        tensors.share(_OPERATION, group, device, None, str(failure or ""))
    if failure is not None:
        raise failure
    return _RingOfTensors(whole), flat


def _checked(q: Tensor, k: Tensor, v: Tensor, options: Any) -> list[Any]:
    """The options as an operator takes them; an exception for a wrong argument."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_tensor(_OPERATION, name, x)
        if x.dim() != 4:
            refuse(_OPERATION, name, "4 dimensions (B, H, N, D)", x.dim())
    for name in options:
        if name not in _NAMES:
            refuse_unknown(_OPERATION, name, _NAMES)
    if options.get("origin") is not None:
        refuse(_OPERATION, "origin", "none, as the layout says where rows stand", options["origin"])
    return operator.flatten(_OPERATION, options)


@contextlib.contextmanager
def context_parallel(
    mesh: DeviceMesh,
    *,
    buffers: Sequence[Tensor] | None = None,
    buffer_seq_dims: Sequence[int] | None = None,
    no_restore_buffers: set[Tensor] | None = None,
    layout: str = "zigzag",
) -> Iterator[None]:
    """torch.distributed.tensor.experimental.context_parallel, for any length, on CPUs too.

    Within it each buffer (tokens, labels, positions) has this rank's rows along its sequence dimension, and
    F.scaled_dot_product_attention and keel.torch's attend over the rows of all ranks of the mesh's group, even within
    keel.torch's replace() or a Monitor, which does not see these calls; keel.torch.attention is refused. Afterwards the
    buffers are what they were, except `no_restore_buffers`. Buffers must not be parameters and must own their memory.
    """
    operation = "context_parallel"
    buffers = list(buffers or ())
    dimensions = list(buffer_seq_dims or ())
    keep = set(no_restore_buffers or ())
    if len(buffers) != len(dimensions):
        refuse(operation, "buffer_seq_dims", f"one per buffer ({len(buffers)})", len(dimensions))
    if any(not any(x is buffer for buffer in buffers) for x in keep):
        refuse(operation, "no_restore_buffers", "some of `buffers`", "another tensor")
    if getattr(mesh, "ndim", 1) != 1:
        refuse(operation, "mesh", "1 dimension", mesh.ndim)
    group = mesh.get_group()
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    originals = [buffer.detach().clone() for buffer in buffers]

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if not enable_gqa and query.shape[1] != key.shape[1]:
            refuse(operation, "key", f"{query.shape[1]} heads as in query, or enable_gqa=True", key.shape[1])
        out: Tensor = ring_attention(
            query,
            key,
            value,
            group=group,
            layout=layout,
            mask=attn_mask,
            dropout=dropout_p,
            causal=is_causal,
            scale=scale,
        )
        return out

    with torch.no_grad():
        for buffer, original, dimension in zip(buffers, originals, dimensions):
            rows = [i for part in shard(buffer.shape[dimension], size, rank, layout) for i in part]
            mine = original.index_select(dimension, torch.tensor(rows, dtype=torch.int64, device=original.device))
            buffer.resize_(mine.shape).copy_(mine)
    try:
        with _name.replaced(attend, for_ranks=True):
            yield
    finally:
        with torch.no_grad():
            for buffer, original in zip(buffers, originals):
                if not any(buffer is x for x in keep):
                    buffer.resize_(original.shape).copy_(original)
