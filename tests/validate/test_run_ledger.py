"""The ledger of published runs: how rows become scenarios, what is scored, and that its page is what is predicted."""

import csv
import json
from pathlib import Path

import pytest
from runcast.calibrate.fitting.run_errors import errors_of
from runcast.dashboard.ledgers import run_rows
from runcast.dashboard.pages.validation import Shown, draw
from runcast.simulator import simulate
from runcast.simulator.answers.validate.metrics import value_of
from runcast.simulator.answers.validate.run_rows import REQUIRED, read_cases, shipped_table
from runcast.simulator.answers.validate.runs import read_run_ledger, scores
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.files import read_json
from runcast.simulator.runner import InProcess
from runcast.simulator.systems.run.intervals import quantity_of

from ..command import runcast
from ..docs.run_ledger_page import MISS, page
from ..once import once

ROOT = Path(__file__).parents[2]
ROW = {
    "id": "a", "source": "ours", "where": "here", "subject": "local SGD", "evidence": "measured", "base": "opendiloco",
    "changes": "run.steps=500", "metric": "wall_s", "measured": "4350", "bound": "",
}  # fmt: skip
REPORT = {"wall_s": 8.0, "counts": {"stops": 2.0}, "mode": "local", "steps": 0, "breakdown_s": {"compute": 6.0}}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return once(tmp_path_factory, "ledger of runs", lambda _: read_run_ledger(runner=InProcess()))


@pytest.mark.slow
def test_the_dashboard_shows_each_row(ledger):
    *_, grid = draw(run_rows(ledger), Shown("run"))

    assert {row["id"] for row in grid.children[-1].rowData} == set(ledger.scored["id"])


@pytest.fixture
def written(tmp_path):
    """A function that writes rows, each with changes to `ROW`."""

    def write(*rows):
        path = tmp_path / "rows.csv"
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, {key: "" for row in (ROW, *rows) for key in row})
            table.writeheader()
            table.writerows({**ROW, "id": str(i), **row} for i, row in enumerate(rows))
        return path

    return write


@pytest.mark.parametrize(("metric", "key"), [("counts.failures", "failures"), ("tokens_per_s", "rate")])
def test_a_row_has_the_interval_that_a_user_sees(written, metric, key):
    path = written({"base": "llama3", "changes": "run.wall='5 d'", "metric": metric, "measured": "40"})
    (row,) = read_run_ledger(path, runner=InProcess()).table.to_dict("records")

    report = simulate(ROOT / "data/validation/runs/llama3.toml", ["run.wall='5 d'"]).report

    assert (row["interval_low"], row["interval_high"]) == pytest.approx(getattr(report, f"{key}_interval"))


def test_every_row_says_where_it_is_from():
    cells = [case.cells for case in read_cases(shipped_table())]
    assert [row["id"] for row in cells if not (row.has("source") and row.has("where") and row.has("subject"))] == []


@pytest.mark.slow
def test_every_row_is_predicted_or_has_a_gap(ledger):
    gaps = {case.line: case.cells.text("gap") for case in ledger.cases if case.cells.has("gap")}
    assert (ledger.reasons, len(ledger.table) + len(gaps)) == (gaps, len(ledger.cases))


def test_every_scenario_file_has_rows():
    used = {case.cells.text("base") for case in read_cases(shipped_table())}
    assert used - {""} == {file.stem for file in (shipped_table().parent / "runs").glob("*.toml")}


@pytest.mark.slow
def test_the_page_is_what_is_predicted(ledger):
    assert (ROOT / "docs/run-ledger.md").read_text() == page(ledger)


@pytest.mark.slow
def test_misses_are_told_in_words(ledger):
    rows = ledger.scored
    far = rows[rows["error"].abs() > MISS]
    assert [row["id"] for row in far.to_dict("records") if not row["miss"]] == []


@pytest.mark.slow
def test_bounds_that_are_not_held_are_told_in_words(ledger):
    rows = ledger.bounded
    assert [row["id"] for row in rows.to_dict("records") if not row["holds"] and not row["miss"]] == []


@pytest.mark.slow
def test_identities_are_met(ledger):
    """One is 1.5 h, which has two digits, and rests on random failures."""
    rows = ledger.unmeasured[ledger.unmeasured["evidence"] == "identity"]
    assert (len(rows) > 5, rows["error"].abs().median() < 0.005, rows["error"].abs().max() < 0.05) == (True,) * 3


@pytest.mark.slow
def test_only_what_was_measured_is_scored(ledger):
    assert (set(ledger.scored["evidence"]), set(ledger.scored["bound"])) == ({"measured"}, {""})


@pytest.mark.slow
def test_scaling_of_synchronous_servers_is_met(ledger):
    errors = ledger.scored.query("subject == 'synchronous servers'")["error"].abs()
    assert (len(errors), errors.median() < 0.06, errors.max() < 0.15) == (14, True, True)


def test_an_error_is_predicted_over_measured_less_one(written):
    (row,) = read_run_ledger(written({"measured": "4000"})).to_json()["table"]
    assert (round(row["predicted"]), round(row["error"], 4)) == (4350, 0.0875)


def test_what_does_not_vary_has_no_interval(written):
    found = read_run_ledger(written({})).to_json()
    assert (found["held_of"], found["interval_coverage"]) == (0, None)


def test_failures_have_an_interval(written):
    row = {"base": "opt", "changes": "run.wall='20 d'; run.repeats=4", "metric": "counts.failures", "measured": "40"}
    (found,) = read_run_ledger(written(row)).to_json()["table"]
    assert found["interval_low"] < found["predicted"] < found["interval_high"]


@pytest.mark.parametrize(("bound", "holds"), [(">=", True), ("<=", False)])
def test_a_bound_is_held_or_not_and_no_error(written, bound, holds):
    found = read_run_ledger(written({"measured": "4000", "bound": bound})).to_json()
    assert (found["table"][0]["holds"], found["scored"], found["bounds_held"]) == (holds, 0, int(holds))


@pytest.mark.parametrize(
    ("metric", "value"),
    [("wall_s", 8.0), ("counts.stops", 2.0), ("breakdown_s.compute / wall_s", 0.75), ("counts.failures", 0.0)],
)
def test_a_metric_is_a_number_of_the_report_or_a_ratio(metric, value):
    assert value_of(REPORT, metric) == value


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("wal_s", "metric = 'wal_s': unknown; did you mean wall_s?"),
        ("counts.stop", "metric = 'counts.stop': unknown; did you mean counts.stops?"),
        ("mode", "metric = 'mode': is no number here"),
        ("wall_s / steps", "metric = 'wall_s / steps': divides by zero here"),
    ],
)
def test_a_metric_that_is_none_is_one_line(metric, said):
    with pytest.raises(UserError) as caught:
        value_of(REPORT, metric)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"base": "opendilocos"}, "base = 'opendilocos': unknown; did you mean opendiloco?"),
        ({"base": "none.toml"}, "none.toml: no such file"),
        ({"metric": "wal_s"}, "metric = 'wal_s': unknown; did you mean wall_s"),
        ({"metric": ""}, "metric is not stated"),
        ({"measured": "fast"}, "measured = 'fast': expected a number"),
        ({"measured": ""}, "measured is not stated"),
        ({"evidence": "told"}, "evidence = 'told': expected measured, identity, projection"),
        ({"bound": "<"}, "bound = '<': expected nothing, >=, <="),
        ({"changes": "run.steps"}, "changes run.steps: expected key=value, such as run.wall='54 d'"),
        ({"changes": "run.step=5"}, "run.step: unknown key; did you mean steps"),
    ],
)
def test_bad_input_is_one_line(written, change, said):
    (reason,) = read_run_ledger(written(change)).reasons.values()
    assert (said in reason, reason.count("\n")) == (True, 0)


def test_a_row_that_cannot_be_predicted_does_not_stop_the_others(written):
    done = runcast("validate", "--kind", "run", "--rows", written({}, {"base": "none"}))
    lines = [line for line in done.stdout.splitlines() if line.startswith("not predicted:")]
    assert (done.returncode, len(lines), "rows.csv:3: base = 'none'" in lines[0]) == (0, 1, True)


def test_a_scenario_may_lie_beside_the_table(written):
    path = written({"base": "mine.toml"})
    path.with_name("mine.toml").write_text((shipped_table().parent / "runs/opendiloco.toml").read_text())
    assert read_run_ledger(path).predicted == 1


def test_a_table_without_a_column_is_one_line(tmp_path):
    (tmp_path / "rows.csv").write_text("id,source\na,b\n")
    with pytest.raises(UserError, match=f"no column {', '.join(REQUIRED[2:])}; expected those of run.csv"):
        read_run_ledger(tmp_path / "rows.csv")


def test_json_has_the_scores(written):
    done = runcast("validate", "--kind", "run", "--rows", written({}), "--json", "-")
    found = json.loads(done.stdout)
    keys = "rows", "predicted", "scored", "median_abs_error", "p90_abs_error", "bias", "interval_coverage", "groups"
    assert [key for key in keys if key not in found] == []


def test_what_moved_since_is_told(written, tmp_path):
    old = tmp_path / "old.csv"
    runcast("validate", "--kind", "run", "--rows", written({}), "--csv", old)
    same = runcast("validate", "--kind", "run", "--rows", written({}), "--against", old)
    moved = runcast("validate", "--kind", "run", "--rows", written({"changes": "run.steps=1000"}), "--against", old)
    first = moved.stdout.splitlines()[0]
    assert (same.returncode, moved.returncode, first) == (0, 1, "0: prediction 4350 to 8700 (+100.00%)")


def test_a_stack_is_of_steps_and_updates():
    done = runcast("validate", "--kind", "run", "--stack", "generic")
    assert (done.returncode, done.stderr) == (2, "error: --stack: goes with --kind weight_update and train_step only\n")


@pytest.mark.slow
def test_the_models_own_errors_are_those_of_the_ledger(ledger):
    assert errors_of(ledger) == read_json(shipped_table().with_name("run_errors.json"))


@pytest.mark.slow
def test_intervals_hold_runs_of_sources_that_were_left_out(ledger):
    """All of whole runs have one, at least four fifths are in it, and the usual one is narrower than a factor of 1.25.

    Times of one checkpoint or restart have none.
    """
    rows = ledger.scored[ledger.scored["metric"].map(quantity_of) != ""]
    found = scores(rows)
    assert (found["held_of"], found["held"] >= 0.8 * len(rows)) == (len(rows), True)
    assert found["median_reach"] < 0.25
