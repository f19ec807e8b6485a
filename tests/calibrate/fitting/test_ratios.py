"""What a device takes on from a sibling as a ratio (`calibrate/fitting/ratios`)."""

import json

import pytest
from runcast.simulator import cli
from runcast.simulator.profile import Model, Ratio, load_profile

SHAPES = [(m, n, k) for m in (256, 1024, 4096, 16384) for n in (1024, 8192) for k in (1024, 8192)]
BACKWARD = {"gemm.bf16": 1.0, "gemm.bf16.dgrad": 1.3, "gemm.bf16.wgrad": 0.8}


def table(device, kinds):
    """GEMMs at 600 TFLOP/s behind a call of 5 us, those of a class so many times as long."""
    rows = [
        f"{kind},{device},torch,{n}x{k},{factor * (5e-6 + 2 * m * n * k / 6e14)!r},{m},{n},{k}"
        for kind, factor in kinds.items()
        for m, n, k in SHAPES
    ]
    return "\n".join(["cost_class,device,library,group,seconds,m,n,k", *rows, ""])


@pytest.fixture(scope="module")
def sibling(tmp_path_factory):
    """The profile of an H200 that measured forward GEMMs alone, on that of an H100 that measured all."""
    folder = tmp_path_factory.mktemp("ratios")
    (folder / "h100.csv").write_text(table("H100 SXM", BACKWARD))
    (folder / "h200.csv").write_text(table("H200 SXM", {"gemm.bf16": 1.0}))
    for name, more in (("h100", ()), ("h200", ("--base", str(folder / "h100.json")))):
        words = ["calibrate", "fit", f"{folder}/{name}.csv", "-o", f"{folder}/{name}.json", *more]
        with pytest.raises(SystemExit) as leave:
            cli.main(words)
        assert not leave.value.code
    return folder / "h200.json"


@pytest.mark.parametrize("kind", ["gemm.bf16.dgrad", "gemm.bf16.wgrad"])
def test_a_backward_takes_so_many_times_the_own_forward_as_on_the_sibling(sibling, kind):
    ratio = load_profile(str(sibling)).model(kind)
    assert isinstance(ratio, Ratio)
    assert (ratio.like, ratio.factor) == ("gemm.bf16", pytest.approx(BACKWARD[kind], rel=0.02))


def test_its_source_says_on_which_device_and_shapes(sibling):
    said = json.loads(sibling.read_text())["models"]["gemm.bf16.dgrad"]["variants"]["as on h100"]["source"]
    assert said == "torch over torch on h100: median of the 16 shapes here that it has measured, by seconds"


def test_what_a_device_has_measured_is_no_ratio(sibling):
    assert isinstance(load_profile(str(sibling)).model("gemm.bf16"), Model)


def test_a_class_whose_like_it_has_not_measured_is_carried_over(sibling):
    assert load_profile(str(sibling)).model("memory.copy") == load_profile("generic").model("memory.copy")
