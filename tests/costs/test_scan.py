"""What the scan of Mamba-2 and delta rules take, against times that others published."""

import pytest
from runcast.simulator.costs.kernels import Kernels
from runcast.simulator.models.kernels import input_gradient
from runcast.simulator.models.linear_attention import chunked
from runcast.simulator.models.mamba2 import scan
from runcast.simulator.models.mixers import Mamba2
from runcast.simulator.models.shard import Shard
from runcast.simulator.profile import load_profile

GRANITE = Mamba2(128, 64, 128, 1, 4, 256, layers=frozenset())
TOKENS_PER_S = {  # one H100, forward, kernels of mamba_ssm ("Original"): vllm-project/vllm, pull request 27299
    4096: 1.206e7, 8192: 1.262e7, 16384: 1.292e7, 32768: 1.180e7, 65536: 1.107e7, 131072: 1.070e7, 262144: 1.082e7,
}  # fmt: skip


@pytest.mark.parametrize("tokens", TOKENS_PER_S)
def test_a_forward_takes_what_was_measured_to_a_quarter(tokens):
    """No number of the profile was fitted to a scan. Below 4,096 tokens launches dominate, which steps count apart.

    The profile is that of kernels alone: in training GEMMs are slower, by a rate that is fitted to steps.
    """
    profile = load_profile("h100-sxm", fitted=False)
    price = Kernels(profile, profile.limits).estimate
    ours = sum(float(price(k.kind, k.shape, k.bytes, k.dtype).seconds[0]) for k in scan(GRANITE, Shard(1, tokens)))
    assert ours == pytest.approx(tokens / TOKENS_PER_S[tokens], rel=1 / 4)


@pytest.mark.parametrize(("backward", "seconds", "times"), [(False, 0.383e-3, 1.83), (True, 0.731e-3, 1.42)])
def test_a_delta_rule_of_few_heads_takes_longer_than_its_products(backward, seconds, times):
    """flash-linear-attention on A100: two sequences, four heads of 64 (tile-ai/TileOPs, pull request 633).

    The state goes from chunk to chunk, which keeps eight processors busy. `architecture.factor` has this as its error.
    """
    profile = load_profile("a100-sxm", fitted=False)
    price = Kernels(profile, profile.limits).estimate
    kernels = chunked(Shard(2, 16384), heads=4, key_dim=64, value_dim=64)
    if backward:
        kernels = (*map(input_gradient, kernels), *(kernel for kernel in kernels if kernel.again))
    ours = sum(float(price(k.kind, k.shape, k.bytes, k.dtype).seconds[0]) for k in kernels)
    assert seconds / ours == pytest.approx(times, abs=0.02)
