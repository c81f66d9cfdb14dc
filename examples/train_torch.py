#!/usr/bin/env python3
"""Trains a small causal transformer to sort digits, its attention on Keel, watched by a Monitor.

    python examples/train_torch.py --steps 300

A sequence is eight digits, a separator, and the same digits sorted; the loss is on the sorted half. Prints the
loss, and of the heads the largest logit and the lowest mean entropy; ends with the share of sequences sorted
without a fault.
"""

import argparse

import keel.torch
import torch
import torch.nn.functional as F
from torch import nn

DIGITS, LENGTH, SEPARATOR = 10, 8, 10


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x):
        batch, length, size = x.shape
        # (B, N, 3, H, D) seen as three of (B, H, N, D): views, which Keel reads as they are.
        qkv = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, size // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = keel.torch.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, size))
        return x + self.mlp(self.before_mlp(x))


class Sorter(nn.Module):
    def __init__(self, size=64, heads=4, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(DIGITS + 1, size)
        self.positions = nn.Parameter(0.02 * torch.randn(2 * LENGTH, size))
        self.blocks = nn.ModuleList([Block(size, heads) for _ in range(layers)])
        self.head = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, DIGITS))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(count):
    """Tokens to read, and the digit that follows each of the last LENGTH of them."""
    digits = torch.randint(0, DIGITS, (count, LENGTH))
    ordered = digits.sort(1).values
    separator = torch.full((count, 1), SEPARATOR)
    return torch.cat([digits, separator, ordered[:, :-1]], 1), ordered


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--jsonl", help="a file for the Monitor's records")
    options = arguments.parse_args()

    torch.manual_seed(0)
    model = Sorter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def alarm(what):
        print(f"alarm: {what['what']} of {what['layer']} head {what['head']} is {what['value']:.2f}")

    with keel.torch.Monitor(model, every=25, jsonl=options.jsonl, on_alarm=alarm) as monitor:
        for step in range(options.steps):
            tokens, wanted = batch(64)
            loss = F.cross_entropy(model(tokens)[:, -LENGTH:].flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            records = monitor.step()
            if records:
                loudest = max(record["max_logit"] for record in records)
                lowest = min(record["mean_entropy"] for record in records)
                print(
                    f"step {step:4}  loss {loss.item():.4f}  largest logit {loudest:5.2f}  "
                    f"lowest entropy {lowest:.2f} nats"
                )

    with torch.no_grad():
        tokens, wanted = batch(512)
        right = (model(tokens)[:, -LENGTH:].argmax(-1) == wanted).all(1).double().mean().item()
    print(f"sorted without a fault: {100 * right:.0f} %")


if __name__ == "__main__":
    main()
