#!/usr/bin/env python3
"""parity.py PROGRAM VENV: the same weights, by way of .safetensors files, give the same output, loss and gradients in torch
and in Keel, and ten steps of Adam keep them together. PROGRAM is nn_parity. Needs torch and safetensors; without them here,
the Python of VENV is tried, and without them there this is skipped (exit status 77).
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError:
    python = Path(sys.argv[2]) / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != Path(sys.argv[2]).resolve():
        os.execv(python, [str(python), "-B", *sys.argv])
    print(f"skipped: neither {sys.executable} nor {python} has torch and safetensors")
    sys.exit(77)

from torch import nn
from torch.nn import functional as F

# Of a tensor's largest element.
LIMIT, LIMIT_AFTER_ADAM = 1e-5, 1e-4
MHA_PARTS = ("W_Q", "W_K", "W_V")


class Mha:
    """torch.nn.MultiheadAttention, whose W_Q, W_K and W_V are one matrix."""

    def __init__(self, causal=False, cross=False, lengths=None, d=32, heads=4, batch=3, n=17, n_k=23):
        self.module = nn.MultiheadAttention(d, heads, batch_first=True)
        nn.init.normal_(self.module.in_proj_bias, std=0.1)
        nn.init.normal_(self.module.out_proj.bias, std=0.1)
        self.metadata = {"module": "mha", "d_model": d, "heads": heads, "causal": "yes" if causal else "no"}
        self.inputs = {"x": torch.randn(batch, n, d)}
        if cross:
            self.inputs["y"] = torch.randn(batch, n_k, d)
        self.mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1) if causal else None
        self.padding, self.lengths = None, lengths
        if lengths is not None:
            keys = n_k if cross else n
            self.padding = torch.arange(keys)[None, :] >= torch.tensor(lengths)[:, None]
        self.seed = torch.randn(batch, n, d)

    def output(self):
        y = self.inputs.get("y", self.inputs["x"])
        return self.module(self.inputs["x"], y, y, attn_mask=self.mask, key_padding_mask=self.padding,
                           need_weights=False)[0]

    def names(self, get):
        """Keel's names for what `get` gives of each parameter."""
        named = {"W_O.weight": get(self.module.out_proj.weight), "W_O.bias": get(self.module.out_proj.bias)}
        for kind in ("weight", "bias"):
            parts = get(getattr(self.module, f"in_proj_{kind}")).chunk(3)
            named.update({f"{part}.{kind}": value for part, value in zip(MHA_PARTS, parts)})
        return named


class Recurrent:
    def __init__(self, kind, bidirectional, d=12, hidden=20, batch=3, n=15):
        self.kind = kind
        self.module = getattr(nn, kind)(d, hidden, batch_first=True, bidirectional=bidirectional)
        self.metadata = {"module": kind.lower(), "d_in": d, "d_hidden": hidden}
        if bidirectional:
            self.metadata["bidirectional"] = "yes"
        directions = 2 if bidirectional else 1
        self.inputs = {"x": torch.randn(batch, n, d), "h": torch.randn(directions, batch, hidden)}
        if kind == "LSTM":
            self.inputs["c"] = torch.randn(directions, batch, hidden)
        self.seed = torch.randn(batch, n, directions * hidden)

    def output(self):
        state = self.inputs["h"] if self.kind == "GRU" else (self.inputs["h"], self.inputs["c"])
        return self.module(self.inputs["x"], state)[0]

    def names(self, get):
        return {name: get(p) for name, p in self.module.named_parameters()}


class Additive:
    """Bahdanau's attention, written out: every pair's tanh in memory at once."""

    def __init__(self, lengths=None, d_q=9, d_k=7, d_a=13, batch=2, n_q=11, n_k=14):
        self.module = nn.ParameterDict({"W_s": torch.randn(d_a, d_q) * 0.4, "W_h": torch.randn(d_a, d_k) * 0.4,
                                        "v": torch.randn(d_a)})
        self.metadata = {"module": "additive", "d_q": d_q, "d_k": d_k, "d_a": d_a, "causal": "no"}
        self.inputs = {"x": torch.randn(batch, n_q, d_q), "y": torch.randn(batch, n_k, d_k),
                       "v": torch.randn(batch, n_k, 6)}
        self.lengths = lengths
        self.seed = torch.randn(batch, n_q, 6)

    def output(self):
        w = self.module
        s = torch.tanh((self.inputs["x"] @ w["W_s"].T)[:, :, None] + (self.inputs["y"] @ w["W_h"].T)[:, None]) @ w["v"]
        if self.lengths is not None:
            hidden = torch.arange(s.shape[-1])[None, :] >= torch.tensor(self.lengths)[:, None]
            s = s.masked_fill(hidden[:, None], float("-inf"))
        return torch.softmax(s, -1) @ self.inputs["v"]

    def names(self, get):
        return {f"score.{name}": get(p) for name, p in self.module.items()}


class Gpt:
    def __init__(self, vocabulary=19, context=24, d=32, heads=4, layers=2, batch=3):
        self.heads, self.layers = heads, layers
        weight = lambda *shape: torch.randn(*shape) * 0.1
        parameters = {"tokens.weight": weight(vocabulary, d), "positions.weight": weight(context, d),
                      "ln_f.weight": 1 + weight(d), "ln_f.bias": weight(d)}
        for i in range(layers):
            for ln in ("ln_1", "ln_2"):
                parameters |= {f"h.{i}.{ln}.weight": 1 + weight(d), f"h.{i}.{ln}.bias": weight(d)}
            for name, out, into in [*((f"attn.{m}", d, d) for m in (*MHA_PARTS, "W_O")), ("W_1", 4 * d, d),
                                    ("W_2", d, 4 * d)]:
                parameters |= {f"h.{i}.{name}.weight": weight(out, into), f"h.{i}.{name}.bias": weight(out)}
        self.parameters = {name: nn.Parameter(p) for name, p in parameters.items()}
        self.module = nn.ParameterList(self.parameters.values())
        self.metadata = {"module": "gpt", "vocabulary": vocabulary, "context": context, "d_model": d, "heads": heads,
                         "layers": layers}
        labels = torch.randint(vocabulary, (batch, context))
        labels[0, :5] = -100
        self.inputs = {"ids": torch.randint(vocabulary, (batch, context)), "labels": labels}

    def output(self):
        p = self.parameters
        linear = lambda x, name: F.linear(x, p[name + ".weight"], p[name + ".bias"])
        norm = lambda x, name: F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"])
        x = p["tokens.weight"][self.inputs["ids"]] + p["positions.weight"]
        for i in range(self.layers):
            h = norm(x, f"h.{i}.ln_1")
            q, k, v = (linear(h, f"h.{i}.attn.{m}").unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in MHA_PARTS)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + linear(o.transpose(1, 2).flatten(2), f"h.{i}.attn.W_O")
            h = F.gelu(linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.W_1"), approximate="tanh")
            x = x + linear(h, f"h.{i}.W_2")
        return norm(x, "ln_f") @ p["tokens.weight"].T

    def names(self, get):
        return {name: get(p) for name, p in self.parameters.items()}


def loss_of(case, output):
    if "labels" in case.inputs:
        return F.cross_entropy(output.flatten(0, 1), case.inputs["labels"].flatten())
    return (output * case.seed).sum()


def torch_results(case):
    for x in case.inputs.values():
        if x.is_floating_point():
            x.requires_grad_()
    output = case.output()
    loss = loss_of(case, output)
    loss.backward()
    results = {"output": output, "loss": loss}
    results |= {f"grad.{name}": g for name, g in case.names(lambda p: p.grad.clone()).items()}
    results |= {f"grad.input.{n}": x.grad.clone() for n, x in case.inputs.items() if x.grad is not None}
    adam = torch.optim.Adam(case.module.parameters(), lr=1e-3)
    losses = []
    for _ in range(10):
        adam.zero_grad()
        loss = loss_of(case, case.output())
        loss.backward()
        adam.step()
        losses.append(loss.item())
    results["losses"] = torch.tensor(losses)
    results |= {f"after.{name}": p for name, p in case.names(lambda p: p.detach().clone()).items()}
    return {name: value.detach() for name, value in results.items()}


def keel_results(case, program):
    tensors = {f"model.{name}": p for name, p in case.names(lambda p: p.detach().clone()).items()}
    tensors |= {f"input.{name}": x.detach() for name, x in case.inputs.items()}
    if hasattr(case, "seed"):
        tensors["input.seed"] = case.seed
    if getattr(case, "lengths", None) is not None:
        tensors["input.k_lengths"] = torch.tensor(case.lengths)
    with tempfile.TemporaryDirectory() as folder:
        source, result = f"{folder}/in.safetensors", f"{folder}/out.safetensors"
        save_file({n: t.contiguous() for n, t in tensors.items()}, source, {k: str(v) for k, v in case.metadata.items()})
        subprocess.run([program, source, result], check=True)
        return load_file(result)


def offences(name, ours, theirs):
    """What differs by more than it may. A shift of all scores of a row changes nothing, so the gradient by the bias of the
    keys is 0 but for rounding, and Adam walks it at random: it is measured against the gradient by the queries' bias, and
    its walk is not compared."""
    worst = 0.0
    for key, expected in theirs.items():
        keys_bias = key.endswith("W_K.bias")
        if keys_bias and key.startswith("after."):
            continue
        scale = theirs[key.replace("W_K", "W_Q")] if keys_bias else expected
        got = ours[key].reshape(expected.shape)
        error = ((got - expected).abs().max() / scale.abs().max()).item()
        limit = LIMIT_AFTER_ADAM if key.startswith(("after.", "losses")) else LIMIT
        worst = max(worst, error / limit)
        if not error <= limit:
            yield f"{name}: {key} differs by {error:.1e} of its largest element, more than {limit:.0e}"
    if set(ours) != set(theirs):
        yield f"{name}: other tensors, {set(ours) ^ set(theirs)}"
    print(f"{name}: {len(theirs)} tensors, the worst at {worst:.0%} of its limit")


def main(program):
    torch.manual_seed(2)
    cases = {
        "MultiHeadAttention self": Mha(),
        "MultiHeadAttention causal": Mha(causal=True),
        "MultiHeadAttention cross": Mha(cross=True),
        "MultiHeadAttention padded": Mha(lengths=[17, 9, 1]),
        "MultiHeadAttention cross padded": Mha(cross=True, lengths=[5, 23, 14]),
        "GRU": Recurrent("GRU", False),
        "GRU bidirectional": Recurrent("GRU", True),
        "LSTM": Recurrent("LSTM", False),
        "LSTM bidirectional": Recurrent("LSTM", True),
        "additive attention": Additive(),
        "additive attention padded": Additive(lengths=[14, 4]),
        "GPT": Gpt(),
    }
    found = []
    for name, case in cases.items():
        ours = keel_results(case, program)  # before torch trains the weights
        found += offences(name, ours, torch_results(case))
    print("\n".join(found) if found else f"all as in torch {torch.__version__}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
