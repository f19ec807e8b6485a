"""Stacks fitted to training steps: what made the rows comes back, and what is left out is predicted by the rest."""

import csv

import numpy as np
import pytest
from runcast.calibrate.fitting.step_ledger import fit_steps, usable
from runcast.calibrate.fitting.steps import Design, Rows
from runcast.simulator.answers.validate.steps import read_cases, shipped_table
from runcast.simulator.base.errors import UserError
from runcast.simulator.costs import PHASES

SLOWER = 1.3
SOURCES = ("simumax_b200", "mlperf_other")


@pytest.fixture(scope="module")
def few(tmp_path_factory, unfitted):
    """Eight small steps of two stacks, whose times are those of products that take longer than the profile says."""
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    with shipped_table().open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] in SOURCES]
    dense = [row for row in rows if row["arch"] == "dense"]
    dense.sort(key=lambda row: float(row["gbs"]) / float(row["dp"]) * float(row["layers"]))
    chosen = [row for name in SOURCES for row in [row for row in dense if row["source"] == name][:4]]
    write(path, chosen)
    for row, case in zip(chosen, read_cases(path), strict=True):
        row["iter_time_s"] = str(case.answer({"time_factor.gemm": SLOWER}, memory=False).seconds)
    write(path, chosen)
    return path


def write(path, rows):
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


@pytest.fixture(scope="module")
def found(few):
    return fit_steps(few, tell=lambda line: None)


@pytest.mark.slow
def test_rows_come_out_as_they_were_made(few, found):
    errors = []
    for case in usable(few):
        stacks, profile = found["stacks"], found["profiles"][case.resolved.profile_name]
        values = {name: entry["value"] for name, entry in {**stacks[case.stack], **profile}.items()}
        errors.append(case.answer(values, memory=False).seconds / case.seconds - 1)
    assert errors == pytest.approx([0] * 8, abs=0.03)


@pytest.mark.slow
def test_every_number_says_where_it_comes_from(found):
    entries = [entry for table in ("stacks", "profiles") for of in found[table].values() for entry in of.values()]
    assert {entry["provenance"] for entry in entries} == {"fitted"}
    assert all("training steps of the ledger" in entry["source"] for entry in entries)


@pytest.mark.slow
def test_every_row_has_its_errors_with_groups_left_out(few, found):
    assert set(found["left_out"]) == {case.key for case in usable(few)}
    assert {tuple(errors) for errors in found["left_out"].values()} == {("group", "stack", "source")}


def test_of_a_table_of_one_row_what_is_stated_is_left(few, tmp_path):
    """Whatever is left out of one row is all of it."""
    with few.open(newline="") as file:
        write(tmp_path / "rows.csv", list(csv.DictReader(file))[:1])
    found = fit_steps(tmp_path / "rows.csv", tell=lambda line: None)
    (case,) = usable(tmp_path / "rows.csv")
    stated = case.answer(memory=False).seconds / case.seconds - 1

    assert list(found["left_out"][case.key].values()) == pytest.approx([stated] * 3, abs=1e-4)


def test_a_table_without_times_is_refused(few, tmp_path):
    rows = list(csv.DictReader(few.open(newline="")))
    write(tmp_path / "rows.csv", [row | {"iter_time_s": ""} for row in rows])
    with pytest.raises(UserError, match="no row can be predicted"):
        usable(tmp_path / "rows.csv")


def test_between_simulations_a_step_is_the_sum_of_its_path(few):
    """All phases twice as long: so is the step; one phase alone: it grows by that phase's seconds."""
    design = Design(usable(few))
    answers = [case.answer(memory=False) for case in design.cases]
    phases = np.array([answer.phase_s for answer in answers])
    rows = Rows(np.zeros(len(design.free)), phases.sum(axis=1), phases)
    u = np.array([np.log(2) * (free.name == "time_factor.gemm" and free.of == "generic") for free in design.free])
    seconds, _ = design.predict(rows, u)
    assert seconds == pytest.approx(rows.seconds + rows.phase_s[:, PHASES.index("gemm")], rel=1e-6)
