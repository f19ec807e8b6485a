"""Attention to picked tokens takes as long as was published, and never less than dense attention."""

import pytest
from runcast.simulator.costs.kernels import Kernels
from runcast.simulator.profile import load_profile

TOKENS, PICKED = 4096, 2048
FORWARD, BACKWARD = "sparse_attention", "sparse_attention_backward"


def seconds(device, kind, heads, qk_dim, v_dim, picked=PICKED):
    """Each of the tokens attends to as many that were picked for it."""
    profile = load_profile(device)
    shape = (1, TOKENS, heads, 1, qk_dim, v_dim, 0, picked, 1)
    return Kernels(profile, profile.limits).estimate(kind, shape, 0, "bf16").seconds[0]


@pytest.mark.parametrize(
    ("device", "kind", "shape", "flop", "published_flop_per_s"),
    [
        ("h800", FORWARD, (128, 576, 512), 2 * (576 + 512), 640e12),  # deepseek-ai/FlashMLA, README
        ("b200-sxm", FORWARD, (128, 512, 512), 2 * 1024, 1180e12),  # Dao-AILab/flash-attention, pull request 2621
        ("gb300", FORWARD, (64, 576, 512), 2 * (576 + 512), 950e12),  # the same, notes on one CTA: 1.23 ms
        ("h800", BACKWARD, (64, 576, 512), 2 * (3 * 576 + 2 * 512), 100e12),  # tile-ai/tilelang, deepseek_v32
        ("h200-sxm", BACKWARD, (64, 576, 512), 2 * (3 * 576 + 2 * 512), 115e12),
        ("b200-sxm", BACKWARD, (64, 512, 512), 2 * 5 * 512, 684e12),  # NVIDIA/cudnn-frontend, pull request 318
        ("b200-sxm", BACKWARD, (128, 512, 512), 2 * 5 * 512, 820e12),  # Dao-AILab/flash-attention, pull request 2621
    ],
)
def test_kernels_reach_about_what_was_published(device, kind, shape, flop, published_flop_per_s):
    heads, *_ = shape
    reached = flop * heads * TOKENS * PICKED / seconds(device, kind, *shape)
    assert reached == pytest.approx(published_flop_per_s, rel=0.15)


@pytest.mark.parametrize(("kind", "dense"), [(FORWARD, "attention"), (BACKWARD, "attention_backward")])
@pytest.mark.parametrize("picked", [16, 256, 4096])
def test_picking_never_makes_a_kernel_shorter(kind, dense, picked):
    assert seconds("h100-sxm", kind, 64, 576, 512, picked) >= seconds("h100-sxm", dense, 64, 576, 512, picked)
