#!/usr/bin/env python3
"""bench/gpu.py [--backward] [--library FILE] [--dtype bf16|f16] [--repeats N]: Keel's passes on a GPU beside PyTorch's.

Both are timed in one process, in turn: 16,384 tokens, H · d = 2048, full and causal, for head sizes 64, 128 and 256 and
sequences of 512 to 16,384 tokens. Prints TFLOP/s (4·B·H·n²·d, half of that if causal, 2.5 times that for the backward pass)
and the ratio to the faster of cuDNN and FlashAttention-2, by medians, and how far the results are apart: the outputs, or the
gradients relative to their norm. The backward pass is timed alone, on a graph that is kept, and with dq added up in any
order too. Needs a GPU and PyTorch; calls libkeel by its C interface. libkeel_cuda must lie beside it.
"""

import argparse
import ctypes
import math
import statistics
import sys

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = {"bf16": (torch.bfloat16, 3), "f16": (torch.float16, 2)}
F32 = 1
TOKENS, WIDTH = 16384, 2048
KEEL_CUDA = 1
PEERS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]


class View(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("shape", ctypes.c_int64 * 4),
        ("strides", ctypes.c_int64 * 4),
        ("dtype", ctypes.c_int32),
        ("device", ctypes.c_int32 * 2),
        ("reserved", ctypes.c_uint32 * 5),
    ]


class BackwardInputs(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64)] + [(name, View) for name in "q k v out lse dout dlse".split()]


class Gradients(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint64)] + [(name, View) for name in "dq dk dv dbias dscale dsinks".split()]
    _fields_ += [("accumulate", ctypes.c_int64)]


class Options(ctypes.Structure):
    """keel_options"""

    _fields_ = [
        ("size", ctypes.c_uint64),
        ("scale", ctypes.c_double),
        ("has_scale", ctypes.c_int32),
        ("causal", ctypes.c_int32),
        ("scale_tensor", View),
        ("softcap", ctypes.c_double),
        ("mask", View),
        ("bias", View),
        ("window", ctypes.c_int64 * 2),
        ("has_window", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("origin", ctypes.c_int64 * 4),
        ("lists", View * 4),
        ("alibi", View),
        ("sinks", View),
        ("dropout", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("relative_bias", View),
        ("block_mask", ctypes.c_void_p),
        ("k_starts", View),
        ("order", ctypes.c_int64),
    ]


def view(tensor, dtype):
    result = View(data=tensor.data_ptr(), dtype=dtype)
    result.shape[: tensor.dim()] = tensor.shape
    result.strides[: tensor.dim()] = tensor.stride()
    result.device[:] = (KEEL_CUDA, tensor.device.index or 0)
    return result


def keel_call(library, tensors, dtype, causal):
    """A function of no arguments that queues the call on the default stream."""
    views = [view(tensor, dtype) for tensor in tensors]
    options = Options(size=ctypes.sizeof(Options), causal=int(causal))

    def call():
        if library.keel_attention(*map(ctypes.byref, views), ctypes.byref(options), None) != 0:
            sys.exit(library.keel_last_error().decode())

    return call


def keel_backward(library, named, dtype, causal, order=0):
    """The same of the backward pass: a function, and the gradients that it writes."""
    inputs = BackwardInputs(size=ctypes.sizeof(BackwardInputs))
    for name, tensor in named.items():
        setattr(inputs, name, view(tensor, F32 if name == "lse" else dtype))
    results = [torch.empty_like(named[name]) for name in "qkv"]
    gradients = Gradients(size=ctypes.sizeof(Gradients))
    gradients.dq, gradients.dk, gradients.dv = (view(x, dtype) for x in results)
    options = Options(size=ctypes.sizeof(Options), causal=int(causal), order=order)

    def call():
        if library.keel_attention_backward(*map(ctypes.byref, (inputs, gradients, options))) != 0:
            sys.exit(library.keel_last_error().decode())

    return call, results


def torch_call(backend, q, k, v, causal):
    def call():
        with sdpa_kernel(backend):
            functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call


def torch_backward(backend, q, k, v, dout, causal):
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(backend):
        out = functional.scaled_dot_product_attention(*leaves, is_causal=causal)
    return lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True)


def milliseconds(calls, repeats, inner=4):
    """The median time of each call, all of them in turn."""
    for call in calls:
        for _ in range(3):
            call()
    times = [[] for _ in calls]
    for _ in range(repeats):
        for call, seen in zip(calls, times):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(inner):
                call()
            end.record()
            end.synchronize()
            seen.append(begin.elapsed_time(end) / inner)
    return [statistics.median(seen) for seen in times]


def forward_row(library, shape, kind, code, causal, repeats):
    """Times of Keel, of its peers and of variants of Keel, and how far the outputs are apart."""
    q, k, v, out = (torch.randn(shape, device="cuda", dtype=kind) for _ in range(4))
    keel = keel_call(library, (q, k, v, out), code, causal)
    times = milliseconds([keel] + [torch_call(p, q, k, v, causal) for p in PEERS], repeats)
    expected = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return times, (out.float() - expected.float()).abs().max().item()


def backward_row(library, shape, kind, code, causal, repeats):
    q, k, v, dout = (torch.randn(shape, device="cuda", dtype=kind) for _ in range(4))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[:2]
    named = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "dout": dout}
    (keel, results), (free, _) = (keel_backward(library, named, code, causal, order) for order in range(2))
    peers = [torch_backward(p, q, k, v, dout, causal) for p in PEERS]
    times = milliseconds([keel, *peers, free], repeats)
    expected = [x.float() for x in peers[0]()]
    return times, max(((x.float() - y).norm() / y.norm()).item() for x, y in zip(results, expected))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backward", action="store_true", help="the backward pass instead of the forward one")
    parser.add_argument("--library", default="build/lib/libkeel.so", help="libkeel (%(default)s)")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--head-sizes", type=int, nargs="+", default=(64, 128, 256), metavar="D")
    parser.add_argument("--repeats", type=int, default=9, help="visits to each row (%(default)s)")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu.py: expected a GPU that PyTorch can use, found none")
    library = ctypes.CDLL(arguments.library)
    library.keel_last_error.restype = ctypes.c_char_p
    kind, code = DTYPES[arguments.dtype]
    row, flops = (backward_row, 10) if arguments.backward else (forward_row, 4)
    torch.manual_seed(0)
    ratios = []
    for d in arguments.head_sizes:
        for causal in (False, True):
            for n in (512, 1024, 2048, 4096, 8192, 16384):
                shape = (TOKENS // n, WIDTH // d, n, d)
                times, apart = row(library, shape, kind, code, causal, arguments.repeats)
                work = flops * TOKENS * WIDTH * n * (0.5 if causal else 1) / 1e9
                rates = [work / t for t in times]
                peers = min(times[1:3])
                ratios.append(peers / times[0])
                free = f"  in any order {rates[3]:4.0f} ({peers / times[3]:.2f})" if arguments.backward else ""
                print(
                    f"d {d:3} {'causal' if causal else 'full':6} n {n:5}  keel {rates[0]:4.0f}  cuDNN {rates[1]:4.0f}"
                    f"  FlashAttention-2 {rates[2]:4.0f} TFLOP/s  ratio {ratios[-1]:.2f}{free}"
                    f"  apart {apart:.1e}",
                    flush=True,
                )
    print(f"geometric mean of the ratios {math.exp(statistics.fmean(map(math.log, ratios))):.3f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
