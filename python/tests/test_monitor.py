"""keel.torch.Monitor against numbers computed from the weights."""

import doctest
import json
import math

import keel.torch
import keel.torch._monitor
import pytest
import torch
import torch.nn.functional as F


class Attention(torch.nn.Module):
    def __init__(self, function, heads=3, size=4):
        super().__init__()
        self.function, self.heads, self.size = function, heads, size
        self.qkv = torch.nn.Linear(12, 3 * heads * size)

    def split(self, x):
        return self.qkv(x).view(*x.shape[:2], 3, self.heads, self.size).permute(2, 0, 3, 1, 4)

    def forward(self, x):
        out = self.function(*self.split(x))
        return out.transpose(1, 2).flatten(2)


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.layers = torch.nn.ModuleList([Attention(function) for _ in range(2)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def by_torch(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def by_keel(q, k, v):
    return keel.torch.scaled_dot_product_attention(q, k, v, is_causal=True)


def by_attention(q, k, v):
    return keel.torch.attention(q, k, v, causal=True)


def expected(layer, inputs):
    """The five statistics of every head over several calls of a layer, in float64."""
    heads = []
    with torch.no_grad():
        for h in range(layer.heads):
            rows, logits = [], []
            for x in inputs:
                q, k, _ = (part[:, h].double() for part in layer.split(x))
                s = q @ k.transpose(-1, -2) / math.sqrt(layer.size)
                for b in range(s.shape[0]):
                    for i in range(s.shape[1]):
                        rows.append(s[b, i, : i + 1])
                        logits.extend(s[b, i, : i + 1].tolist())
            entropies = [-(r.softmax(0) * r.log_softmax(0)).sum().item() for r in rows]
            heads.append(
                {
                    "max_logit": max(logits),
                    "mean_entropy": sum(entropies) / len(entropies),
                    "min_entropy": min(entropies),
                    "saturated": sum(r.softmax(0).max().item() > 0.99 for r in rows) / len(rows),
                    "logit_std": torch.tensor(logits, dtype=torch.float64).std(correction=0).item(),
                    "rows": len(rows),
                }
            )
    return heads


@pytest.mark.parametrize("function", [by_torch, by_keel, by_attention])
def test_records_follow_their_definitions_over_the_calls_of_a_step(function):
    torch.manual_seed(0)
    model = Model(function)
    torch.nn.init.normal_(model.layers[1].qkv.weight, std=1.0)
    batches = [3 * torch.randn(2, 5, 12) for _ in range(2)]
    with keel.torch.Monitor(model) as monitor:
        outputs = [model(x) for x in batches]
        records = monitor.step()
    torch.testing.assert_close(outputs[0], model(batches[0]))
    assert len(records) == 6
    inputs = [batches, [model.layers[0](x) for x in batches]]
    for record in records:
        layer = int(record["layer"].split(".")[1])
        assert record["layer"] == f"layers.{layer}" and record["step"] == 0 and record["calls"] == 2
        for name, value in expected(model.layers[layer], inputs[layer])[record["head"]].items():
            assert record[name] == pytest.approx(value, rel=1e-4, abs=1e-5), (record["layer"], record["head"], name)


def test_training_is_unchanged_by_it():
    torch.manual_seed(0)
    model, x = Model(by_torch), torch.randn(2, 5, 12)
    model(x).square().sum().backward()
    plain = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with keel.torch.Monitor(model) as monitor:
        model(x).square().sum().backward()
        assert len(monitor.step()) == 6
    for p, gradient in zip(model.parameters(), plain):
        torch.testing.assert_close(p.grad, gradient)


def test_leaves_nothing_behind():
    model, torchs = Model(by_torch), F.scaled_dot_product_attention
    with pytest.raises(RuntimeError, match="inside"), keel.torch.Monitor(model):
        raise RuntimeError("inside")
    assert F.scaled_dot_product_attention is torchs and keel.torch._observe.observer is None
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_gathers_in_every_nth_step():
    model, x = Model(by_keel), torch.randn(1, 4, 12)
    with keel.torch.Monitor(model, every=3) as monitor:
        counts = []
        for _ in range(7):
            model(x)
            counts.append(len(monitor.step()))
    assert counts == [6, 0, 0, 6, 0, 0, 6]


def test_another_model_is_not_mixed_in():
    model, other = Model(by_keel), Model(by_keel)
    with keel.torch.Monitor(model) as monitor:
        other(torch.randn(1, 4, 12))
        assert monitor.step() == []
        with pytest.raises(RuntimeError, match="expected no other active Monitor"):
            keel.torch.Monitor(other).__enter__()
        model(torch.randn(1, 4, 12))
        assert len(monitor.step()) == 6


def test_writes_json_lines_and_tensorboard_scalars(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = Model(by_keel)
    with keel.torch.Monitor(model, jsonl=tmp_path / "log.jsonl", tensorboard=tmp_path / "board") as monitor:
        kept = []
        for _ in range(2):
            model(torch.randn(1, 4, 12))
            kept += monitor.step()
    assert [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()] == kept
    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    scalars = board.Scalars("attention/layers.1/head2/max_logit")
    wanted = [r["max_logit"] for r in kept if r["layer"] == "layers.1" and r["head"] == 2]
    assert [s.value for s in scalars] == pytest.approx(wanted) and [s.step for s in scalars] == [0, 1]
    assert len(board.Tags()["scalars"]) == 6 * 5


def test_calls_back_when_a_threshold_is_passed():
    model, alarms = Model(by_keel), []
    with torch.no_grad():
        model.layers[0].qkv.weight.mul_(100)
    with keel.torch.Monitor(model, on_alarm=alarms.append, entropy_floor=0.2) as monitor:
        model(torch.randn(1, 6, 12))
        records = monitor.step()
    loud = {(r["layer"], r["head"]) for r in records if r["max_logit"] > 100}
    low = {(r["layer"], r["head"]) for r in records if r["mean_entropy"] < 0.2}
    assert loud and low
    assert {(a["layer"], a["head"]) for a in alarms if a["what"] == "max_logit"} == loud
    assert {(a["layer"], a["head"]) for a in alarms if a["what"] == "mean_entropy"} == low
    assert all(a["value"] > a["limit"] == 100 for a in alarms if a["what"] == "max_logit")


def test_nan_raises_the_alarm():
    model, alarms = Model(by_keel), []
    with torch.no_grad():
        model.layers[0].qkv.weight[0, 0] = float("nan")
    with keel.torch.Monitor(model, on_alarm=alarms.append) as monitor:
        model(torch.randn(1, 6, 12))
        records = monitor.step()
    assert math.isnan(records[0]["max_logit"]) and math.isnan(records[0]["logit_std"])
    assert ("layers.0", 0, "max_logit") in {(a["layer"], a["head"], a["what"]) for a in alarms}


def test_rows_that_see_nothing_do_not_count():
    model = Model(lambda q, k, v: keel.torch.attention(q, k, v, q_lengths=[3, 0], k_lengths=[3, 4]))
    with keel.torch.Monitor(model) as monitor:
        model(torch.randn(2, 5, 12))
        records = monitor.step()
    assert all(r["rows"] == 3 and math.isfinite(r["logit_std"]) and r["min_entropy"] < 2 for r in records)
    assert len(records) == 6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mask_that_is_the_lowest_float_raises_no_alarm(dtype):
    """Left padding of two tokens, as Hugging Face's models add it to the scores."""
    seen = torch.ones(6, 6, dtype=torch.bool)
    seen[:, :2] = seen[:2, :] = False
    lowest = torch.zeros(6, 6, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
    sinks = torch.zeros(3)
    records = {}
    for name, options in {"bias": {"bias": lowest}, "mask": {"mask": seen}}.items():
        torch.manual_seed(0)
        model, alarms = Model(lambda q, k, v, o=options: keel.torch.attention(q, k, v, sinks=sinks, **o)), []
        with keel.torch.Monitor(model.to(dtype), on_alarm=alarms.append) as monitor:
            model(torch.randn(2, 6, 12, dtype=dtype))
            records[name] = monitor.step()
        assert not alarms
    for by_bias, by_mask in zip(records["bias"][:3], records["mask"][:3]):  # the layer whose input is the same
        assert (by_bias["rows"], by_mask["rows"]) == (12, 8)
        for field in ("max_logit", "logit_std"):
            assert by_bias[field] == pytest.approx(by_mask[field], rel=1e-4), field
    assert all(math.isfinite(value) for r in records["bias"] for value in r.values() if isinstance(value, float))


def test_logit_std_counts_no_key_that_a_finite_bias_masks():
    """Rows that see different numbers of keys, by a mask and by a bias that says the same."""
    seen = torch.ones(6, 6, dtype=torch.bool).tril()
    lowest = torch.zeros(6, 6).masked_fill(~seen, torch.finfo(torch.float32).min)
    stds = []
    for options in ({"bias": lowest}, {"mask": seen}):
        torch.manual_seed(0)
        model = Model(lambda q, k, v, o=options: keel.torch.attention(q, k, v, **o))
        with keel.torch.Monitor(model) as monitor:
            model(3 * torch.randn(2, 6, 12))
            stds.append([record["logit_std"] for record in monitor.step()])
    assert stds[0] == pytest.approx(stds[1], rel=1e-5)


def test_modules_of_torch_and_transformers_are_seen():
    encoder = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, enable_nested_tensor=False
    )
    for mode in (encoder.train(), encoder.eval()):
        with torch.no_grad(), keel.torch.Monitor(mode) as monitor:
            encoder(torch.randn(2, 5, 16))
            assert {r["layer"] for r in monitor.step()} == {"layers.0.self_attn", "layers.1.self_attn"}
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=16, n_layer=2, n_head=2, n_embd=8, n_positions=16)
    config._attn_implementation = "sdpa"
    gpt = transformers.GPT2LMHeadModel(config)
    with keel.torch.Monitor(gpt) as monitor:
        gpt(torch.arange(6)[None])
        assert {r["layer"] for r in monitor.step()} == {"transformer.h.0.attn", "transformer.h.1.attn"}


def test_refuses_what_is_no_model():
    with pytest.raises(TypeError, match=r"\[Monitor\] model: expected a torch.nn.Module, got int"):
        keel.torch.Monitor(3)
    with pytest.raises(ValueError, match=r"\[Monitor\] every: expected at least 1, got 0"):
        keel.torch.Monitor(Model(by_keel), every=0)


def test_examples_of_the_docstrings_hold():
    results = doctest.testmod(keel.torch._monitor)
    assert results.attempted and not results.failed
