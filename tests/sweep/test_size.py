"""Sweeps of any length need no more memory than short ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import TINY

CODE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from sweep_tasks import cheap
from runcast.simulator.scenario import load_scenario
from runcast.simulator.answers.sweep import Axis, Grid, Sweep, run_sweep
from runcast.simulator.runner import InProcess
from runcast.simulator.base.files import read_toml
import pyarrow.parquet

points = int(sys.argv[4])
grid = Grid((Axis.of("update.ranks", range(100)), Axis.of("seed", range(points // 100))))
sweep = Sweep("many", "here", read_toml(Path(sys.argv[2])), sys.argv[2], grid)
swept = run_sweep(sweep, Path(sys.argv[3]), InProcess(), task=cheap)
assert swept.counts == {"ok": points}
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def peak_mb(folder: Path, points: int) -> float:
    arguments = [str(Path(__file__).parent), str(TINY), str(folder), str(points)]
    done = subprocess.run([sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) / 1000


@pytest.mark.slow
def test_memory_is_flat_over_a_hundred_thousand_points(tmp_path):
    few, many = peak_mb(tmp_path / "few", 10_000), peak_mb(tmp_path / "many", 100_000)

    assert many - few < 20, f"{few:.0f} MB, then {many:.0f} MB"
