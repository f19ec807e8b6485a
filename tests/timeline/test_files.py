"""Files of a timeline: numbers read back."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.systems.weight_update.lower import BucketSize, make_plan, two_stage
from runcast.simulator.timeline import Timeline, spans_of_ranks, write_csv


def update() -> Timeline:
    program = two_stage(make_plan(np.full(8, 256), 4, BucketSize(256, 3), classes=[range(4)]))
    return simulate(program, kind_costs(program, {"h2d": 1 / 3, "broadcast": 0.1, "reload": 1e-7 / 7}))


@pytest.mark.parametrize("name", ["spans.csv", "spans.csv.gz"])
def test_numbers_of_a_csv_read_back_exactly(tmp_path: Path, name: str) -> None:
    write_csv(update(), tmp_path / name, range(4))
    back = pd.read_csv(tmp_path / name)
    expected = spans_of_ranks(update())
    numbers = ["rank", "op", "ready_s", "start_s", "end_s", "queued_s", "bytes", "rate_bytes_per_s"]
    pd.testing.assert_frame_equal(back[numbers], expected[numbers], check_exact=True)
    assert back.bucket.fillna(-1).tolist() == expected.bucket.tolist()


def test_without_ranks_a_csv_leaves_nothing_out(tmp_path: Path) -> None:
    write_csv(update(), tmp_path / "all.csv")
    back = pd.read_csv(tmp_path / "all.csv")
    assert set(back.op) == set(range(len(update().program)))
    assert back[back.kind == "reload"].ranks.unique().tolist() == [4]
