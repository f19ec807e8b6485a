"""The ledger of our own runs says again what was executed, and what it took."""

import pytest

pytest.importorskip("torch", reason="executing needs the [calibrate] extra")

from runcast.simulator.answers.validate.executed import ExecutedCase
from runcast.simulator.answers.validate.run_rows import read_cases
from runcast.simulator.base.files import read_toml

from .cases import CASES, MORE_STEPS, STEPS, Numbers, write_cases
from .comparing import Outcome
from .ledger import write_ledger

EVERY = [*CASES, *STEPS, *MORE_STEPS]
OF_THE_PLACE = ("name", "cluster", "profile", "stack")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ledger")
    write_ledger([Outcome(case, 1.1, (1.0, 1.25), 0) for case in EVERY], folder / "kept", "a test", folder)
    return {row.cells.text("id"): row for row in read_cases(folder / "executed.csv", ExecutedCase)}


@pytest.mark.parametrize("case", EVERY, ids=lambda case: f"{case.topology}, {case.name}")
def test_a_row_is_the_scenario_that_was_executed(rows, case, tmp_path):
    (path,) = write_cases([case], Numbers(), tmp_path)

    assert without_place(rows[f"{case.topology}: {case.name}"].scenario) == without_place(read_toml(path))


def without_place(table):
    return {key: value for key, value in table.items() if key not in OF_THE_PLACE}


def test_a_row_says_what_the_fastest_run_took(rows):
    assert {row.cells.number("measured") for row in rows.values()} == {1.0}
