"""A search finds what brute force finds, prunes nothing that it must not, and says what became of every point."""

import pickle
from dataclasses import replace
from functools import cache

import pytest
from runcast.simulator import UserError
from runcast.simulator.answers.search import Axis, Rule, Space, Wanted, read_wanted, search
from runcast.simulator.answers.search.explore import measure, screen
from runcast.simulator.answers.search.outputs import lines
from runcast.simulator.answers.search.records import BEATEN, MEMORY, REFUSED, SIMULATED, Row
from runcast.simulator.answers.search.run import make_question
from runcast.simulator.base.memo import Memo
from runcast.simulator.scenario import change

from .small import ALIKE, DENSE, LESS, PLAIN, SENDER, SPACES, best_value, brute_force, pareto_values, table_of

JUST = 1 + 1e-9  # sums in another order
QUICK = ("dense", "from trainers")
EVERY = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SPACES]
"""All spaces, of which some are searched in `make test`."""


@cache
def found_in(name, **options):
    _, _, objective, wanted = SPACES[name]
    return search(table_of(name), objective=objective, wanted=wanted, check=0, workers=1, where=name, **options)


@pytest.mark.parametrize("name", EVERY)
def test_a_search_finds_the_best_value_and_the_pareto_set_of_brute_force(name):
    rows, _ = brute_force(name)

    found = found_in(name)

    assert (best_value(found.rows, found.question), pareto_values(found.rows)) == (
        best_value(rows, found.question), pareto_values(rows),
    )  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_every_plan_ends_as_brute_force_says(name):
    rows, _ = brute_force(name)
    allowed = {SIMULATED: {SIMULATED, BEATEN}, MEMORY: {MEMORY, BEATEN}, REFUSED: {REFUSED}}

    found = found_in(name)

    assert [
        (mine.changes, mine.status, true.status)
        for mine, true in zip(found.rows, rows, strict=True)
        if mine.status not in allowed[true.status]
    ] == []


@pytest.mark.parametrize("name", EVERY)
def test_no_bound_is_above_what_is_simulated(name):
    rows, _ = brute_force(name)
    _, _, objective, wanted = SPACES[name]
    question, _ = make_question(table_of(name), None, objective, wanted, 0.0, name)
    memo = Memo()
    floors = [screen(question, row, memo).floor for row in rows]

    above = [
        (row.changes, floor, row.measured.amounts)
        for floor, row in zip(floors, rows, strict=True)
        if floor and row.measured and (
            floor.time_s > row.measured.amounts.time_s * JUST
            or floor.memory_bytes > row.measured.amounts.memory_bytes * JUST
            or (floor.cost_usd or 0.0) > (row.measured.amounts.cost_usd or float("inf")) * JUST
        )
    ]  # fmt: skip

    assert above == []


@pytest.mark.parametrize("name", EVERY)
def test_counts_add_up_to_the_space(name):
    found = found_in(name)

    assert sum(found.cuts.values()) + sum(found.counts.values()) == found.space.size


def broken(space, point):
    """The first rule that a point breaks."""
    return next((rule.name for rule in space.rules if not rule.holds(point)), None)


def test_what_rules_of_division_cut_the_scenario_refuses():
    wanted = Wanted(vary={"batch.micro": [1, 3], "parallel.cp": [1, 2]}, fix={**PLAIN, "recompute": {"mode": "none"}})
    question, space = make_question(DENSE, None, None, wanted, 0.0, "dense")
    every, _ = Space(space.axes).points()
    cut = [point for point in every if (broken(space, point) or "").endswith(("the GPUs", "the batch"))]

    rows = [measure(question, Row(point), Memo()) for point in cut]

    assert (len(rows) > 50, {row.status for row in rows}) == (True, {REFUSED})


def test_points_and_cuts_are_those_of_asking_every_rule_at_every_point():
    rules = (
        Rule("odd", ("a", "b"), lambda at: (at["a"] + at["b"]) % 2 == 0),
        Rule("large", ("c", "a"), lambda at: at["c"] * at["a"] < 6),
    )
    space = Space((Axis("a", (1, 2, 3)), Axis("b", (1, 2)), Axis("c", (1, 2, 3))), rules)
    every, _ = Space(space.axes).points()

    points, cuts = space.points()

    assert (points, sum(cuts.values())) == (
        [point for point in every if broken(space, point) is None],
        sum(broken(space, point) is not None for point in every),
    )


@pytest.mark.slow
def test_a_search_is_the_same_in_processes_and_here():
    wanted = Wanted(("1f1b",), {"parallel.cp": [1], **ALIKE, "recompute": [{"mode": "none"}, {"mode": "full"}]})
    here = search(DENSE, wanted=wanted, check=0, workers=1)

    assert (len(here.rows) > 64, search(DENSE, wanted=wanted, check=0, workers=2).rows) == (True, here.rows)


def test_headroom_refuses_by_the_memory_that_is_left():
    peaks = [row.measured.memory_bytes for row in brute_force("dense")[0] if row.measured]
    device_bytes = found_in("dense").question.memory_bytes
    headroom = 1 - (sorted(peaks)[len(peaks) // 2] + 1) / device_bytes

    found = found_in("dense", headroom=headroom)

    limit = device_bytes * (1 - headroom)
    assert max(row.measured.memory_bytes for row in found.rows if row.status == SIMULATED) <= limit


def test_where_nothing_fits_there_is_no_winner():
    found = found_in("dense", headroom=0.99)

    assert (found.winner, found.pareto, set(found.counts)) == (None, (), {MEMORY})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"objective": "speed"}, "--objective = 'speed': of a train_step: tokens_per_s, cost, memory"),
        ({"gpus": 12}, "--gpus = 12: must be a multiple of the 8 GPUs of a node"),
        ({"headroom": 1.5}, "--memory-headroom = 1.5: expected a share from 0 to below 1, such as 5%"),
        ({"wanted": Wanted(("1f2b",))}, "--schedules = '1f2b': known: "),
        ({"wanted": Wanted(vary={"nodes": [1, 2]})}, "--vary = 'nodes': is what is asked, not part of a plan"),
        ({"budget": 0}, "--budget = 0: expected at least 1"),
        ({"check": -1}, "--check = -1: expected at least 0"),
        ({"workers": 0}, "--workers = 0: expected at least 1"),
        ({"seed": -1}, "--seed = -1: expected at least 0"),
        ({"most": 0}, "--screen = 0: expected at least 1"),
        ({"wanted": Wanted(target="maxtext")}, "--for = 'maxtext': expected one of any, megatron, torchtitan"),
        ({"wanted": Wanted(fix={"parallel.tp": 16})}, "plans is refused: tp x pp does not divide the GPUs"),
        ({"wanted": Wanted(fix={**PLAIN, "parallel.dp": 3, "parallel.tp": 8, "recompute": LESS, "batch.micro": 1})},
         "plans is refused: parallel"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_one_line(options, said):
    with pytest.raises(UserError) as error:
        search(DENSE, **options)

    assert (said in str(error.value), len(error.value.faults)) == (True, 1)


def finer(monkeypatch, fits):
    """Kernel by kernel, the plans of these places among the best ones fit."""
    seen = []

    def predict(question, changes, memo, finest):
        seen.append(changes)
        return replace(measure(question, Row(changes), memo).measured, fits=len(seen) - 1 in fits)

    monkeypatch.setattr("runcast.simulator.answers.search.run.predict", predict)
    return search(DENSE, wanted=SPACES["dense"][3], check=2, workers=1)


def test_plans_that_do_not_fit_kernel_by_kernel_do_not_win(monkeypatch):
    found = finer(monkeypatch, fits={2, 4})

    assert (found.winner, found.runner_up, len(found.checked)) == (found.best[2], found.best[4], 5)


def test_where_no_plan_fits_kernel_by_kernel_there_is_no_winner(monkeypatch):
    found = finer(monkeypatch, fits=())

    assert (found.winner, found.runner_up, len(found.checked), list(lines(found))[-1].partition(":")[0]) == (
        None, None, len(found.best), "no plan fits",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("schedule", "1f1b", "schedule = '1f1b': expected a table"),
        ("schedule", {"name": "nope"}, "schedule.name = 'nope': unknown; known: 1f1b"),
        ("schedule", {"name": "interleaved", "vpp": 0}, "schedule.vpp = 0: expected more than 0"),
        ("parallel.tp", "8", "parallel.tp = '8': expected a whole number"),
        ("parallel.tp", 0, "parallel.tp = 0: expected more than 0"),
        ("batch.micro", {"times": 2}, "batch.micro = {'times': 2}: expected a whole number"),
        ("batch.global", "x", "batch.global = 'x': expected a whole number"),
        ("parallel.tq", 4, "= 'parallel.tq': unknown; did you mean parallel.tp"),
        ("update.bucket", 1, "= 'update.bucket': unknown"),
        ("recompute.mode", "full", "= 'recompute.mode': meets the axis recompute"),
        ("parallel", {"tp": 2}, "= 'parallel': meets the axis parallel.tp"),
        ("recompute", {"modes": 3}, "recompute.modes: unknown key"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("flag", ["fix", "vary"])
def test_values_that_no_plan_can_have_are_one_line_that_names_the_flag(flag, key, value, said):
    with pytest.raises(UserError) as error:
        search(DENSE, wanted=Wanted(**{flag: {key: value if flag == "fix" else [value]}}), workers=1)

    assert (error.value.faults[0].startswith(f"--{flag}"), said in str(error.value), len(error.value.faults)) == (
        True, True, 1,
    )  # fmt: skip


def test_two_axes_of_a_user_that_meet_are_one_line():
    with pytest.raises(UserError, match="meets the axis overlap"):
        search(DENSE, wanted=Wanted(vary={"overlap.tp": [True]}, fix={"overlap": {"pp": False}}))


@pytest.mark.parametrize("line", ["parallel.tp", "=8"])
def test_a_flag_without_key_and_value_is_blamed_by_its_name(line):
    with pytest.raises(UserError, match=f"--fix {line}: expected key=value"):
        read_wanted(None, (), (line,))


def test_what_helps_who_searches_a_run_is_said():
    with pytest.raises(UserError, match="write its step as kind = 'train_step' and search that"):
        search({**DENSE, "kind": "run"})


@pytest.mark.parametrize(("wanted", "flag"), [(Wanted(("1f1b",)), "--schedules"), (Wanted(uneven=True), "--uneven")])
def test_flags_of_pipelines_are_refused_for_weight_updates(wanted, flag):
    with pytest.raises(UserError, match=f"{flag}: is of pipelines, and a weight update has none"):
        search(SENDER, wanted=wanted)


def test_tables_of_a_user_are_told_by_the_names_they_have_by_default():
    wanted = Wanted(fix={"schedule": {}, "recompute": {}})

    axes = {axis.key: axis.values for axis in make_question(DENSE, None, None, wanted, 0.0, "dense")[1].axes}

    assert (axes["schedule"], axes["recompute"]) == (({"name": "1f1b"},), ({"mode": "none"},))


@pytest.mark.parametrize(("layers", "uneven", "said"), [(4, False, 0), (5, False, 1), (5, True, 0)])
def test_a_note_says_where_most_numbers_of_stages_do_not_divide_the_layers(layers, uneven, said):
    table = {**DENSE, "model": {"preset": "llama3-8b", "overrides": {"num_hidden_layers": layers}}}
    notes = make_question(table, None, None, Wanted(uneven=uneven), 0.0, "dense")[1].notes
    assert notes == ("5 layers divide equally only into pp = 1; --uneven also tries other pp",) * said


def axes_of(table, **wanted):
    return {axis.key: axis.values for axis in make_question(table, None, None, Wanted(**wanted), 0.0, "r")[1].axes}


@pytest.mark.parametrize("table", [DENSE, SENDER])
def test_a_question_goes_to_other_processes(table):
    question, _ = make_question(table, None, None, Wanted(), 0.0, "r")

    assert pickle.loads(pickle.dumps(question)) == question


def test_tensor_parallelism_goes_as_far_as_nvlink():
    racks = {**DENSE, "cluster": "gb200-nvl72", "nodes": 8}

    assert (axes_of(DENSE)["parallel.tp"], axes_of(racks)["parallel.tp"]) == ((1, 2, 4, 8), (1, 2, 4, 8, 16, 32))


def test_the_trainers_that_a_user_gives_stay():
    free = {**SENDER, "update": {**SENDER["update"], "trainer": {"tp": 2}}}

    assert ["update.trainer.gpus" in axes_of(table) for table in (SENDER, free)] == [False, True]


@pytest.mark.parametrize(
    ("target", "zeros", "modules"),
    [
        ("any", (1, 2, 3), [("layernorm", "activation"), ("layernorm", "activation", "mlp")]),
        ("megatron", (1, 2, 3), [("layernorm",), ("layernorm", "mlp")]),
        ("torchtitan", (0, 3), [("layernorm", "activation")]),
    ],
)
def test_a_tool_is_asked_for_what_it_has(target, zeros, modules):
    axes = axes_of(DENSE, target=target)

    assert (axes["parallel.zero"], [tuple(one["modules"]) for one in axes["recompute"] if "modules" in one]) == (
        zeros, modules,
    )  # fmt: skip


def test_offloading_is_tried_where_a_plan_does_not_fit_without_it():
    fixed = {"parallel.zero": 1, "batch.micro": 1, "parallel.cp": 1, "parallel.pp": 1, "recompute": {"mode": "none"}}
    tight = change(DENSE, {"cluster.device.memory": "16 GiB"}, "dense")
    found = [search(table, wanted=Wanted(fix=fixed), check=0, workers=1) for table in (DENSE, tight)]
    tried = [{repr(row.changes["offload"]) for row in one.rows if row.status != REFUSED} for one in found]

    assert {"{}"} == tried[0] < tried[1]


def test_a_plan_that_a_tool_cannot_be_told_is_refused():
    fixed = {**PLAIN, "parallel.cp": 1, "parallel.pp": 1, "batch.micro": 1, "parallel.tp": 1}
    table = {**DENSE, "precision": {"master": False}}
    with pytest.raises(UserError, match=r"plans is refused: precision\.master = false: the optimizer keeps weights"):
        search(table, wanted=Wanted(fix=fixed, target="megatron"), check=0, workers=1)


@pytest.mark.parametrize("memory", ["80 GiB", "2 GiB"])
def test_a_model_that_a_tool_cannot_be_told_is_no_matter_of_memory(memory):
    table = change(DENSE, {"cluster.device.memory": memory}, "small")
    wanted = Wanted(vary={"parallel.tp": [1], "batch.micro": [1, 2], "parallel.zero": [3]}, target="torchtitan")

    with pytest.raises(UserError, match="is refused: model: torchtitan has no flavor of llama3-8b"):
        search(table, wanted=wanted, workers=1)
