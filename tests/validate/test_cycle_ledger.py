"""The ledger of published rollouts and RL cycles: how rows become scenarios, and that its page is what is predicted."""

import csv
from pathlib import Path

import pytest
from runcast.calibrate.fitting.cycle_errors import errors_of
from runcast.simulator import simulate
from runcast.simulator.answers.validate.cycles import CycleCase, read_cycle_ledger
from runcast.simulator.answers.validate.ledger import shipped_file
from runcast.simulator.answers.validate.run_rows import REQUIRED, read_cases
from runcast.simulator.base.files import read_json
from runcast.simulator.runner import InProcess
from runcast.simulator.systems.rl_cycle.errors import WHOLE

from ..docs.cycle_ledger_page import page
from ..docs.run_ledger_page import MISS
from ..once import once

ROOT = Path(__file__).parents[2]
ROW = dict.fromkeys((*REQUIRED, "bound"), "") | {
    "id": "a", "source": "ours", "where": "here", "subject": "rollouts", "evidence": "measured", "base": "rollout",
    "changes": "rollout.requests=4", "metric": "rollout_s", "measured": "10",
}  # fmt: skip


def written(folder: Path, **changes: str) -> Path:
    """A table of one row."""
    path = folder / "rows.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(ROW))
        table.writeheader()
        table.writerow({**ROW, **changes})
    return path


def test_a_row_is_its_scenario_with_changes(tmp_path):
    (row,) = read_cycle_ledger(written(tmp_path), runner=InProcess()).table.to_dict("records")
    report = simulate(ROOT / "data/validation/cycles/rollout.toml", ["rollout.requests=4"]).report
    width = report.engine.step.spread

    assert row["predicted"] == report.rollout_s
    assert row["error"] == pytest.approx(report.rollout_s / 10 - 1)
    assert row["interval_low"] < report.rollout_s < row["interval_high"]
    assert width > 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"base": "rollouts"}, "base = 'rollouts': unknown; did you mean rollout?"),
        ({"base": "../runs/opt.toml"}, "no such file"),
        ({"changes": "rollout.request=4"}, "rollout.request: unknown key"),
        ({"metric": "rolout_s"}, "metric = 'rolout_s': unknown"),
        ({"measured": ""}, "measured is not stated"),
    ],
)
def test_a_row_that_is_not_predicted_says_why(tmp_path, changes, reason):
    (why,) = read_cycle_ledger(written(tmp_path, **changes), runner=InProcess()).reasons.values()

    assert reason in why


def test_every_shipped_row_is_a_scenario_or_says_what_it_lacks():
    cases = read_cases(shipped_file("rl_cycle.csv"), CycleCase)

    assert [case.cells.text("id") for case in cases if case.scenario is None and not case.cells.has("gap")] == []
    assert len({case.cells.text("source") for case in cases}) >= 10


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """The shipped ledger with all its rows predicted."""
    return once(tmp_path_factory, "ledger of cycles", lambda _: read_cycle_ledger(runner=InProcess()))


@pytest.mark.slow
def test_the_error_of_whole_cycles_is_that_of_the_ledger(ledger):
    """Nine of ten whole steps lie in intervals whose width their own source did not tell."""
    whole = ledger.scored[ledger.scored["metric"] == WHOLE]

    assert errors_of(ledger) == read_json(shipped_file("rl_cycle.csv").with_name("cycle_errors.json"))
    assert 0.85 <= whole["measured"].between(whole["interval_low"], whole["interval_high"]).mean() <= 0.97


@pytest.mark.slow
def test_the_page_is_what_is_predicted_and_large_misses_have_words(ledger):
    silent = ledger.table[(ledger.table["error"].abs() > MISS) & (ledger.table["miss"] == "")]

    assert (ROOT / "docs/rl-cycle-ledger.md").read_text() == page(ledger)
    assert list(silent["id"]) == []
    assert (
        ledger.to_json()["groups"][0]["median_abs_error"] < 0.06
    )  # rollouts of vLLM on H100, to which nothing is fitted
