"""The same model, step and protocol as keel.cc, in torch eager: a byte on stdin, then one step, then its seconds and loss."""

import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

BATCH, CONTEXT, VOCABULARY, D, HEADS, LAYERS = 16, 256, 96, 256, 4, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (t.view(b, n, HEADS, D // HEADS).transpose(1, 2) for t in self.qkv(self.ln_1(x)).split(D, dim=2))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(b, n, D))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, D), nn.Embedding(CONTEXT, D)
        self.blocks, self.ln_f = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(D)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def loss(self, ids):
        x = self.tokens(ids) + self.positions.weight
        return F.cross_entropy((self.ln_f(self.blocks(x)) @ self.tokens.weight.T).flatten(0, 1), ids.flatten())


def main():
    torch.manual_seed(1)
    model = GPT()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    ids = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    while sys.stdin.read(1):
        start = time.perf_counter()
        loss = model.loss(ids)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        print(time.perf_counter() - start, loss.item(), flush=True)


main()
