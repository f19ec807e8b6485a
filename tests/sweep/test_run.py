"""Running sweeps: rows in order, reasons, copies, engines, workers that die."""

import csv
from pathlib import Path

import pytest
from runcast.simulator import simulate
from runcast.simulator.answers.sweep import Outcome, Store, load_sweep, run_sweep
from runcast.simulator.answers.sweep.results import best_lines, lines, table_lines
from runcast.simulator.runner import InProcess, Processes

from .conftest import TINY, many


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "report.csv").open() as file:
        return list(csv.DictReader(file))


def swept(path: Path, folder: Path, engine=None, **options) -> list[dict[str, str]]:
    run_sweep(load_sweep(path), folder, engine or InProcess(), **options)
    return rows(folder)


@pytest.fixture
def tasks(monkeypatch):
    """The module of tasks, which spawned workers find on the path too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import sweep_tasks

    return sweep_tasks


def test_a_row_is_the_report_of_its_scenario(sweep_file, tmp_path):
    report = simulate(TINY, ["update.bucket=4 MiB"]).report
    row = swept(sweep_file(), tmp_path / "out")[-1]
    shown = [row[name] for name in ("point", "update.bucket", "status", "scenario_hash", "update_time_s")]

    assert shown == ["5", "4096 KiB", "ok", report.scenario_hash, repr(report.update_time_s)]


def test_a_refused_point_is_a_row_with_its_reason(sweep_file, tmp_path):
    row = swept(sweep_file(), tmp_path / "out")[0]
    reason = "update.bucket = '128 KiB': the largest tensor has 1 MiB and is never split"

    assert (row["status"], row["reason"], row["update_time_s"]) == ("infeasible", reason, "")


def test_what_is_no_quantity_is_refused(sweep_file, tmp_path):
    row, _ = swept(sweep_file('[[axes]]\nkey = "update.bucket"\nvalues = [[1], "4 MiB"]\n'), tmp_path / "out")

    assert (row["status"], row["reason"].partition(": ")[2]) == (
        "infeasible",
        'expected a quantity such as "8 GiB" or "6.3 GB"',
    )


def test_a_constraint_on_a_key_is_checked_before_and_one_on_a_column_after(sweep_file, tmp_path):
    text = 'constraints = ["update.bucket <= 2 MiB", "update_time_s < 1.65"]\n'
    points = 'points = [{ "update.bucket" = "1 MiB" }, { "update.bucket" = "2 MiB" }, { "update.bucket" = "4 MiB" }]\n'
    found = swept(sweep_file(text + points), tmp_path / "out")

    assert [(row["status"], row["reason"].partition(":")[0], bool(row["update_time_s"])) for row in found] == [
        ("constraint", "update_time_s < 1.65", True),
        ("ok", "", True),
        ("constraint", "update.bucket <= 2 MiB", False),
    ]


BASE = """base.kind = "train_step"
base.cluster = "dgx-h100"
base.level = "coarse"
base.recompute.mode = "full"
base.model.preset = "llama3-8b"
base.batch = { global = 8, seq_len = 8192 }"""
STEP = """table = ["step_time_s", "peak_memory_bytes"]
axes = [{ key = "parallel.zero", values = [0, 1] }]
"""


def test_a_step_that_does_not_fit_is_told_and_never_the_best(sweep_file, tmp_path):
    done = run_sweep(load_sweep(sweep_file(STEP, base=BASE)), tmp_path / "out", InProcess())
    found = rows(tmp_path / "out")

    assert [(row["status"], row["reason"].startswith("pipeline rank 0 needs "), bool(row["step_time_s"])) for row in
            found] == [("memory", True, True), ("ok", False, True)]  # fmt: skip
    assert [one.number for one in done.results.best] == [1]


RUN = BASE.replace("train_step", "run") + "\nbase.run.steps = 10"
CYCLE = """base.kind = "rl_cycle"
base.cluster = "dgx-h100"
base.model.preset = "qwen3-0.6b"
base.cycle = { train = { level = "coarse" }, update_time = 2, steps = 1 }
base.rollout = { requests = 64, engines = 8, slots = 8, token_time = 0.008, length = { kind = "fixed", tokens = 1000 } }
"""


UPDATE = f'base = "{TINY.with_name("tiny-colocated.toml")}"'
MEMORY = 'axes = [{ key = "cluster.device.memory", values = ["%s", "80 GiB"] }]\n'
BUCKET = 'points = [{ "update.free_memory" = "75 GiB", "update.bucket" = "60 GiB" }, { "update.bucket" = "1 MiB" }]\n'


@pytest.mark.parametrize(
    ("base", "points", "reason"),
    [
        (RUN, MEMORY % "40 GiB", "pipeline rank 0 needs "),
        (CYCLE, MEMORY % "4 GiB", "training: pipeline rank 0 needs "),
        (UPDATE, BUCKET, "a device needs 201 GiB of 96 GiB"),
    ],
)
def test_what_does_not_fit_is_told_whatever_is_predicted(sweep_file, tmp_path, base, points, reason):
    found = swept(sweep_file(points, base=base), tmp_path / "out")

    assert [(row["status"], row["reason"].startswith(reason), row["fits"]) for row in found] == [
        ("memory", True, "False"),
        ("ok", False, "True"),
    ]


def test_points_that_may_take_longer_than_their_intervals_say_are_counted(sweep_file, tmp_path):
    base = """base.kind = "train_step"
base.cluster = "dgx-h100"
base.level = "coarse"
base.parallel.ep = 8
base.model.preset = "qwen3-30b-a3b"
base.batch = { global = 64, seq_len = 1024 }"""
    points = 'points = [{ "batch.micro" = 1 }, { "batch.micro" = 8 }]\n'
    sweep = load_sweep(sweep_file(points, base=base))
    done = run_sweep(sweep, tmp_path / "out", InProcess())
    said = [row["not_in_interval"].partition(" ms per layer")[0] for row in rows(tmp_path / "out")]
    counted = [line for line in lines(sweep, done.counts, done.results) if "longer" in line]

    assert (said, counted) == (
        ["a micro-batch takes 2.2", ""],
        ["points that may take longer than the interval says: 1 (column not_in_interval says why)"],
    )


def test_why_a_point_was_not_predicted_is_said(sweep_file, tmp_path):
    sweep = load_sweep(sweep_file('points = [{ "update.bucket" = "1 B" }, { "update.bucket" = "8 MiB" }]\n'))
    done = run_sweep(sweep, tmp_path / "out", InProcess())
    first = rows(tmp_path / "out")[0]

    assert f"not predicted: point 0: {first['reason']} (column reason says why of each)" in [
        *lines(sweep, done.counts, done.results)
    ]


def test_a_small_sweep_gives_the_cells_that_it_wants_printed(sweep_file, tmp_path):
    table = run_sweep(load_sweep(sweep_file(STEP, base=BASE)), tmp_path / "out", InProcess()).results.table
    head = ("parallel.zero", "step_time_s", "peak_memory_bytes", "status")
    cells = [tuple(row[name] for name in head) for row in rows(tmp_path / "out")]

    assert [tuple(map(str, row)) for row in table] == [head, *cells]


def test_a_deadline_has_its_column_where_the_run_has_one(sweep_file, tmp_path):
    text = 'table = ["wall_s", "deadline_probability"]\n[[axes]]\nkey = "nodes"\nvalues = [1, 2]\n'
    run = 'base = { kind = "run", cluster = "dgx-h100", step = { time = "1 s", samples = 1 }, run = { steps = 9%s } }'
    heads = [
        run_sweep(load_sweep(sweep_file(text, base=run % deadline)), tmp_path / folder, InProcess()).results.table[0]
        for folder, deadline in (("without", ""), ("with", ', deadline = "1 h"'))
    ]

    assert heads == [("nodes", "wall_s", "status"), ("nodes", "wall_s", "deadline_probability", "status")]


def test_a_sweeps_name_tells_what_set_changed(sweep_file):
    assert load_sweep(sweep_file(base=f'name = "buckets"\nbase = "{TINY}"'), ["nodes=1"]).name == "buckets with nodes=1"


def test_tables_on_an_axis_are_printed_as_toml_and_not_too_long():
    modules = {"mode": "selective", "modules": ["layernorm", "activation"]}
    rows = [({"mode": "full"}, 1.5, "ok"), (modules, None, "infeasible")]

    assert list(table_lines([("recompute", "step_time_s", "status"), *rows])) == [
        "recompute                                 step_time_s  status",
        '{mode = "full"}                                 1.5 s  ok',
        '{mode = "selective", modules = ["laye...               infeasible',
    ]


def test_a_list_on_an_axis_is_printed_as_toml(sweep_file, tmp_path):
    points = 'points = [{ "slow" = [{ node = 0, factor = 2 }] }]\n'
    results = run_sweep(load_sweep(sweep_file(points)), tmp_path / "out", InProcess()).results

    assert list(best_lines(results))[1].endswith("point 0: slow = [{node = 0, factor = 2}]")


def test_our_own_fault_is_a_row_too(sweep_file, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("no reason")

    monkeypatch.setattr("runcast.simulator.answers.sweep.plan.simulate", broken)
    found = swept(sweep_file(many(2)), tmp_path / "out")

    assert [(row["status"], row["reason"]) for row in found] == [("failed", "ZeroDivisionError: no reason")] * 2


def test_a_what_if_multiplies_what_an_axis_says(sweep_file, tmp_path):
    text = '[[axes]]\nkey = "update.bucket"\nvalues = ["1 MiB", "2 MiB"]\n[[axes]]\nwhat_if = ["as is", "bucket x2"]\n'
    found = [row["scenario_hash"] for row in swept(sweep_file(text), tmp_path / "out")]

    assert found == [
        simulate(TINY, [f"update.bucket={size}"]).report.scenario_hash for size in ("1 MiB", "2 MiB", "2 MiB", "4 MiB")
    ]


def test_a_key_below_a_table_is_changed_in_each_of_the_tables(sweep_file, tmp_path):
    machines, nics = ("'h20-hgx'", "{ base = 'h20-hgx', nics = 4 }"), ("100 Gb/s", "200 Gb/s")
    axes = f"{{ key = 'cluster', values = [{', '.join(machines)}] }}, {{ key = 'cluster.nic', values = {list(nics)} }}"
    found = [row["scenario_hash"] for row in swept(sweep_file(f"axes = [{axes}]\n"), tmp_path / "out")]

    assert found == [
        simulate(TINY, [f"cluster={machine}", f"cluster.nic={nic}"]).report.scenario_hash
        for machine in machines
        for nic in nics
    ]


@pytest.mark.parametrize(
    "engine", [InProcess(), pytest.param(Processes(2), marks=pytest.mark.slow)], ids=["in process", "pool"]
)
def test_a_machine_file_that_changes_between_two_sweeps_counts(sweep_file, tmp_path, engine):
    machine = tmp_path / "mine.toml"
    path = sweep_file(f'axes = [{{ key = "cluster", values = ["{machine}"] }}]\n', base=BASE)
    memory = {}
    for said in ("80 GiB", "90 GiB"):
        machine.write_text(f'base = "dgx-h100"\ndevice = {{ base = "h100-sxm", memory = "{said}" }}\n')
        memory[said] = swept(path, tmp_path / said, engine)[0]["device_memory_bytes"]

    assert memory == {"80 GiB": str(80 * 2**30), "90 GiB": str(90 * 2**30)}


def test_points_that_ask_the_same_are_computed_once(sweep_file, tmp_path, tasks):
    asked: list[int] = []

    def counting(point, memo):
        asked.append(point.number)
        return tasks.cheap(point)

    text = 'points = [{ "nodes" = 1 }, { "nodes" = 2 }, { "nodes" = 1 }, {}]\n'
    found = swept(sweep_file(text), tmp_path / "out", task=counting)

    assert (asked, [row["update_time_s"] == found[0]["update_time_s"] for row in found]) == (
        [0, 1],
        [True, False, True, True],
    )


@pytest.mark.slow
def test_a_pool_gives_the_bytes_of_one_process(sweep_file, tmp_path):
    path = sweep_file()
    swept(path, tmp_path / "one")
    swept(path, tmp_path / "pool", Processes(2))

    assert (tmp_path / "pool/report.csv").read_bytes() == (tmp_path / "one/report.csv").read_bytes()


def test_parquet_holds_what_the_report_does(sweep_file, tmp_path):
    import pandas as pd

    swept(sweep_file(), tmp_path / "out")
    found = pd.read_csv(tmp_path / "out/report.csv"), pd.read_parquet(tmp_path / "out/rows")
    report, parts = (frame.astype(object).where(frame.notna() & (frame != ""), None) for frame in found)

    pd.testing.assert_frame_equal(parts, report, check_exact=True)


@pytest.mark.slow
def test_a_point_that_kills_three_workers_is_given_up_and_the_others_are_not(sweep_file, tmp_path, tasks):
    deaths = tmp_path / "deaths"
    found = swept(sweep_file(many(20)), tmp_path / "out", Processes(2), task=tasks.Deadly(7, str(deaths)))

    assert ([row["point"] for row in found if row["status"] != "ok"], found[7]["reason"], deaths.read_text()) == (
        ["7"],
        "its worker process died 3 times, perhaps for lack of memory",
        "started\n" * 4,
    )


def test_a_finished_sweep_computes_nothing_again(sweep_file, tmp_path, tasks):
    path = sweep_file(many(5))
    first = swept(path, tmp_path / "out", task=tasks.cheap)
    again = swept(path, tmp_path / "out", task=lambda points, memo: pytest.fail("computed again"))

    assert again == first


def test_progress_counts_what_was_done_before(sweep_file, tmp_path, tasks):
    path, seen = sweep_file(many(5)), []
    sweep = load_sweep(path)
    with Store.open(tmp_path / "out", sweep) as store:
        store.record([tasks.cheap(sweep.point(0)), tasks.cheap(sweep.point(3))])
    run_sweep(sweep, tmp_path / "out", InProcess(), seen.append, tasks.cheap)

    assert [(one.done, one.began, one.total) for one in (seen[0], seen[-1])] == [(2, 2, 5), (5, 2, 5)]


def test_the_best_points_are_the_quickest_updates(sweep_file, tmp_path, tasks):
    results = run_sweep(load_sweep(sweep_file(many(9))), tmp_path / "out", InProcess(), task=tasks.cheap).results

    assert [one.number for one in results.best] == [0, 1, 2, 3, 4]


def test_an_outcome_is_recorded_whole_or_not_at_all(sweep_file, tmp_path, tasks):
    sweep = load_sweep(sweep_file(many(3)))
    with Store.open(tmp_path / "out", sweep) as store:
        bad = Outcome(1, "asked", "ok", "", "hash", {"update_time_s": object()})
        with pytest.raises(TypeError):
            store.record([tasks.cheap(sweep.point(0)), bad])

        assert list(store.open_numbers(3)) == [0, 1, 2]
