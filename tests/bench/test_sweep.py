"""What a sweep costs beside its predictions: seconds per point for choosing, sending, recording and reporting it.

Nothing here asserts a time; a point that does nothing is timed, in this process and on a pool of two.
"""

from pathlib import Path

import pytest
from runcast.simulator import simulate
from runcast.simulator.answers.sweep import Axis, Grid, Outcome, Sweep, flat_columns, run_sweep
from runcast.simulator.base.files import read_toml
from runcast.simulator.base.memo import Memo
from runcast.simulator.runner import InProcess, Processes
from runcast.simulator.scenario import check_question

ROOT = Path(__file__).parents[2]
COARSE = ROOT / "data/sweeps/llama3-70b-plans.toml"
POINTS = 3_000


class Nothing:
    """A task that gives every point the row of one training step."""

    def __init__(self, row: dict[str, object]):
        self.row = row

    def __call__(self, point, memo):
        return Outcome(point.number, point.asked, "ok", "", point.asked, self.row)


@pytest.fixture
def sweep():
    """So many micro-batch sizes and sequence lengths of a coarse training step."""
    grid = Grid((Axis.of("batch.micro", range(1, 101)), Axis.of("batch.seq_len", range(1, POINTS // 100 + 1))))
    return Sweep("nothing", "here", read_toml(COARSE)["base"], str(COARSE), grid)


@pytest.mark.parametrize("workers", [1, 2])
def test_overhead_of_a_point(benchmark, sweep, tmp_path, monkeypatch, workers):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import test_sweep as here  # by a name under which workers find it

    base = check_question(sweep.base, str(COARSE))
    task = here.Nothing(flat_columns(simulate(base, memo=Memo()).report.to_json()))
    engine = InProcess() if workers == 1 else Processes(workers)
    folders = iter(tmp_path / str(i) for i in range(99))
    benchmark.pedantic(lambda: run_sweep(sweep, next(folders), engine, task=task), rounds=2, warmup_rounds=0)

    benchmark.extra_info["ms_per_point"] = round(benchmark.stats.stats.min / POINTS * 1e3, 3)


@pytest.mark.parametrize("workers", [1, 2])
def test_coarse_points_that_share_nothing(benchmark, tmp_path, workers):
    """Coarse training steps of which no two share a Program, so no memo helps; workers start within these seconds."""
    grid = Grid((Axis.of("batch.seq_len", range(1024, 1024 + 8 * 100, 8)),))
    sweep = Sweep("coarse", "here", read_toml(COARSE)["base"], str(COARSE), grid)
    engine = InProcess() if workers == 1 else Processes(workers)
    folders = iter(tmp_path / str(i) for i in range(99))
    benchmark.pedantic(lambda: run_sweep(sweep, next(folders), engine), rounds=1, warmup_rounds=0)

    benchmark.extra_info["points_per_s"] = round(len(grid) / benchmark.stats.stats.min, 1)
