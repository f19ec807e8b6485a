"""Sizes that no kernel is made for are named with what to pad them to; all others are not."""

from dataclasses import replace

import pytest
from runcast.simulator.engine import simulate
from runcast.simulator.models import preset
from runcast.simulator.models.awkward import awkward_shapes
from runcast.simulator.models.model import ModelSpec
from runcast.simulator.models.shard import Shard
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

NEAT = ModelSpec("neat", 14336, 2, 112, 112, 128, 4 * 14336, 51200)


def texts(spec, tp=4, multiple=32, **shard):
    return [one.text for one in awkward_shapes(spec, Shard(1, 2048, tp=tp, etp=tp, **shard), multiple)]


@pytest.mark.parametrize(("changes", "tp", "expected"), [
    ({}, 4, []),
    ({"hidden_size": 14400, "num_attention_heads": 80, "head_dim": 180}, 4, ["head size 180: pad to 192"]),
    ({"head_dim": 80}, 1, ["head size 80: pad to 96"]),
    ({"vocab_size": 64002}, 2, ["vocabulary per rank 32,001: pad to 32,064"]),
    ({"vocab_size": 50257}, 1, ["vocabulary per rank 50,257: pad to 50,304"]),
    ({"vocab_size": 50257}, 8, ["vocabulary per rank 6,283: pad to 6,336"]),
    ({"vocab_size": 50304}, 8, []),  # 6,288 start at whole 32 bytes
    ({"intermediate_size": 10944}, 8, ["feed-forward width per rank 1,368: pad to 1,408"]),
    ({"hidden_size": 2050}, 2, ["hidden size 2,050: pad to 2,112"]),
])  # fmt: skip
def test_awkward_sizes_of_one_rank(changes, tp, expected):
    assert texts(replace(NEAT, **changes), tp) == expected


def test_a_device_whose_kernels_take_any_head_of_whole_vectors():
    assert texts(replace(NEAT, head_dim=80), multiple=8) == []


def test_without_fused_attention_heads_are_operands_of_products():
    """80 elements are 160 bytes, five times 32; 180 are 360, eleven and a quarter."""
    assert texts(replace(NEAT, head_dim=80), unfused=True) == []
    assert texts(replace(NEAT, head_dim=180), unfused=True) == ["head size 180: pad to 192"]


def test_latent_attention_has_heads_of_two_sizes():
    spec = preset("deepseek-v3")
    odd = replace(spec, mla=replace(spec.mla, qk_nope_head_dim=120, v_head_dim=112))
    found = awkward_shapes(odd, Shard(1, 4096), 32)
    assert [(one.text, one.key, one.value) for one in found] == [
        ("head size of queries and keys 184: pad to 192", "qk_nope_head_dim", 128),
        ("head size of values 112: pad to 128", "v_head_dim", 128),
    ]
    assert texts(spec, 8) == []


@pytest.mark.parametrize(("width", "expected"), [(1536, []), (1000, ["experts' width per rank 500: pad to 512"])])
def test_experts_are_cut_by_their_own_tensor_parallelism(width, expected):
    spec = preset("qwen3-30b-a3b")
    assert texts(replace(spec, moe=replace(spec.moe, moe_intermediate_size=width)), 2) == expected


def test_eight_bits_want_twice_as_many_columns():
    odd = replace(NEAT, intermediate_size=4 * 1008)  # 1,008 bytes on a rank: a multiple of 16, not of 32
    assert (texts(odd), texts(odd, linear="fp8")) == ([], ["feed-forward width per rank 1,008: pad to 1,024"])


def seconds_per_flop(width, heads, cluster):
    """Of four layers on TP4, but for a constant."""
    sizes = {
        "hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": heads, "head_dim": width // heads,
        "num_key_value_heads": heads, "num_hidden_layers": 4, "vocab_size": 51200,
    }  # fmt: skip
    step = ResolvedTrain(check_train({
        "kind": "train_step", "cluster": cluster, "nodes": 1, "model": {"preset": "gpt3-175b", "overrides": sizes},
        "parallel": {"tp": 4}, "batch": {"global": 2, "seq_len": 2048},
    }))  # fmt: skip
    return simulate(step.program, step.costs).makespan_s / width**2


@pytest.mark.parametrize(("cluster", "least"), [("dgx-a100", 1.004), ("dgx-h100", 1.008)])
def test_a_model_14400_wide_is_not_predicted_like_one_14336_wide(cluster, least):
    """3,600 columns are 28.1 tiles of 128, and heads of 180 are padded to 192; 28 and 128 are whole."""
    assert seconds_per_flop(14400, 80, cluster) >= least * seconds_per_flop(14336, 112, cluster)
