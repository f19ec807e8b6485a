"""A device that only its data sheet tells from another one: what was measured on it lies in the interval."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from math import exp
from statistics import median
from typing import Any

import pytest
from runcast.calibrate.fitting.data_sheet_errors import LIKE, common_width, data_sheet_case
from runcast.simulator.answers.validate.steps import Answer, StepCase, read_cases, shipped_table
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.files import digest, read_json
from runcast.simulator.uncertainty import shipped_fit


def shipped() -> dict[str, Any]:
    found: dict[str, Any] = read_json(files("runcast.data") / "validation" / "data_sheet_errors.json")
    return found


pytestmark = pytest.mark.slow

FEW = 13
"""Rows of a device that say little of how often intervals contain them."""
HIDDEN = {name: like for name, like in LIKE.items() if shipped()["devices"][name]["rows"] > FEW}
"""Devices with rows in the ledger, each with the one whose profile takes its place."""


@cache
def rows() -> dict[str, StepCase]:
    """Those of the shipped ledger that have a time, by their key."""
    return {case.key: case for case in read_cases(shipped_table()) if case.scenario and case.seconds}


@cache
def answer_of(key: str, like: str) -> Answer | None:
    """What the other device's profile says of a row; None where it has no kernels of the row's type."""
    try:
        return data_sheet_case(rows()[key], like).answer(memory=False)
    except UserError:
        return None


def inside(cases: list[StepCase], like: str) -> Iterator[bool]:
    """Of each row that the other device's profile can price: whether it lies in its 90 % interval."""
    for case in cases:
        if answer := answer_of(case.key, like):
            yield answer.low_s <= case.cells.number("iter_time_s") <= answer.high_s


def rows_of(name: str) -> list[StepCase]:
    return [case for case in rows().values() if case.resolved.devices[0].name == name]


def many_of(name: str) -> list[StepCase]:
    """All, or so many in even steps."""
    every = rows_of(name)
    return every[:: 1 + len(every) // 200]


@pytest.mark.parametrize("name", [name for name in HIDDEN if name != "H100 SXM"])  # whose rows are long ones
def test_some_rows_of_a_device_lie_in_the_intervals_of_its_data_sheet(name):
    many = many_of(name)
    some = sorted(many[:: len(many) // 12], key=lambda case: case.cells.number("n_gpus"))[:8]
    hits = list(inside(some, HIDDEN[name]))

    assert len(hits) >= 5
    assert sum(hits) >= 0.85 * len(hits) - 1


@pytest.mark.parametrize("name", HIDDEN)
def test_many_rows_of_a_device_lie_in_the_intervals_of_its_data_sheet(name):
    hits = list(inside(many_of(name), HIDDEN[name]))

    assert len(hits) > FEW
    assert sum(hits) >= 0.85 * len(hits)


def test_the_shipped_width_is_of_the_shipped_ledger_and_its_offsets():
    biases = [of["bias"] for of in shipped()["devices"].values()]

    assert (shipped()["about"]["sha256"], shipped_fit().data_sheet) == (
        digest(shipped_table()), pytest.approx(common_width(biases), rel=0.01),
    )  # fmt: skip


def test_the_shipped_offset_of_a_device_is_what_its_rows_miss():
    cases, of = rows_of("H200 SXM"), shipped()["devices"]["H200 SXM"]
    answers = [answer_of(case.key, of["like"]) for case in cases]
    errors = [answer.seconds / case.seconds for case, answer in zip(cases, answers, strict=True)]

    assert (len(cases), median(errors)) == (of["rows"], pytest.approx(exp(-of["bias"]), abs=1e-3))


def test_a_width_counts_offsets_and_how_few_they_are():
    assert common_width([0.1, -0.1]) == pytest.approx(0.1 * 2.920 / 1.645, rel=1e-3)  # Student's t of two
