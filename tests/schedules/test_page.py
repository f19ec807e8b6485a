"""docs/schedules.md says what the code does: its tables, its pictures, its example."""

import csv
import re
from pathlib import Path

import pytest
from runcast.simulator.schedules import SCHEDULES, Grid, build, chart, dry_run

PAGE = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text()
OPTIMA = list(csv.DictReader((Path(__file__).parent / "optimal.csv").open()))
P, M, SHARE = 8, 24, {"F": 2.0, "B": 4.0, "I": 2.0, "W": 2.0}


def rows(title: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    part = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line[:1] == "|"][2:]


def numbers(name: str) -> list[str]:
    """Makespan, bubble, idle, peak and overlapped makespan as the page writes them."""
    schedule = SCHEDULES[name]
    grid = build(name, P, M, chunks=2 if schedule.chunks is None else 1)
    share = grid.stages // P  # chunks of a rank, each with that part of the rank's time
    seconds = {kind: time / share for kind, time in SHARE.items()}
    dry, fast = dry_run(grid, seconds), dry_run(grid, seconds, lambda *_: seconds["B"])
    plain = [dry.makespan, dry.bubble, max(dry.idle), max(dry.peaks) / share]
    return [*(f"{value:g}" for value in plain), f"{fast.makespan:g}" if grid.pairs else "-"]


def test_table_of_schedules():
    assert [(row[0], row[2:]) for row in rows("What there is")] == [(name, numbers(name)) for name in SCHEDULES]


def test_every_schedule_has_its_closed_forms():
    assert [row[0] for row in rows("Closed forms")] == list(SCHEDULES)


@pytest.mark.parametrize("picture", re.findall(r"^```text (.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
def test_pictures(picture):
    size, _, drawn = picture.partition("\n")
    name, *numbers = size.split()

    assert f"{chart(dry_run(build(name, *map(int, numbers)), {'F': 1, 'B': 2, 'I': 1, 'W': 1}))}\n" == drawn


def test_gaps_are_those_that_were_proved():
    gaps = [row for row in OPTIMA if row["makespan"] != row["optimum"]]
    columns = ("schedule", "ranks", "microbatches", "makespan", "optimum")

    assert rows("How good they are") == [[row[column] for column in columns] for row in gaps]
    assert f"Of {len(OPTIMA)} grids {len(OPTIMA) - len(gaps)} are optimal." in PAGE


def test_dualpipe_with_its_pairs_opened_is_optimal():
    rows = [row for row in OPTIMA if row["schedule"].startswith("dualpipe")]

    assert [opened(row) for row in rows] == [int(row["optimum"]) for row in rows]


def opened(row: dict[str, str]) -> float:
    grid = build(row["schedule"], int(row["ranks"]), int(row["microbatches"]))
    single = tuple(tuple((action,) for action in grid.actions(rank)) for rank in range(grid.ranks))
    return dry_run(Grid(grid.name, single, grid.stages, grid.microbatches), {"F": 1, "B": 2, "I": 1, "W": 1}).makespan


def test_example_runs(capsys):
    exec(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0], {})

    assert capsys.readouterr().out.startswith(str(build("zb-v", 4, 8)))
