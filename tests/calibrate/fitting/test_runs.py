"""A few runs of one's own, as a stack: it tells what made them, predicts others by that, and leaves the rest alone."""

import csv
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.calibrate.fitting.learning import Parts, learn, leave_one_out, scatter_of
from runcast.calibrate.fitting.runs import ALONE, learn_runs
from runcast.calibrate.fitting.steps import SIGMA
from runcast.simulator.answers.validate.steps import read_cases, shipped_table
from runcast.simulator.base.errors import UserError
from runcast.simulator.costs import PHASES
from runcast.simulator.profile import load_stack
from runcast.simulator.scenario import check_train, resolve
from runcast.simulator.systems.train_step.errors import errors_of_phases
from runcast.simulator.uncertainty import shipped_fit

from ...command import runcast

BASE = "megatron-core"
SLOWER = {"time_factor.gemm": 1.2, "time_factor.attention": 1.6}
"""How much longer phases of the runs below take than on the base."""

PRIOR = np.diag([0.1, 0.2, 0.3]) ** 2
SECONDS = np.array([[5, 1, 0.5], [4, 2, 0.5], [3, 1, 3], [6, 0.5, 1], [5, 3, 0.1], [4, 0.2, 2]], float)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Eight small dense steps of one source, in two files, whose phases are slower than the base by `SLOWER`."""
    with shipped_table().open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "simumax_b200" and row["arch"] == "dense"]
    rows.sort(key=lambda row: float(row["gbs"]) / float(row["dp"]) * float(row["layers"]))
    own, others = (tmp_path_factory.mktemp("runs") / name for name in ("own.csv", "others.csv"))
    for path, chosen in ((own, rows[:10:2]), (others, rows[1:7:2])):
        chosen = [{**row, "framework": "", "tokens_per_s_per_gpu": ""} for row in chosen]
        write(path, chosen)
        cases = read_cases(path, BASE)
        stated = cases[0].resolved.profile
        values = {name: stated.value_or(name, 1.0) * factor for name, factor in SLOWER.items()}
        times = [case.answer(values, memory=False).seconds for case in cases]
        write(path, [{**row, "iter_time_s": f"{s:.6g}"} for row, s in zip(chosen, times, strict=True)])
    return own, others


def write(path, rows):
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


def changed(path, folder, line, **cells):
    """A copy of a file whose row `line` has other cells."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows[line] |= cells
    write(folder / "runs.csv", rows)
    return folder / "runs.csv"


@given(factors=st.lists(st.floats(0.7, 1.5), min_size=3, max_size=3))
def test_exact_runs_tell_their_factors(factors):
    measured = SECONDS @ np.array(factors)

    found = learn(Parts.one_cause_each(SECONDS), measured, PRIOR * 100, sigma=1e-4)

    assert np.exp(found.u) == pytest.approx(factors, rel=0.01)


@given(runs=st.integers(1, 6))
def test_runs_as_predicted_change_nothing_but_the_spread(runs):
    seconds = SECONDS[:runs]

    found = learn(Parts.one_cause_each(seconds), seconds.sum(axis=1), PRIOR, sigma=0.07)

    assert found.u == pytest.approx(np.zeros(3), abs=1e-9)
    assert (np.diag(found.covariance) <= np.diag(PRIOR)).all()


def test_what_no_run_shows_stays_as_it_was():
    seconds = SECONDS * [1, 1, 0]

    found = learn(Parts.one_cause_each(seconds), seconds.sum(axis=1) * 1.15, PRIOR, sigma=0.07)

    assert (found.u[2], found.covariance[2, 2]) == (0, PRIOR[2, 2])


def test_one_run_that_contradicts_the_others_counts_little():
    measured = SECONDS.sum(axis=1) * [1, 1, 1, 1, 1, 3]

    found = learn(Parts.one_cause_each(SECONDS), measured, PRIOR, sigma=0.07)

    assert np.abs((SECONDS[:5] @ np.exp(found.u)) / measured[:5] - 1).max() < 0.05


@pytest.mark.slow
def test_a_stack_of_own_runs_predicts_others(runs, tmp_path):
    own, others = runs
    stack = tmp_path / "mine.toml"
    assert runcast("calibrate", "runs", own, "--base", BASE, "--out", stack).returncode == 0

    error = {}
    for name in (BASE, str(stack)):
        cases = read_cases(others, name)
        error[name] = np.median([abs(case.answer(memory=False).seconds / case.seconds - 1) for case in cases])
    assert error[str(stack)] < error[BASE] / 2


@pytest.fixture(scope="module")
def typed(runs, tmp_path_factory):
    """The runs again, every second one in fp8, whose products take 1.4 times as long as those in bf16."""
    folder, found = tmp_path_factory.mktemp("typed"), []
    for path in runs:
        with path.open(newline="") as file:
            rows = [{**row, "precision": ("bf16", "fp8")[at % 2]} for at, row in enumerate(csv.DictReader(file))]
        write(folder / path.name, rows)
        slower = [
            case.answer({"time_factor.gemm.fp8": 1.4}, memory=False) for case in read_cases(folder / path.name, BASE)
        ]
        times = [f"{answer.seconds:.6g}" for answer in slower]
        write(folder / path.name, [{**row, "iter_time_s": s} for row, s in zip(rows, times, strict=True)])
        found.append(folder / path.name)
    return found


def test_runs_in_two_data_types_tell_them_apart(typed, tmp_path):
    own, others = typed
    stack = tmp_path / "mine.toml"
    assert runcast("calibrate", "runs", own, "--base", BASE, "--out", stack).returncode == 0

    learned, errors = (
        load_stack(str(stack)),
        [abs(case.answer(memory=False).seconds / case.seconds - 1) for case in read_cases(others, str(stack))],
    )
    ratio = learned.value("time_factor.gemm.fp8") / learned.value("time_factor.gemm.bf16")
    assert (ratio, max(errors)) == (pytest.approx(1.4, rel=0.07), pytest.approx(0, abs=0.04))


def test_a_factor_of_a_data_type_moves_products_of_this_type_alone(runs):
    case = read_cases(runs[0], BASE)[0]
    other, own = (case.answer({f"time_factor.gemm.{name}": 2.0}, memory=False).phase_s for name in ("fp8", "bf16"))
    before = case.answer(memory=False).phase_s

    moved = [phase for phase, by in zip(PHASES, own / np.maximum(before, 1e-12), strict=True) if by > 1.5]
    assert (moved, list(other)) == (["gemm"], list(before))


def test_the_stack_says_where_its_numbers_come_from(runs):
    found = learn_runs([runs[0]], BASE).stack(Path("mine.toml"))

    entries = found["parameters"].values()
    assert (found["base"], {entry["provenance"] for entry in entries}) == (BASE, {"fitted"})
    assert all("5 runs of own.csv" in entry["source"] for entry in entries)


def test_what_was_learned_is_said_in_words(runs):
    found = learn_runs([runs[0]], BASE)

    first = next(line for line in found.lines() if "times as long" in line)
    assert first.split()[0] == "gemm"


def test_intervals_shrink_by_what_was_learned(runs, tmp_path):
    own, others = runs
    stack = tmp_path / "mine.toml"
    runcast("calibrate", "runs", own, "--base", BASE, "--out", stack)

    before, after = (read_cases(others, name)[0].answer(memory=False) for name in (BASE, str(stack)))
    assert after.high_s / after.low_s < before.high_s / before.low_s


def test_a_run_that_disagrees_is_named(runs, tmp_path):
    longer = changed(runs[0], tmp_path, 2, iter_time_s="4")
    found = learn_runs([longer], BASE)

    assert [line.split()[1] for line in found.lines() if line.startswith("disagrees")] == [f"{longer}:4"]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (
            {"iter_time_s": "1390"},
            r":3: iter_time_s = 1390: would be .*; expected seconds of one step, not milliseconds$",
        ),
        ({"iter_time_s": ""}, r":3: iter_time_s is not stated$"),
        ({"iter_time_s": "fast"}, r":3: iter_time_s = 'fast': expected a number above zero$"),
        ({"tp": "3"}, r":3: tp 3 x pp 1 x cp \d+ = \d+: expected a divisor of n_gpus = 8$"),
        ({"dp": "64"}, r":3: n_gpus = 8: expected tp .* dp 64 = "),
        ({"gpu": "H100-SXM-80GB"}, r":3: gpu = 'H100-SXM-80GB': expected one gpu in all runs"),
    ],
)
def test_a_row_that_is_no_run_is_one_line_and_nothing_is_written(runs, tmp_path, cells, said):
    wrong, stack = changed(runs[0], tmp_path, 1, **cells), tmp_path / "mine.toml"

    done = runcast("calibrate", "runs", wrong, "--base", BASE, "--out", stack)

    lines = done.stderr.splitlines()
    assert (done.returncode, stack.exists(), [line.startswith(f"error: {wrong}:3: ") for line in lines]) == (
        2,
        False,
        [True] * len(lines),
    )
    with pytest.raises(UserError, match=said):
        learn_runs([wrong], BASE)


def test_one_run_is_enough_and_a_learned_stack_may_be_a_base(runs, tmp_path, monkeypatch):
    one, first, second = tmp_path / "one.csv", tmp_path / "first.toml", tmp_path / "deep/second.toml"
    second.parent.mkdir()
    one.write_text("\n".join(runs[0].read_text().splitlines()[:2]) + "\n")
    monkeypatch.chdir(tmp_path)

    done = [
        runcast("calibrate", "runs", rows, "--base", base, "--out", out, cwd=tmp_path)
        for rows, base, out in ((one, BASE, first), (runs[1], "first.toml", second))
    ]

    known = [load_stack(str(path)).parameters["time_factor.gemm"].spread for path in (first, second)]
    assert ([each.returncode for each in done], known[1] < known[0]) == ([0, 0], True)


def test_a_run_alone_is_believed_less_than_one_of_several(runs, tmp_path):
    """What it takes for itself nothing tells from what its site takes."""
    one = tmp_path / "one.csv"
    one.write_text("\n".join(runs[0].read_text().splitlines()[:2]) + "\n")

    scatter = [learn_runs([rows], BASE).scatter for rows in (one, runs[0])]

    assert scatter == [ALONE, SIGMA]


@pytest.mark.parametrize("factor", [0.5, 1.5, 3.0])
@pytest.mark.parametrize("runs", [2, 3, len(SECONDS)])
def test_runs_that_agree_are_believed_however_far_from_the_base(runs, factor):
    """Two of them, too: each is no odd one beside the prior."""
    measured = SECONDS[:runs].sum(axis=1) * factor

    found = learn(Parts.one_cause_each(SECONDS[:runs]), measured, PRIOR, sigma=0.05)

    assert SECONDS[:runs] @ np.exp(found.u) == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(
    ("off", "least", "most"),
    [([1.4, 0.7, 1.4, 0.7, 1.4, 0.7], 0.25, 0.5), ([1.3] * 6, 0.05, 0.05), ([1, 1, 1, 1, 1, 3], 0.05, 0.05)],
    ids=["contradict each other", "agree", "one is odd"],
)
def test_runs_tell_their_scatter(off, least, most):
    measured = SECONDS.sum(axis=1) * off

    found = scatter_of(Parts.one_cause_each(SECONDS), measured, PRIOR, 0.05, list("abcdef"))

    assert least <= found <= most


def test_intervals_hold_what_runs_scatter(runs, tmp_path):
    with runs[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    for at, row in enumerate(rows):
        row["iter_time_s"] = f"{float(row['iter_time_s']) * (1.4, 0.7)[at % 2]:.6g}"
    write(tmp_path / "runs.csv", rows)

    found = learn_runs([tmp_path / "runs.csv"], BASE)

    root = np.array(found.stack(tmp_path / "mine.toml")["covariance"]["root"])
    said = [line for line in found.lines() if line.startswith("contradictory: the runs scatter by ")]
    assert (len(said), np.linalg.norm(root[0]) > 0.2) == (1, True)


REPEATED = np.repeat(np.arange(3), 3)
"""The numbers of three configurations of which each ran three times."""


def measured_s(configurations):
    """Seconds of the first configurations, which phases that take longer do not explain to the last percent."""
    return SECONDS[configurations] @ [1.3, 0.8, 1.5] * np.array([1.04, 0.97, 1.01])[configurations]


def names_of(configurations):
    return [f"configuration {which}" for which in configurations]


def test_repeats_of_configurations_teach_no_more_than_one_run_of_each():
    parts, once = Parts.one_cause_each(SECONDS[:3]), np.arange(3)
    alone = learn(parts, measured_s(once), PRIOR, 0.05, names_of(once))
    repeated = learn(parts.choose(REPEATED), measured_s(REPEATED), PRIOR, 0.05, names_of(REPEATED))

    assert (repeated.u, repeated.covariance) == (pytest.approx(alone.u), pytest.approx(alone.covariance))


def test_a_run_is_not_predicted_by_its_repeats():
    parts, once = Parts.one_cause_each(SECONDS[:3]), np.arange(3)
    error, _ = leave_one_out(parts, measured_s(once), PRIOR, 0.05, names_of(once))
    repeated, _ = leave_one_out(parts.choose(REPEATED), measured_s(REPEATED), PRIOR, 0.05, names_of(REPEATED))

    assert repeated == pytest.approx(error[REPEATED])


def test_a_configuration_takes_the_geometric_mean_of_its_repeats():
    parts, mean_s = Parts.one_cause_each(SECONDS[:1]), SECONDS[:1].sum(axis=1)
    found = learn(parts.choose([0, 0]), mean_s * [0.9, 1 / 0.9], PRIOR, 0.05, ["same", "same"])

    assert found.u == pytest.approx(np.zeros(3), abs=1e-9)


def test_repeats_that_agree_are_believed_however_far_from_the_base():
    parts, measured = Parts.one_cause_each(SECONDS[:1]).choose([0, 0]), np.full(2, 3 * SECONDS[0].sum())
    found = learn(parts, measured, PRIOR, 0.05, ["same", "same"])

    assert SECONDS[0] @ np.exp(found.u) == pytest.approx(measured[0], rel=0.1)


def test_repeats_of_one_configuration_do_not_predict_each_other(runs, tmp_path):
    with runs[0].open(newline="") as file:
        row = next(csv.DictReader(file))
    write(tmp_path / "runs.csv", [row, row | {"id": "again"}])
    first, *others = learn_runs([tmp_path / "runs.csv"], BASE).lines()

    said = [line for line in others if "by the others" in line]
    assert (first.split(" of ")[0], said) == ("2 runs (1 configuration)", [])


def test_what_the_runs_had_no_part_of_makes_intervals_wider(runs, tmp_path):
    stack = tmp_path / "mine.toml"
    runcast("calibrate", "runs", runs[0], "--base", BASE, "--out", stack)
    step = {
        "kind": "train_step", "cluster": "dgx-b200", "model": {"preset": "llama3-8b"}, "stack": str(stack),
        "batch": {"global": 16, "micro": 1, "seq_len": 8192}, "parallel": {"zero": 3},
    }  # fmt: skip

    width = {
        name: np.sqrt(errors_of_phases(resolve(check_train({**step, **changes})), shipped_fit()).covariance[0, 0])
        for name, changes in {
            "same": {}, "type": {"precision": {"compute": "fp8"}}, "gpu": {"cluster": "dgx-a100"}
        }.items()
    }  # fmt: skip
    assert min(width["type"], width["gpu"]) > np.hypot(width["same"], shipped_fit().site)  # another site of the stack


def test_a_file_that_is_read_is_not_written_over(runs, tmp_path):
    stack = tmp_path / "mine.toml"
    runcast("calibrate", "runs", runs[0], "--base", BASE, "--out", stack)
    before = stack.read_text()

    done = runcast("calibrate", "runs", runs[1], "--base", stack, "--out", stack)

    assert (done.returncode, done.stderr, stack.read_text()) == (
        2, f"error: --out {stack}: is a file that is read; it is not written over\n", before,
    )  # fmt: skip


def test_a_column_that_is_nearly_known_is_a_slip(runs, tmp_path):
    slip = tmp_path / "runs.csv"
    slip.write_text(runs[0].read_text().replace(",kv_heads,", ",KV_head,", 1))

    with pytest.raises(UserError, match=r"runs.csv:1: column 'KV_head': unknown; did you mean kv_heads\?$"):
        learn_runs([slip], BASE)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"gemm", "attention"', '"gemm", "gemm"', "expected each phase once in `of`"),
        ("root = [[", "root = [[0.1], [", "expected 13 rows of 13 numbers in `root`"),
    ],
)
def test_a_covariance_changed_by_hand_is_checked(runs, tmp_path, old, new, said):
    stack = tmp_path / "mine.toml"
    runcast("calibrate", "runs", runs[0], "--base", BASE, "--out", stack)
    stack.write_text(stack.read_text().replace(old, new, 1))

    with pytest.raises(UserError, match=said):
        load_stack(str(stack))


def test_a_profile_is_no_base(runs, tmp_path):
    done = runcast("calibrate", "runs", runs[0], "--base", "data/profiles/h100-sxm.json", "--out", tmp_path / "m.toml")

    assert (done.returncode, "expected a software stack" in done.stderr) == (2, True)


def test_a_base_that_is_no_stack_names_those_that_are(runs, tmp_path):
    done = runcast("calibrate", "runs", runs[0], "--base", "megatron-cor", "--out", tmp_path / "mine.toml")

    assert (done.returncode, "megatron-core" in done.stderr) == (2, True)


def test_rows_of_software_that_nobody_knows_are_validated_on_a_stack(runs, tmp_path):
    own = changed(runs[0], tmp_path, 0, framework="our own")

    assert (
        runcast("validate", "--kind", "train_step", "--rows", own, "--stack", BASE).returncode,
        runcast("validate", "--kind", "gemm", "--stack", BASE).stderr,
    ) == (0, "error: --stack: goes with --kind weight_update and train_step only\n")


def test_a_written_stack_holds_factors_of_phases_alone(runs, tmp_path):
    stack = tmp_path / "mine.toml"
    runcast("calibrate", "runs", runs[0], "--base", BASE, "--out", stack)

    names = tomllib.loads(stack.read_text())["parameters"]
    assert {name.split(".")[1] for name in names} <= set(PHASES)
