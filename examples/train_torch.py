#!/usr/bin/env python3
"""Trains a causal transformer on Keel's attention, watched by a Monitor.

    python examples/train_torch.py --steps 300
    python examples/train_torch.py --device cuda --steps 300

On the CPU a small one learns to sort: a sequence is eight digits, a separator, and the same digits sorted; the loss is
on the sorted half. Prints the loss, and of the heads the largest logit and the lowest mean entropy; ends with the share
of sequences sorted without a fault.

On a GPU one of GPT-2's shape (124M parameters, bf16 autocast) learns a text made of phrases, twice side by side from
the same start on the same batches: once with Keel's attention and once with torch's own (cuDNN where it serves). Prints
both losses and both speeds, and ends with how far the curves are apart.
"""

import argparse
import contextlib
import statistics
import time

import keel.torch
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

DIGITS, LENGTH, SEPARATOR = 10, 8, 10
VOCABULARY, PHRASES, PHRASE = 50304, 2048, 16


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.attend = keel.torch.scaled_dot_product_attention
        self.before_attention, self.before_mlp = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x):
        batch, length, size = x.shape
        # (B, N, 3, H, D) seen as three of (B, H, N, D): views, which Keel reads as they are.
        qkv = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, size // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = self.attend(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, size))
        return x + self.mlp(self.before_mlp(x))


class Transformer(nn.Module):
    def __init__(self, vocabulary, length, size, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, size)
        self.positions = nn.Parameter(0.02 * torch.randn(length, size))
        self.blocks = nn.ModuleList([Block(size, heads) for _ in range(layers)])
        self.head = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, vocabulary))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def health(records):
    """The two heads to look at, if any were."""
    if not records:
        return ""
    loudest = max(record["max_logit"] for record in records)
    lowest = min(record["mean_entropy"] for record in records)
    return f"largest logit {loudest:5.2f}  lowest entropy {lowest:.2f} nats"


def alarm(what):
    print(f"alarm: {what['what']} of {what['layer']} head {what['head']} is {what['value']:.2f}")


def digits_batch(count):
    """Tokens to read, and the digit that follows each of the last LENGTH of them."""
    digits = torch.randint(0, DIGITS, (count, LENGTH))
    ordered = digits.sort(1).values
    separator = torch.full((count, 1), SEPARATOR)
    return torch.cat([digits, separator, ordered[:, :-1]], 1), ordered


def sort_digits(options):
    torch.manual_seed(0)
    model = Transformer(DIGITS + 1, 2 * LENGTH, size=64, heads=4, layers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    every = options.every or 25
    with keel.torch.Monitor(model, every=every, jsonl=options.jsonl, on_alarm=alarm) as monitor:
        for step in range(options.steps):
            tokens, wanted = digits_batch(64)
            loss = F.cross_entropy(model(tokens)[:, -LENGTH:].flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            records = monitor.step()
            if records:
                print(f"step {step:4}  loss {loss.item():.4f}  {health(records)}")

    with torch.no_grad():
        tokens, wanted = digits_batch(512)
        right = (model(tokens)[:, -LENGTH:].argmax(-1) == wanted).all(1).double().mean().item()
    print(f"sorted without a fault: {100 * right:.0f} %")


def text_batch(step, count, length):
    """Tokens of random phrases one after another, and the token that follows each. The same for the same step."""
    generator = torch.Generator("cuda").manual_seed(1)
    phrases = torch.randint(0, VOCABULARY, (PHRASES, PHRASE), generator=generator, device="cuda")
    generator.manual_seed(1000 + step)
    chosen = torch.randint(0, PHRASES, (count, length // PHRASE + 1), generator=generator, device="cuda")
    text = phrases[chosen].flatten(1)
    return text[:, :length], text[:, 1 : length + 1]


class Arm:
    """One of the two models that are trained side by side."""

    def __init__(self, attend, options):
        torch.manual_seed(0)
        self.model = Transformer(VOCABULARY, options.length, size=768, heads=12, layers=options.layers).cuda()
        self.model.head[1].weight = self.model.tokens.weight
        nn.init.normal_(self.model.tokens.weight, std=0.02)
        for block in self.model.blocks:
            block.attend = attend
        self.forward = torch.compile(self.model) if options.compile else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
        self.options, self.losses, self.speeds = options, [], []

    def train(self, first, count, after=lambda: None):
        """`count` steps, and how many tokens per second they took in; after() ends each of them."""
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for step in range(first, first + count):
            tokens, wanted = text_batch(step, self.options.batch, self.options.length)
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(self.forward(tokens).flatten(0, 1), wanted.flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.detach())
            after()
        torch.cuda.synchronize()
        self.speeds.append(count * self.options.batch * self.options.length / (time.perf_counter() - begin))


def learn_text(options):
    ours = Arm(keel.torch.scaled_dot_product_attention, options)
    theirs = Arm(F.scaled_dot_product_attention, options)
    parameters = sum(p.numel() for p in ours.model.parameters())
    print(f"{parameters / 1e6:.0f}M parameters, {options.batch} × {options.length} tokens per step")
    watch = keel.torch.Monitor(ours.model, every=options.every or 10, jsonl=options.jsonl, on_alarm=alarm)
    stretch = min(10, options.steps)
    latest = []

    def after():
        latest.append(watch.step())  # whose records are looked at later: that would wait for the GPU

    for first in range(0, options.steps, stretch):
        latest.clear()
        with contextlib.nullcontext() if options.unwatched else watch:
            ours.train(first, stretch, (lambda: None) if options.unwatched else after)
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
            theirs.train(first, stretch)
        losses = [statistics.fmean(torch.stack(arm.losses[-stretch:]).tolist()) for arm in (ours, theirs)]
        print(
            f"step {first + stretch:4}  loss {losses[0]:.4f}, torch's {losses[1]:.4f}  "
            f"{ours.speeds[-1] / 1e3:.0f}k tokens/s, torch's {theirs.speeds[-1] / 1e3:.0f}k  "
            + health([record for records in latest for record in records]),
            flush=True,
        )
    a, b = (torch.stack(arm.losses).double().cpu() for arm in (ours, theirs))
    speeds = [statistics.median(arm.speeds[1:] or arm.speeds) for arm in (ours, theirs)]
    print(
        f"losses apart by {(a - b).abs().mean():.4f} on average ({(a - b).mean():+.4f} with their sign), where a curve "
        f"moves by {a.diff().abs().mean():.4f} a step; tokens/s relative to torch's {speeds[0] / speeds[1]:.3f}"
    )


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--jsonl", help="a file for the Monitor's records")
    arguments.add_argument("--every", type=int, help="the Monitor gathers every n-th step (25; 10 on a GPU)")
    gpu = arguments.add_argument_group("on a GPU")
    gpu.add_argument("--batch", type=int, default=16)
    gpu.add_argument("--length", type=int, default=1024, help="tokens per sequence (%(default)s)")
    gpu.add_argument("--layers", type=int, default=12)
    gpu.add_argument("--compile", action="store_true", help="by torch.compile, whose graphs the Monitor does not see")
    gpu.add_argument("--unwatched", action="store_true", help="without the Monitor")
    options = arguments.parse_args()
    if options.device == "cpu":
        sort_digits(options)
    elif not torch.cuda.is_available():
        arguments.error("--device: expected a GPU that torch can use, got none")
    else:
        learn_text(options)


if __name__ == "__main__":
    main()
