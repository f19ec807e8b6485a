"""A profile serves every device with the chip that it was made for, whatever its memory, and changed ones."""

import pytest
from runcast.simulator import UserError
from runcast.simulator.hardware import device
from runcast.simulator.profile import choose_profiles, load_profile, profile_for
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.notes import notes_of
from runcast.simulator.systems.train_step.resolve import ResolvedTrain
from runcast.simulator.systems.train_step.terms import data_sheets

STEP = {"kind": "train_step", "model": {"preset": "llama3-8b"}, "batch": {"global": 8, "seq_len": 4096}}


@pytest.mark.parametrize(
    ("name", "profile"),
    [("A100 SXM 40GB", "a100-sxm"), ("V100 SXM2 16GB", "v100"), ("V100 SXM3 32GB", "v100"), ("H20-3e", "h20")],
)
def test_same_chip(name, profile):
    assert profile_for(*device(name).lineage) == profile


def test_a_device_with_a_price_of_ones_own_is_no_other_device():
    priced = {"base": "dgx-h100", "device": {"base": "h100", "price_usd_per_hour": 2.5}}
    device = ResolvedTrain(check_train({**STEP, "cluster": priced})).cluster.nodes[0].device

    assert (device.name, device.like, device.price_usd_per_hour) == ("H100 SXM", None, 2.5)


def test_a_changed_device_has_the_profile_of_its_base():
    changed = {"base": "dgx-h100", "device": {"base": "h100", "memory": "64 GiB"}}
    resolved = ResolvedTrain(check_train({**STEP, "cluster": changed}))

    assert "profile of h100-sxm, changed: h100-sxm; chosen by device" in notes_of(resolved)


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


VARIANTS = {
    "A100 PCIe 80GB": "a100-pcie", "A100 PCIe 40GB": "a100-pcie-40", "A100 SXM 40GB": "a100-40-hgx",
    "H100 PCIe": "h100-pcie", "H100 NVL": "h100-nvl",
}  # fmt: skip
"""Devices that are `like` another one, each with a cluster."""


@pytest.fixture
def measured(tmp_path):
    """Write a profile that was measured on a device of the catalogue, on the base of what it is like."""

    def write(name: str) -> str:
        base = profile_for(*device(name).lineage)
        path = tmp_path / "measured.toml"
        path.write_text(f'schema = 2\nname = "measured"\nbase = "{base}"\ndevices = ["{name}"]\n')
        return str(path)

    return write


@pytest.mark.parametrize("name", VARIANTS)
def test_a_profile_measured_on_a_variant_serves_its_cluster(name, measured):
    resolved = ResolvedTrain(check_train({**STEP, "cluster": VARIANTS[name], "profile": measured(name)}))

    assert resolved.profile_names == {name: measured(name)}


def test_a_profile_measured_on_a_variant_serves_changes_of_it(measured):
    changed = {"base": "a100-pcie", "device": {"base": "a100-pcie-80", "memory": "40 GiB"}}
    named = measured("A100 PCIe 80GB")
    resolved = ResolvedTrain(check_train({**STEP, "cluster": changed, "profile": named}))

    assert resolved.profile_names == {"a100-pcie-80, changed": named}


def test_a_device_like_a_variant_has_the_profile_of_what_the_variant_is_like():
    mine = device({"base": "h100-pcie", "name": "Mine", "like": "h100-pcie"})

    assert (mine.lineage, profile_for(*mine.lineage)) == (("Mine", "H100 PCIe", "H100 SXM"), "h100-sxm")


def test_a_profile_measured_on_a_variant_does_not_serve_what_it_is_like(measured):
    with pytest.raises(UserError, match="is made for A100 PCIe 80GB, not for A100 SXM 80GB, whose profile is a100-sxm"):
        choose_profiles([device("a100-sxm-80")], measured("A100 PCIe 80GB"), "s.toml")


def test_a_device_that_was_measured_itself_is_no_data_sheet(measured):
    changed = {"base": "a100-pcie", "device": {"base": "a100-pcie-80", "name": "A100 PCIe 80GB"}}
    resolved = ResolvedTrain(check_train({**STEP, "cluster": changed, "profile": measured("A100 PCIe 80GB")}))

    assert [*data_sheets(resolved)] == []
