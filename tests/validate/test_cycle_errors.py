"""What a whole cycle leaves out: its width from published steps, and that reports and rows have it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runcast.calibrate.fitting.cycle_errors import likely_width
from runcast.simulator import simulate
from runcast.simulator.base.files import read_json
from runcast.simulator.systems.rl_cycle.errors import shipped_cycle_errors

ROOT = Path(__file__).parents[2]


def rows(sources: int, each: int, width: float) -> pd.DataFrame:
    """Rows of sources, whose errors have a width beside the 5 % that their phases leave open."""
    random = np.random.default_rng(0)
    errors = random.normal(0, np.hypot(width, 0.05), sources * each)
    names = [f"source {number // each}" for number in range(sources * each)]
    return pd.DataFrame({"source": names, "error": np.expm1(errors), "width": 0.05})


@pytest.mark.parametrize("width", [0.1, 0.3])
def test_the_width_of_many_sources_is_found(width):
    assert likely_width(rows(200, 3, width)) == pytest.approx(width, rel=0.1)


def test_many_rows_of_a_source_count_as_one():
    alike = rows(20, 1, 0.1)
    loud = pd.DataFrame({"source": "loud", "error": [1.0] * 50, "width": 0.05})

    assert likely_width(pd.concat([alike, loud])) == pytest.approx(likely_width(pd.concat([alike, loud[:1]])))


def test_a_report_has_it_for_the_phases_that_are_predicted():
    given = ["cycle.steps=1", "cycle.train.level=coarse"]
    whole = simulate(ROOT / "data/scenarios/rl-cycle-qwen3-8b-8xh100.toml", given).report
    share = (whole.exposed["rollout"] + whole.exposed["train"]) / whole.makespan_s

    assert whole.rest == pytest.approx(share * shipped_cycle_errors().value)
    assert whole.budget.common == pytest.approx(whole.rest)
    assert whole.budget.deviation > whole.rest > 0


def test_a_source_is_left_out_of_its_own_interval():
    errors = shipped_cycle_errors()

    assert errors.width("a new source") == errors.width() == errors.value
    assert len(errors.without) >= 6
    assert all(errors.width(source) == width > 0 for source, width in errors.without.items())
    assert read_json(ROOT / "data/validation/cycle_errors.json")["about"]["file"] == "rl_cycle.csv"
