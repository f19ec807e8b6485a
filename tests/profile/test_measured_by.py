"""Numbers of software that a device's profile has measured replace what a stack states."""

import json
from pathlib import Path
from typing import Any

import pytest
from runcast.simulator import UserError
from runcast.simulator.hardware import cluster, limits
from runcast.simulator.profile import Errors, Model, Parameter, Profile, load_numbers, load_stack
from runcast.simulator.profile.model import Band
from runcast.simulator.profile.parameters import MeasuredBy

CALL = "host.synchronize"


def calls(seconds: float, kind: str = CALL) -> Model:
    """A model of calls that take so long, off by 20 % on what its fit has not seen."""
    scored = Errors(10, 0.1, 0.2, 0.0)
    band = Band(10, 0.1, 0.2, 0.0, size=1.0, spread=0.2)
    machine = limits(cluster("dgx-h100", 1))
    ends = {"count": (1.0, 1.0)}
    return Model(
        kind, "torch", {"item_s": seconds}, ends, {"count": 0.1}, scored, scored, 2, (band,), machine, "t (10 rows)"
    )


def stated(value: float, **by: Any) -> Parameter:
    return Parameter(value, 0.5, "assumed", "this test", MeasuredBy(CALL, **by))


def read(parameter: Parameter, *models: Model) -> Parameter:
    """The parameter of a profile that has these models."""
    known = {model.kind: {"torch": model} for model in models}
    return Profile("mine", {"sync.s": parameter}, known).read_measured()["sync.s"]


def test_a_measured_call_replaces_what_was_stated() -> None:
    source = "host.synchronize: torch, t (10 rows); held out 10.0% / 20.0%"
    assert read(stated(1e-5), calls(4e-6)) == Parameter(4e-6, 0.2, "fitted", source)


def test_what_was_stated_counts_until_it_is_measured() -> None:
    assert read(stated(1e-5), calls(4e-6, "host.add_call")) == stated(1e-5)


@pytest.mark.parametrize(("measured_s", "value"), [(4e-6, 1e-5), (3e-5, 3e-5)])
def test_a_floor_only_raises(measured_s: float, value: float) -> None:
    assert read(stated(1e-5, least=True), calls(measured_s)).value == value


def test_seconds_of_an_op_are_divided_by_what_it_handles() -> None:
    assert read(stated(1e-5, per=1000.0), calls(4e-6)).value == pytest.approx(4e-9)


def write_profile(folder: Path, seconds: float) -> str:
    """A profile of H100 whose own model of a synchronisation was measured."""
    machine = limits(cluster("dgx-h100", 1))
    numbers = {"rows": 10, "median": 0.1, "p90": 0.2, "bias": 0.0}
    model = {
        "form": "constant", "coefficients": {"item_s": seconds}, "range": {"count": [1, 1]}, "growth": {"count": 0.1},
        "fitted": numbers, "held_out": numbers, "groups": 2, "source": "t (10 rows)",
        "bands": [{"size": 1, **numbers, "spread": 0.2}],
    }  # fmt: skip
    content = {
        "schema": 2, "base": "h100-sxm", "devices": ["H100 SXM"], "limits": vars(machine),
        "models": {CALL: {"default": "torch", "variants": {"torch": model}}},
    }  # fmt: skip
    (folder / "mine.json").write_text(json.dumps(content))
    return str(folder / "mine.json")


def test_a_profile_speaks_for_the_generic_stack(tmp_path: Path) -> None:
    file = write_profile(tmp_path, 4e-6)
    assert load_numbers({"H100 SXM": file}, "", "", "generic", "").value("sync.s") == 4e-6


def test_numbers_that_were_fitted_to_published_updates_stand() -> None:
    assert load_stack("miles")["broadcast.message_s"].measured_by is None


@pytest.mark.parametrize(
    ("by", "fault"),
    [
        ({"kind": "host"}, "sync.s.measured_by.kind = 'host': expected a cost class"),
        ({"kind": "copy.h2d"}, "sync.s.measured_by.at = 'count': expected bytes, link_bytes_per_s"),
        ({"kind": CALL, "per": 0}, "sync.s.measured_by.per = 0: expected"),
        ({}, "sync.s.measured_by.kind: is missing"),
    ],
)
def test_an_op_that_cannot_measure_it_is_one_line(by: dict[str, Any], fault: str, tmp_path: Path) -> None:
    entry = {"value": 1, "spread": 0, "provenance": "assumed", "source": "this test", "measured_by": by}
    (tmp_path / "mine.json").write_text(json.dumps({"schema": 2, "parameters": {"sync.s": entry}}))
    with pytest.raises(UserError) as caught:
        load_stack(str(tmp_path / "mine.json"))
    assert [fault in line for line in caught.value.faults] == [True]
