"""A profile serves every device with the chip that it was made for, whatever its memory, and changed ones."""

import pytest
from runcast.simulator.hardware import device
from runcast.simulator.profile import load_profile, profile_for
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

STEP = {"kind": "train_step", "model": {"preset": "llama3-8b"}, "batch": {"global": 8, "seq_len": 4096}}


@pytest.mark.parametrize(
    ("name", "profile"),
    [("A100 SXM 40GB", "a100-sxm"), ("V100 SXM2 16GB", "v100"), ("V100 SXM3 32GB", "v100"), ("H20-3e", "h20")],
)
def test_same_chip(name, profile):
    assert profile_for(device(name).measured_as) == profile


def test_a_changed_device_has_the_profile_of_its_base():
    changed = {"base": "dgx-h100", "device": {"base": "h100", "memory": "64 GiB"}}
    resolved = ResolvedTrain(check_train({**STEP, "cluster": changed}))

    assert "profile of h100-sxm, changed: h100-sxm; chosen by device" in resolved.notes


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_two_gpus_in_two_nodes_move_as_much_as_rings_of_three_at_equal_bus_bytes(op):
    h100 = load_profile("h100-sxm")
    two = h100.estimate(op, {"bytes": 1e9, "gpus": 2, "nodes": 2}).seconds[0]
    three = h100.estimate(op, {"bytes": 1e9, "gpus": 3, "nodes": 3}).seconds[0]

    assert two / three == pytest.approx((1 / 2) / (2 / 3), rel=1e-9)


@pytest.mark.parametrize("dtype", ["fp4", "tf32", "fp32", "fp16"])
def test_products_of_every_type_have_gradients(dtype):
    b200, shape = load_profile("b200-sxm"), {"m": 8192, "n": 8192, "k": 8192}
    seconds = [b200.estimate(f"gemm.{dtype}{suffix}", shape).seconds[0] for suffix in ("", ".dgrad", ".wgrad")]

    assert seconds == pytest.approx([seconds[0], seconds[0], 1.05 * seconds[0]])
