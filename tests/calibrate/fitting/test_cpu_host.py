"""Records of a host without GPUs become a profile of its own, on nominal limits, by one command."""

import json

import numpy as np
import pytest
from runcast.simulator import cli
from runcast.simulator.hardware import cluster, limits
from runcast.simulator.profile import load_profile

SIZES = 2.0 ** np.arange(10, 27, 2)
PRODUCTS = [(m, n, k) for m in (128, 512, 2048) for n, k in ((512, 512), (1024, 2048), (2048, 1024))]


def record(cost_class, seconds, **features):
    """Two rounds would be two of these; one says enough here."""
    group, _, case = cost_class.partition(".")
    about = {"group": group, "case": case or group, "params": features, "round": 0, "unit": "us", "wrong": 0}
    stated = {"library": "torch", "cost_class": cost_class, "features": features}
    return about | stated | {"together": str(features), "samples": [seconds * 1e6 * x for x in (0.98, 1, 1.03)]}


def gloo(size, gpus, rate):
    """An all-reduce by a ring over loopback."""
    return 2e-4 * gpus + 2 * (gpus - 1) / gpus * size / rate


def records(product_rate, gloo_rate):
    return [
        *(record("gemm.bf16", 2e-5 + 2 * m * n * k / product_rate, m=m, n=n, k=k) for m, n, k in PRODUCTS),
        *(record("memory.add", 5e-6 + size / 20e9, bytes=size) for size in SIZES.tolist()),
        *(record("copy.h2d", 5e-6 + size / 6e9, bytes=size) for size in SIZES.tolist()),
        *(record("copy.d2d", 5e-6 + size / 6e9, bytes=size) for size in SIZES.tolist()),
        *(
            record(kind, gloo(size, gpus, gloo_rate), bytes=size, gpus=gpus)
            for kind in ("all_reduce", "all_gather")
            for gpus in (2, 4)
            for size in SIZES.tolist()
        ),
        *(record("host.launch", 1e-6 * count, count=count) for count in (1, 10, 100)),
    ]


@pytest.fixture
def fit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def fitted(given):
        machine = {"group": "environment", "gpu": "CPU", "torch": "2.13.0", "nodes": [[0, 1, 2, 3]], "suite": 1}
        (tmp_path / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (machine, *given)))
        with pytest.raises(SystemExit) as leave:
            cli.main(["calibrate", "fit", "s.jsonl", "-o", "mine.json", "--base", "generic"])
        assert (leave.value.code or 0, capsys.readouterr().err) == (0, "")
        return load_profile("mine.json")

    return fitted


def test_the_device_and_its_cluster_are_found(fit):
    mine = fit(records(1.2e12, 1e9))
    assert (mine.devices, mine.limits) == (("CPU",), limits(cluster("cpu-host", 1)))


@pytest.mark.parametrize("gloo_rate", [2e8, pytest.param(3e9, marks=pytest.mark.slow)])
@pytest.mark.parametrize("product_rate", [4e11, pytest.param(1.5e12, marks=pytest.mark.slow)])
def test_fits_reach_what_a_core_and_loopback_reach(product_rate, gloo_rate, fit):
    given = records(product_rate, gloo_rate)
    mine = fit(given)
    for one in given:
        told = mine.estimate(one["cost_class"], one["features"]).seconds[0]
        close = 0.35 if one["group"] == "gemm" else 0.15  # tiles and waves are those of a GPU
        assert told == pytest.approx(one["samples"][1] * 1e-6, rel=close), one


@pytest.mark.slow
def test_a_core_without_matrix_units_is_fitted_with_an_error_that_it_states(fit):
    model = fit(records(5e10, 1e9)).models["gemm.bf16"]["torch"]
    assert model.held_out.p90 > 0.3


@pytest.mark.slow
def test_parameters_of_hosts_lie_in_their_bounds(fit):
    told = fit(records(1.2e12, 1e8)).parameters
    assert told["link_fraction.c2c"].value == pytest.approx(6e9 / 20e9, rel=0.05)
    assert told["link_fraction.nvlink"].provenance == "extrapolated"  # the base's: below what it may be


@pytest.mark.slow
def test_a_profile_of_several_hosts_names_the_network_that_it_was_measured_on(fit):
    """Otherwise a prediction on that very network would correct what was measured there as if on InfiniBand."""
    between = [
        record("all_reduce.network", gloo(size, nodes, 12e6), bytes=size, gpus=nodes, nodes=nodes)
        for nodes in (2, 4)
        for size in SIZES.tolist()
    ]
    assert fit([*records(1.2e12, 1e9), *between]).about["network"] == "ethernet"
    assert "network" not in fit(records(1.2e12, 1e9)).about
