"""Attention over the processes of an MPI communicator, for NumPy arrays: needs mpi4py.

mpirun -n 4 python program.py

import keel.mpi
from mpi4py import MPI

rows = keel.mpi.shard(n, MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank)
out = keel.mpi.attention(q, k, v, comm=MPI.COMM_WORLD, causal=True)  # this rank's rows of each
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keel import _core
from keel._arrays import check_tensors, maker_for, prepare
from keel._options import ArrayOptions, takes
from keel._shard import shard

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["attention", "shard"]

_OPERATION = "mpi.attention"


class _Transport:
    """What keel._core calls to reach the other processes of a communicator."""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._open: dict[int, Any] = {}
        self._last = 0

    def _memory(self, address: int, size: int) -> list[Any]:
        return [self._mpi.memory.fromaddress(address, size), self._mpi.BYTE]

    def isend(self, to: int, tag: int, address: int, size: int) -> int:
        return self._keep(self._comm.Isend(self._memory(address, size), dest=to, tag=tag))

    def irecv(self, source: int, tag: int, address: int, size: int) -> int:
        return self._keep(self._comm.Irecv(self._memory(address, size), source=source, tag=tag))

    def wait(self, request: int) -> None:
        self._open.pop(request).Wait()

    def _keep(self, request: Any) -> int:
        self._last += 1
        self._open[self._last] = request
        return self._last


@takes(ArrayOptions)
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    comm: Any = None,
    layout: str = "zigzag",
    mode: str = "ring",
    return_lse: bool = False,
    **options: Unpack[ArrayOptions],
) -> Any:
    """`keel.attention` of this rank's queries over the keys of all ranks of a communicator, MPI.COMM_WORLD by default.

    Each rank passes its rows of q, k and v, (B, H, N, D), those that keel.mpi.shard names, and gets its rows of the
    output, or (output, lse). All ranks make the same call. layout, mode and options are those of
    keel.torch.ring_attention, and seed must be the same on all. If a rank has a wrong argument, all raise.
    """
    from mpi4py import MPI

    transport = _Transport(MPI.COMM_WORLD if comm is None else comm)
    try:
        check_tensors(_OPERATION, q=q, k=k, v=v)
        maker, q_shape = maker_for(_OPERATION, "q", q)
        _, k_shape = maker_for(_OPERATION, "k", k)
        _, v_shape = maker_for(_OPERATION, "v", v)
        for name, shape in (("q", q_shape), ("k", k_shape), ("v", v_shape)):
            if len(shape) != 4:
                raise ValueError(f"[{_OPERATION}] {name}: expected 4 dimensions (B, H, N, D), got {len(shape)}")
        given = {name: value for name, value in options.items() if value is not None}
        prepare(_OPERATION, given, q, k)
    except Exception as error:
        try:
            _core.ring_share(transport, [0.0] * 2, str(error))
        except ValueError:  # which the others learn and raise here
            raise error from None
        raise
    rows = _core.ring_share(transport, [float(q_shape[2]), float(k_shape[2])])
    n_q = q_shape[2] if mode == "decode" else int(sum(each[0] for each in rows))
    n_k = int(sum(each[1] for each in rows))
    out, lse = maker.empty((*q_shape[:3], v_shape[3])), maker.row(q_shape[:3])
    _core.ring_attention(transport, (n_q, n_k, layout, mode), (q, k, v, out), given, {"lse": lse})
    return (out, lse) if return_lse else out
