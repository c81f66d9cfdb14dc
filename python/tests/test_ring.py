"""Attention over process groups: real processes, started by torchrun."""

import pathlib
import subprocess
import sys

import keel.torch
import pytest
import torch

WORKER = pathlib.Path(__file__).with_name("ring_worker.py")


def torchrun(case, processes=2, seconds=240, how=()):
    command = [
        sys.executable,
        "-B",
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={processes}",
        WORKER,
        case,
        *how,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)


def run(case, processes=2, how=()):
    ended = torchrun(case, processes, how=how)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("processes", [2, 3])
def test_outputs_and_gradients_are_those_of_one_process(processes):
    run("gradients", processes)


def test_dropout_is_that_of_one_process_with_the_seed_of_rank_0():
    run("dropout")


def test_a_wrong_argument_of_one_rank_is_raised_by_all():
    run("refuse")


def test_autocast_computes_in_its_dtype():
    run("autocast")


def test_second_derivatives_and_the_gradient_of_alibi_are_refused():
    run("second_derivatives,slopes")


TENSORS = "gradients positions halves dropout messages refuse modes autocast,second_derivatives,slopes".split()


@pytest.mark.parametrize("case", TENSORS)
def test_the_ring_of_the_gpus_on_tensors_of_the_cpu(case):
    run(case, 2, ["tensors"])


def test_the_ring_of_the_gpus_with_three_ranks():
    run("gradients", 3, ["tensors"])
    run("positions", 3, ["tensors"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("backend, processes", [("nccl", 1), ("gloo", 2)])  # NCCL refuses two processes on one GPU
@pytest.mark.parametrize("case", ["gradients", "positions", "halves", "dropout", "messages", "modes"])
def test_the_ring_on_a_gpu(backend, processes, case, monkeypatch):
    monkeypatch.setenv("KEEL_TEST_BACKEND", backend)
    run(case, processes, ["cuda"])


def test_masks_by_position_lengths_and_packed_entries():
    run("positions")


def test_context_parallel_takes_a_mask_beside_is_causal():
    run("mask_beside_causal")


def test_context_parallel_stays_above_replace_and_monitors():
    run("on_top")


def test_a_gpt_trains_as_in_one_process():
    print(run("gpt"))


def test_a_llama_trains_as_in_one_process():
    pytest.importorskip("transformers")
    print(run("llama"))


def test_a_killed_rank_makes_the_others_raise():
    ended = torchrun("kill", seconds=60)
    assert ended.returncode != 0
    assert "raised after" in ended.stdout, ended.stdout + ended.stderr
    assert "lost rank 1" in ended.stdout


def test_shards_have_every_row_once():
    for layout in ("zigzag", "contiguous"):
        rows = [i for rank in range(5) for part in keel.torch.shard(23, 5, rank, layout) for i in part]
        assert sorted(rows) == list(range(23))
    with pytest.raises(ValueError, match="layout: expected 'zigzag' or 'contiguous', got 'spiral'"):
        keel.torch.shard(23, 5, 0, "spiral")


def test_without_a_process_group_is_refused():
    q = torch.zeros(1, 1, 2, 4)
    with pytest.raises(RuntimeError, match=r"\[ring_attention\] group: expected torch.distributed to be initialised"):
        keel.torch.ring_attention(q, q, q)
