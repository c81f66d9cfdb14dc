"""Keel on torch's own threads. Each test is a program of its own: the other tests have one thread."""

import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(
    "OpenMP" not in torch.__config__.parallel_info(), reason="torch has no OpenMP threads here"
)


def run_alone(code):
    """The output of a program, which may set threads as it likes."""
    code = "import torch, keel.torch\nfrom keel.torch import scaled_dot_product_attention as sdpa\n" + code
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_torchs_threads_do_the_work():
    """Keel starts none of its own."""
    before, after = map(
        int,
        run_alone("""
import os
torch.set_num_threads(3)
q = torch.randn(1, 8, 256, 64)
torch.randn(2000, 2000).exp_()
before = len(os.listdir("/proc/self/task"))
sdpa(q, q, q)
print(before, len(os.listdir("/proc/self/task")))
""").split(),
    )
    assert before >= 3 and after == before


def test_they_give_the_same_bits():
    """Also backward with few heads, where tasks follow each other through the rows of one."""
    assert (
        run_alone("""
q, k, v, dout = (torch.randn(1, 2, 700, 32) for _ in range(4))
def results(threads):
    torch.set_num_threads(threads)
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    out = sdpa(*inputs, is_causal=True)
    return [out, *torch.autograd.grad(out, inputs, dout)]
one = results(1)
print(all(torch.equal(a, b) for threads in (2, 3, 5) for a, b in zip(one, results(threads))))
""")
        == "True\n"
    )


def test_a_forked_child_has_none():
    """The team's threads stay with the parent: waiting for them would hang, as torch's own operators do."""
    assert (
        run_alone("""
import os
torch.set_num_threads(2)
q = torch.randn(1, 8, 256, 64)
expected = sdpa(q, q, q).numpy().tobytes()
child = os.fork()
if child == 0:
    os._exit(0 if sdpa(q, q, q).numpy().tobytes() == expected else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
        == "0\n"
    )
