"""One small grid of each schedule as a file that can be read and compared by eye.

The file of a new one: python tests/schedules/test_golden.py NAME > tests/schedules/NAME.txt
"""

import sys
from pathlib import Path

import pytest
from runcast.simulator.schedules import SCHEDULES, build, chart, dry_run

HERE = Path(__file__).parent
UNITS = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}


def golden(name: str):
    """(4, 8) is the smallest DualPipe with a step of every phase."""
    p, m = (4, 8) if name == "dualpipe" else (3, 6)
    return build(name, p, m, 2 if name.startswith("interleaved") else 1)


@pytest.mark.parametrize("name", SCHEDULES)
def test_grid_is_that_of_the_file(name):
    assert f"{golden(name)}\n" == (HERE / f"{name}.txt").read_text()


def test_every_file_has_its_schedule():
    assert {path.stem for path in HERE.glob("*.txt")} == set(SCHEDULES)


def test_chart():
    assert chart(dry_run(build("zb-v", 2, 2), UNITS)).splitlines() == [
        "F0  F1  .   F0' I0' W0' F1' I0  I1' W0  W1' I1  W1",
        ".   F0  F0' F1  F1' I0' I0  W0' W0  I1' I1  W1' W1",
    ]


def test_chart_of_pairs_and_longer_actions():
    assert chart(dry_run(build("interleaved-overlap", 2, 2), UNITS)).splitlines() == [
        "F0    F1    .     .     .     B0    -     B1    -",
        ".     F0    F1&B0 -     -     B1    -     .     .",
    ]


if __name__ == "__main__":
    print(golden(sys.argv[1]))
