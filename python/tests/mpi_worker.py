"""What each process of test_mpi.py runs, under mpirun."""

import keel
import keel.mpi
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
n = 41
random = np.random.default_rng(0)
q, k, v = random.standard_normal((3, 2, 4, n, 8))
for layout in ("zigzag", "contiguous"):
    rows = [i for part in keel.mpi.shard(n, comm.size, comm.rank, layout) for i in part]
    mine = [np.ascontiguousarray(x[:, :, rows]) for x in (q, k, v)]
    expected = keel.attention(q, k, v, causal=True, window=(20, 0), dropout=0.3, seed=5)[:, :, rows]
    for mode in ("ring", "ordered"):
        options = {"causal": True, "window": (20, 0), "dropout": 0.3, "seed": 5}
        out, lse = keel.mpi.attention(*mine, layout=layout, mode=mode, return_lse=True, **options)
        assert np.abs(out - expected).max() < 1e-12, (layout, mode)
        assert lse.shape == (2, 4, len(rows))
for wrong in ({"softcap": -1.0}, {"bias": "no array"}, {"colour": 3}):
    try:
        keel.mpi.attention(*mine, layout="contiguous", **(wrong if comm.rank == 1 else {}))
    except (ValueError, TypeError) as error:
        assert comm.rank == 1 or "rank 1" in str(error), str(error)
    else:
        raise AssertionError(wrong)
print(f"rank {comm.rank} is content", flush=True)
