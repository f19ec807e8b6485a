"""Stacks fitted to a ledger: rows move what they tell of, priors hold the rest, and what is left out is not seen."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from runcast.calibrate.fitting.ledger import UpdateFit, fit_ledger
from runcast.simulator.answers.validate.ledger import Cells
from runcast.simulator.answers.validate.updates import read_cases, shipped_table
from runcast.simulator.profile import fitted_parameters, load_stack

ROOT = Path(__file__).parents[3]
STACK = "checkpoint-engine"
WANTED = {STACK: ["reload.tensor_s", "gather.tensor_s"]}


def measured(case, seconds):
    return replace(case, cells=Cells({**case.cells, "seconds": repr(seconds)}))


@pytest.fixture(scope="module")
def cases():
    """Rows of the new table as a machine would give them whose loader takes twice as long as the prior says."""
    priors = load_stack(STACK, fitted=False)
    truth = {"reload.tensor_s": 2 * priors.value("reload.tensor_s"), "gather.tensor_s": priors.value("gather.tensor_s")}
    rows = [case for case in read_cases(shipped_table()) if case.line in (2, 3, 8, 9, 14, 15)]
    return [measured(case, case.answer(truth).seconds) for case in rows]


@pytest.fixture(scope="module")
def rows(cases):
    return UpdateFit(cases, WANTED)


@pytest.fixture(scope="module")
def found(rows):
    return rows.fit()


def test_rows_move_what_they_tell_of(found):
    loader, gathering = found.u

    assert loader == pytest.approx(np.log(2), abs=0.25)  # three rows against a prior of 25 %
    assert gathering == pytest.approx(0, abs=0.05)


def test_a_parameter_that_rows_tell_is_surer_than_its_prior(rows, found):
    assert all(found.deviation < rows.spread)


def test_without_rows_that_tell_of_it_a_parameter_stays(cases):
    gathers = [case for case in cases if case.cells["phase"] == "gather_metas"]
    rows = UpdateFit(gathers, WANTED)
    found = rows.fit()

    assert (found.u[0], found.deviation[0]) == pytest.approx((0, rows.spread[0]))


def test_a_row_far_off_counts_little(cases, found):
    wild = [measured(cases[1], 10 * cases[1].seconds), *cases[:1], *cases[2:]]

    assert UpdateFit(wild, WANTED).fit().u[0] == pytest.approx(found.u[0], abs=0.25)


def test_what_is_left_out_is_not_seen(cases, rows, found):
    """A row that is changed after the fit changes its own error, in proportion, and nothing else."""
    models = [case.model for case in cases]
    before = rows.leave_groups_out(found, models)
    doubled = [measured(cases[0], 2 * cases[0].seconds), *cases[1:]]
    after = UpdateFit(doubled, WANTED).leave_groups_out(found, models)

    assert (1 + after[0]) * 2 == pytest.approx(1 + before[0])
    assert after[1:] == pytest.approx(before[1:])


def test_a_system_left_out_is_predicted_by_priors_alone(cases, rows, found):
    alone = rows.leave_groups_out(found, [STACK] * len(cases))
    priors = {name: prior.value for (_, name), prior in zip(rows.free, rows.priors, strict=True)}

    blind = [case.answer(priors).seconds / case.seconds - 1 for case in cases]

    assert alone == pytest.approx(blind, abs=1e-6)


def test_of_a_chain_the_nearest_stacks_word_counts():
    """The same parameter free in both: a row of the older revision moves that one's alone."""
    older = f"{STACK}-7185b55"
    (row,) = (case for case in read_cases(shipped_table()) if case.line == 7)
    found = UpdateFit([row], {of: ["reload.tensor_s"] for of in (STACK, older)}).fit()

    assert (found.slopes[0] > 0).tolist() == [False, True]


def test_a_stack_takes_what_the_ledger_says_of_those_it_rests_on():
    newer, older = load_stack(STACK), load_stack(f"{STACK}-7185b55")
    known = fitted_parameters()

    assert older["drop_handle.s"] == newer["drop_handle.s"] == known[STACK]["drop_handle.s"]
    assert older["gather.tensor_s"] == known[f"{STACK}-7185b55"]["gather.tensor_s"] != newer["gather.tensor_s"]
    assert load_stack(STACK, fitted=False)["drop_handle.s"].provenance != "fitted"


def test_a_users_stack_that_rests_on_one_takes_it_too_and_its_own_word_wins(tmp_path):
    file = tmp_path / "mine.toml"
    own = '{ value = 5e-5, spread = 0.1, provenance = "measured", source = "our loader" }'
    file.write_text(f'schema = 2\nbase = "checkpoint-engine"\n[parameters]\n"reload.tensor_s" = {own}\n')

    mine = load_stack(str(file))

    assert mine["drop_handle.s"] == fitted_parameters()[STACK]["drop_handle.s"]
    assert mine.value("reload.tensor_s") == 5e-5


def test_free_parameters_are_those_of_their_stacks(rows):
    assert rows.free == [(STACK, "reload.tensor_s"), (STACK, "gather.tensor_s")]
    assert all(prior.provenance != "fitted" for prior in rows.priors)


@pytest.mark.slow
def test_the_shipped_fit_is_what_the_ledger_gives():
    kept = json.loads((ROOT / "data/validation/weight_update_fit.json").read_text())

    again = fit_ledger(shipped_table())

    assert json.loads(json.dumps(again)) == kept
