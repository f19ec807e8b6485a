"""What a search writes can be used: the winner simulates to its number, its arguments import back, tables are whole."""

import csv
import re
from dataclasses import replace
from functools import cache

import pytest
from runcast.simulator import UserError, simulate
from runcast.simulator.answers.search import Wanted, search
from runcast.simulator.answers.search.outputs import check_folder, differences, distinct_texts, lines, write_files
from runcast.simulator.answers.search.records import LEFT, SIMULATED
from runcast.simulator.base.files import read_toml
from runcast.simulator.formats.recipes import import_recipe, read_recipe
from runcast.simulator.scenario import change

from .small import DENSE, EXPERTS, PLAIN, SENDER, SPACES, best_value, brute_force, table_of

ASKED = {
    "dense": (DENSE, {"wanted": Wanted(("interleaved",), fix={**PLAIN, "parallel.tp": 2}), "check": 0}),
    "experts": (EXPERTS, {"wanted": SPACES["experts"][3], "check": 1}),
    "update": (SENDER, {"wanted": SPACES["pause"][3]}),
}  # fmt: skip


@cache
def one(which):
    """A search, made once by who reads it first, not by everybody who collects tests."""
    table, how = ASKED[which]
    return search(table, **how, workers=1)


@pytest.mark.parametrize("which", ASKED)
def test_the_winner_simulates_to_the_number_that_was_reported(which, tmp_path):
    found = one(which)
    told = found.checked.get(found.winner) or found.rows[found.winner].measured

    write_files(found, tmp_path / "new" / "folder")

    report = simulate(tmp_path / "new/folder/winner.toml").report
    seconds = report.update_time_s if which == "update" else report.step_time_s
    assert seconds == told.time_s


def test_a_step_takes_the_winners_plan_and_its_title_says_which(tmp_path):
    found = one("dense")
    write_files(found, tmp_path)
    own = {**found.question.table, "name": "mine"}

    report = simulate(change(own, {"plan": str(tmp_path / "winner.toml"), "level": "coarse"}, "")).report

    told = found.checked.get(found.winner) or found.rows[found.winner].measured
    title = read_toml(tmp_path / "winner.toml")["name"]
    assert (report.step_time_s, title.startswith("winner: tp ")) == (told.time_s, True)


def test_files_that_a_scenario_names_are_named_from_the_winners_folder(tmp_path):
    (tmp_path / "machine.toml").write_text('base = "dgx-h100"\n')
    scenario = tmp_path / "scenario.toml"
    scenario.write_text("the table is given: this is where it stands")
    table = change({**DENSE, "cluster": "machine.toml"}, {}, "")
    wanted = Wanted(("1f1b",), fix={**PLAIN, "parallel.cp": 1, "parallel.tp": 1, "batch.micro": 1, "parallel.pp": 1})
    found = search(table, wanted=wanted, check=0, workers=1, where=str(scenario))

    write_files(found, tmp_path / "out")

    assert simulate(tmp_path / "out/winner.toml").report.step_time_s == found.rows[found.winner].measured.time_s
    assert (tmp_path / "out/winner.megatron.txt").read_text().startswith("# runcast: level")


@pytest.mark.parametrize("which", ["dense", "experts"])
def test_arguments_of_the_winner_import_back_as_its_plan(which, tmp_path):
    found = one(which)
    write_files(found, tmp_path)

    table = read_recipe(tmp_path / "winner.megatron.txt", "dgx-h100").table

    plan = found.rows[found.winner].changes
    read = {key: table.get(key.partition(".")[0], {}).get(key.partition(".")[2], 1) for key in plan if "." in key}
    assert read == {key: value for key, value in plan.items() if "." in key}
    assert {"name": "1f1b", **table.get("schedule", {})} == plan["schedule"]
    assert (table.get("recompute") or {"mode": "none"}) == plan["recompute"]


LLAMA = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"},
         "batch": {"global": 16, "seq_len": 4096}}  # fmt: skip
FILES = {"megatron": "winner.megatron.txt", "torchtitan": "winner.torchtitan.toml"}
SMALL = {"parallel.cp": [1], "parallel.tp": [1, 2], "batch.micro": [1]}


@pytest.mark.parametrize("pp", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", FILES)
def test_the_winners_recipe_predicts_what_the_search_reports(target, pp, tmp_path):
    wanted = Wanted(vary={**SMALL, "parallel.pp": [pp]}, target=target)
    found = search(LLAMA, wanted=wanted, check=0, workers=1)
    write_files(found, tmp_path)
    import_recipe(tmp_path / FILES[target], tmp_path / "again.toml", "dgx-h100")
    report = simulate(tmp_path / "again.toml").report
    told = found.rows[found.winner].measured

    assert (report.step_time_s, report.peak.peak_bytes) == pytest.approx((told.time_s, told.memory_bytes), rel=1e-9)


def test_a_winner_that_megatron_has_no_arguments_for_says_so(tmp_path):
    wanted = Wanted(("zb-h1",), fix={**PLAIN, "parallel.pp": 4, "parallel.cp": 1, "recompute": {"mode": "none"}})
    write_files(search(DENSE, wanted=wanted, check=0, workers=1), tmp_path)

    assert "schedule.name = 'zb-h1'" in (tmp_path / "winner.megatron.txt").read_text()


def test_no_arguments_of_another_plan_than_the_winner_are_written(tmp_path):
    recompute = {"mode": "selective", "modules": ["activation"]}
    wanted = Wanted(("1f1b",), fix={**PLAIN, "parallel.pp": 1, "parallel.cp": 1, "recompute": recompute})
    write_files(search(DENSE, wanted=wanted, check=0, workers=1), tmp_path)
    lines = (tmp_path / "winner.megatron.txt").read_text().splitlines()

    assert [line for line in lines if not line.startswith("# ")] == []
    assert any(line.startswith('# recompute.modules = ["activation"]: activations alone are') for line in lines)


def test_tables_have_a_row_per_plan_and_per_member_of_the_pareto_set(tmp_path):
    found = one("dense")
    write_files(found, tmp_path)

    plans, front = (list(csv.DictReader((tmp_path / name).open())) for name in ("plans.csv", "pareto.csv"))

    statuses = [row["status"] for row in plans]
    assert (statuses, [float(row["time_s"]) for row in front]) == (
        [row.status for row in found.rows], [found.rows[number].measured.time_s for number in found.pareto]
    )  # fmt: skip


@pytest.mark.parametrize("which", ASKED)
def test_only_searches_of_steps_say_how_likely_a_plan_fits(which, tmp_path):
    found = one(which)
    write_files(found, tmp_path)
    (header,) = [line for line in lines(found) if line.endswith("  plan")]

    rows = list(csv.DictReader((tmp_path / "pareto.csv").open()))

    step = found.question.subject.export is not None
    assert ("fits with" in header, all(row["fits_probability"] for row in rows)) == (step, step)


def test_bounds_in_the_table_are_no_longer_than_times_beside_them(tmp_path):
    write_files(one("dense"), tmp_path)
    rows = [row for row in csv.DictReader((tmp_path / "plans.csv").open()) if row["time_s"] and row["bound_time_s"]]

    assert (len(rows) > 0, [row for row in rows if float(row["bound_time_s"]) > float(row["time_s"])]) == (True, [])


FIXED = {"parallel.tp": 1, "parallel.cp": 1, "batch.micro": 2, "offload": {}}
"""Axes with one value, which is that of `DENSE` with `batch.micro = 2`, too."""


def own_line(changes, target="any", **fix):
    """What is said of the plan that a scenario has itself."""
    table = change({**DENSE, "batch": {**DENSE["batch"], "micro": 2}}, changes, "x")
    found = search(table, wanted=Wanted(("1f1b",), fix=FIXED | fix, target=target), check=0, workers=1)
    return found, [line.partition(": ")[2] for line in lines(found) if line.startswith("yours: ")]


def test_a_search_that_finds_nothing_better_says_that_it_is_the_users_plan():
    found, told = own_line({"recompute": {"mode": "none"}, "parallel.zero": 2})

    marks = [" winner, yours " in line for line in lines(found) if "  " in line and " winner" in line]
    assert (told, marks[:1], found.to_json()["own"]) == ([], [True], found.to_json()["winner"])


def test_a_plan_of_the_user_that_the_space_lacks_is_simulated_and_compared():
    found, (told,) = own_line({"parallel.zero": 0, "recompute": {"mode": "full"}}, "megatron")

    ratio = found.rows[found.own].measured.time_s / found.rows[found.winner].measured.time_s
    assert (
        f"takes {ratio - 1:.1%} longer than the winner: tp 1, pp 1, cp 1, micro 2, zero 0, 1f1b, recompute full" in told
    )
    assert (found.own, found.rows[found.own].status) == (len(found.rows) - 1, SIMULATED)


def test_a_plan_of_the_user_that_the_tool_cannot_run_is_predicted_and_says_why():
    activations = {"recompute": {"mode": "selective", "modules": ["activation"]}}
    found, (told,) = own_line(activations, "megatron")

    ratio = found.own_untold.time_s / found.rows[found.winner].measured.time_s
    assert f"takes {ratio - 1:.1%} longer than the winner: tp 1, " in told
    assert "; megatron cannot run it: recompute.mode = " in told


def test_a_plan_of_the_user_that_does_not_fit_says_what_it_needs():
    _, (told,) = own_line({"cluster.device.memory": "19 GiB", "recompute": {"mode": "none"}, "parallel.pp": 1})

    assert re.fullmatch(r"needs 2\d(\.\d+)? GiB or more of 19 GiB: tp 1, pp 1, .*, recompute none", told)


def test_of_values_that_a_user_fixes_otherwise_nothing_is_said():
    found, told = own_line({}, **{"batch.micro": 1})

    assert (found.own, told) == (None, [])


def test_why_the_second_lost_names_the_terms_that_differ_most():
    winner, second = {"gemm": 1.0, "tp": 0.1, "pipeline": 0.2}, {"gemm": 0.9, "tp": 0.6, "pipeline": 0.2001}

    assert differences(winner, second) == ([("tp", 0.1, 0.6)], [("gemm", 1.0, 0.9)])


@pytest.mark.parametrize("which", ASKED)
def test_the_summary_names_the_winner_and_the_second(which):
    found = one(which)

    said = "\n".join(lines(found))

    parts = ("winner by ", "second: ", f"{found.space.size:,} combinations")
    assert [part in said for part in parts] == [True] * 3


@pytest.mark.slow
def test_with_fewer_simulations_than_plans_optuna_finds_the_best_of_a_small_space():
    rows, _ = brute_force("dense")
    exact = search(table_of("dense"), wanted=SPACES["dense"][3], check=0, workers=1)
    budget = exact.counts[SIMULATED] - 2

    found = search(table_of("dense"), wanted=SPACES["dense"][3], budget=budget, check=0, workers=1)

    assert (best_value(found.rows, found.question), found.counts[SIMULATED] <= budget) == (
        best_value(rows, found.question), True,
    )  # fmt: skip


def test_optuna_finds_the_same_again_with_the_same_seed():
    once, again = (
        search(SENDER, wanted=SPACES["from trainers"][3], budget=8, seed=3, workers=1).rows for _ in range(2)
    )

    assert (once, sum(row.status == LEFT for row in once) > 0) == (again, True)


@pytest.mark.parametrize("name", ["state.sqlite", "notes.md"])
def test_a_folder_with_something_else_is_refused_before_the_search(name, tmp_path):
    (tmp_path / name).write_text("")

    with pytest.raises(UserError) as error:
        check_folder(tmp_path)

    assert str(error.value) == f"--out {tmp_path}: holds {name}, which no search wrote: expected a folder of its own"


def test_a_file_in_the_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(UserError, match="cannot be made: File exists"):
        check_folder(tmp_path / "file")


def test_a_search_that_finds_nothing_leaves_no_winner_of_an_earlier_one(tmp_path):
    write_files(one("dense"), tmp_path)

    rows = [replace(row, status=LEFT) for row in one("dense").rows]
    write_files(replace(one("dense"), rows=rows), tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["pareto.csv", "plans.csv"]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (1.5, 0.5, ("1.5 s", "500 ms")),
        (11.54, 11.51, ("11.54 s", "11.51 s")),
        (1260.2, 1260.1, ("1,260.2 s", "1,260.1 s")),
        (0.0010001, 0.001, ("1.0001 ms", "1 ms")),
        (2.0, 2.0, ("2 s", "2 s")),
    ],
)
def test_durations_are_told_apart_by_as_many_digits_as_that_takes(one, other, said):
    assert distinct_texts(one, other) == said
