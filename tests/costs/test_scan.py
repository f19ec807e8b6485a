"""What the scan of Mamba-2 takes, against times that others published."""

import pytest
from runcast.simulator.costs.kernels import Kernels
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
