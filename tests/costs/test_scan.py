"""What the scan of Mamba-2 and delta rules take, against times that others published."""

import pytest
from runcast.simulator import simulate
from runcast.simulator.costs.kernels import Kernels
from runcast.simulator.models.kernels import input_gradient
from runcast.simulator.models.linear_attention import chunked
from runcast.simulator.models.mamba2 import scan
from runcast.simulator.models.mixers import Mamba2
from runcast.simulator.models.shard import Shard
from runcast.simulator.profile import load_profile

MAMBA = {
    "kind": "train_step", "level": "coarse", "model": {"preset": "mamba2-1.3b"},
    "batch": {"global": 32, "micro": 4, "seq_len": 4096},
}  # fmt: skip
GRANITE = Mamba2(128, 64, 128, 1, 4, 256, layers=frozenset())
A100_TO = {
    ("h200-hgx", 1): 239.2 / 102.5,
    ("gb200-nvl72", 2): 360.4 / 102.5,
}  # Mamba-2 1.3B: state-spaces/mamba, issue 904
TOKENS_PER_S = {  # one H100, forward, kernels of mamba_ssm ("Original"): vllm-project/vllm, pull request 27299
    4096: 1.206e7, 8192: 1.262e7, 16384: 1.292e7, 32768: 1.180e7, 65536: 1.107e7, 131072: 1.070e7, 262144: 1.082e7,
}  # fmt: skip


@pytest.mark.parametrize("tokens", TOKENS_PER_S)
def test_a_forward_takes_what_was_measured_to_a_sixth(tokens):
    """The rate of an SM is fitted to these and to a delta rule. Below 4,096 tokens launches dominate: steps count them.

    The profile is that of kernels alone: in training GEMMs are slower, by a rate that is fitted to steps.
    """
    ours = seconds("h100-sxm", scan(GRANITE, Shard(1, tokens)))

    assert ours == pytest.approx(tokens / TOKENS_PER_S[tokens], rel=1 / 6)


@pytest.mark.parametrize(("sequences", "measured"), [(8, 0.866e-3), (16, 1.710e-3)])
def test_a_delta_rule_of_many_chunks_takes_what_was_measured_to_a_tenth(sequences, measured):
    """flash-linear-attention on GB200: sequences of 8,192 tokens, eight heads (flashinfer-ai/flashinfer, 3902)."""
    ours = seconds("gb200", chunked(Shard(sequences, 8192), heads=8, key_dim=128, value_dim=128))

    assert ours == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(("cluster", "nodes"), A100_TO)
def test_mamba_2_gains_on_newer_gpus_what_was_measured_to_a_sixth(cluster, nodes):
    """A whole step. Of the GEMMs in its scan neither tensor cores nor memory decide: without that GB200 gains 5.2."""
    a100, newer = (
        simulate(MAMBA | {"cluster": name, "nodes": many}).report.step_time_s
        for name, many in (("dgx-a100", 1), (cluster, nodes))
    )

    assert a100 / newer == pytest.approx(A100_TO[cluster, nodes], rel=1 / 6)


def seconds(profile, kernels):
    """Seconds of kernels alone, one after another."""
    numbers = load_profile(profile, fitted=False)
    price = Kernels(numbers, numbers.limits).estimate
    return sum(float(price(k.kind, k.shape, k.bytes, k.dtype).seconds[0]) for k in kernels)


@pytest.mark.parametrize(("backward", "measured", "times"), [(False, 0.383e-3, 1.83), (True, 0.731e-3, 1.42)])
def test_a_delta_rule_of_few_heads_takes_longer_than_its_products(backward, measured, times):
    """flash-linear-attention on A100: two sequences, four heads of 64 (tile-ai/TileOPs, pull request 633).

    The state goes from chunk to chunk, which keeps eight processors busy. `architecture.factor` has this as its error.
    """
    kernels = chunked(Shard(2, 16384), heads=4, key_dim=64, value_dim=64)
    if backward:
        kernels = (*map(input_gradient, kernels), *(kernel for kernel in kernels if kernel.again))

    assert measured / seconds("a100-sxm", kernels) == pytest.approx(times, abs=0.02)
