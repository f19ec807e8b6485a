"""A device that only its data sheet tells from another one: what was measured on it lies in the interval."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from runcast.simulator.answers.validate.steps import StepCase, read_cases, shipped_table
from runcast.simulator.base.errors import UserError
from runcast.simulator.hardware import device_keys

HIDDEN = {"H100 SXM": "A100 SXM 80GB", "B200 SXM": "H100 SXM", "A100 SXM 80GB": "H100 SXM", "GB200": "B200 SXM"}
"""Devices with rows in the ledger, each with the one whose profile takes its place."""


@pytest.fixture(scope="module")
def cases() -> list[StepCase]:
    return [case for case in read_cases(shipped_table()) if case.scenario and case.seconds]


def behind_data_sheet(case: StepCase, like: str) -> StepCase:
    assert case.scenario is not None
    named, cluster = case.resolved.devices[0].name, case.scenario["cluster"]
    sheet = {**device_keys(named), "name": "a device nobody measured", "like": like}
    sheet.pop("aliases", None)
    described = {**(cluster if isinstance(cluster, dict) else {"base": cluster}), "device": sheet}
    return replace(case, scenario={**case.scenario, "cluster": described, "profile": None})


def inside(cases: list[StepCase], like: str) -> Iterator[bool]:
    """Of each row that the other device's profile can price: whether it lies in its 90 % interval."""
    for case in cases:
        try:
            answer = behind_data_sheet(case, like).answer(memory=False)
        except UserError:  # a type that the other device has no kernels of
            continue
        yield answer.low_s <= case.cells.number("iter_time_s") <= answer.high_s


def rows_of(cases: list[StepCase], name: str) -> list[StepCase]:
    return [case for case in cases if case.resolved.devices[0].name == name]


@pytest.mark.parametrize("name", [name for name in HIDDEN if name != "H100 SXM"])  # whose rows are long ones
def test_some_rows_of_a_device_lie_in_the_intervals_of_its_data_sheet(cases, name):
    rows = rows_of(cases, name)
    some = sorted(rows[:: len(rows) // 12], key=lambda case: case.cells.number("n_gpus"))[:8]
    hits = list(inside(some, HIDDEN[name]))

    assert len(hits) >= 5
    assert sum(hits) >= 0.85 * len(hits) - 1


@pytest.mark.slow
@pytest.mark.parametrize("name", HIDDEN)
def test_many_rows_of_a_device_lie_in_the_intervals_of_its_data_sheet(cases, name):
    """All, or so many in even steps."""
    rows = rows_of(cases, name)
    hits = list(inside(rows[:: 1 + len(rows) // 200], HIDDEN[name]))

    assert len(hits) >= 40
    assert sum(hits) >= 0.85 * len(hits)
