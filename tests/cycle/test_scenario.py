"""Scenarios of kind rl_cycle: what they resolve to, what is refused in one line, and the files that come out."""

import csv
import gzip
import json
from pathlib import Path

import pytest
from runcast.simulator import UserError, simulate
from runcast.simulator.cli import main
from runcast.simulator.insight import critical_path
from runcast.simulator.profile import load_stack
from runcast.simulator.scenario import check_question

SCENARIOS = Path(__file__).parents[2] / "data/scenarios"
SHIPPED = sorted(path.stem for path in SCENARIOS.glob("rl-*.toml"))
GIVEN = """
kind = "rl_cycle"
cluster = "h100-hgx"

[cycle]
train_time = "4 s"
update_time = "2 s"
kv_alloc = "1 s"
release = "0.5 s"
steps = 3

[rollout]
requests = 8
engines = 2
slots = 4
token_time = "0.5 s"
length = { kind = "fixed", tokens = 16 }
"""
SIMULATED = GIVEN.replace('update_time = "2 s"\n', "") + '\n[model]\npreset = "qwen3-30b-a3b"\n'
ASYNCHRONOUS = ["cycle={mode='asynchronous', placement='disaggregated', trainer_gpus=8, train_time=4, update_time=2}"]

CHANGES = {
    "cycle.train_time=0": "cycle.train_time = 0: expected more than 0",
    "cycle.train_time=3 GB": "cycle.train_time = '3 GB': unknown unit 'GB'; expected a quantity such as "
    '"3 us", "0.5 ms", "2 s" or "30 d"',
    "cycle.train_tim=3": "cycle.train_tim: unknown key; did you mean train_time",
    "cycle.staleness=1": "cycle.staleness = 1: goes with cycle.mode = 'asynchronous', not",
    "cycle.mode=asynchronous": "cycle: mode = 'asynchronous' needs placement = 'disaggregated'",
    "cycle.trainer_gpus=8": "cycle.trainer_gpus = 8: goes with cycle.placement = 'disaggregated', not",
    "cycle={train_time=4, update_time=2, placement='disaggregated', kv_alloc=1}": "cycle.kv_alloc = 1: goes with",
    "cycle.pause=1": "cycle.pause = 1: goes with cycle.placement = 'disaggregated'",
    "cycle.steps=0": "cycle.steps = 0: expected more than 0",
    "cycle.state=100 GB": "cycle.state = '93.1 GiB': a device has",
    "cycle={train_time=4, update_time=2, placement='disaggregated'}": "trainer_gpus = None: say how many GPUs train",
    "model.preset=kimi-k2": "model = {'preset': 'kimi-k2'}: is for an update that is simulated, not given",
    "stack=checkpoint-engine": "stack = 'checkpoint-engine': is for an update that is simulated, or for rollout.engine "
    "or cycle.state; training has its own",
    "rollout.engines=3": "rollout.engines = 3: must divide the 8 GPUs that roll out",
    "rollout.interrupt=keep": "rollout.interrupt = 'keep': is for rollouts beside training: cycle.staleness of 1",
    "rollout.recompute_time=1": "rollout.recompute_time = 1: goes with rollout.interrupt = 'keep'",
    "rollout.max_tokens=100": "rollout.max_tokens = 100: is for lengths that vary",
    "rollout.length={kind='fixed'}": "rollout.length: kind = 'fixed' takes tokens (given: none)",
    "rollout.length={mean=9}": "rollout.length.kind: is missing; expected one of fixed, lognormal, histogram",
    "rollout.length={kind='normal', tokens=3}": "rollout.length.kind = 'normal': expected 'fixed', 'lognormal'",
    "rollout.length={kind='lognormal', mean=9, p99=9}": "rollout.length: p99 = 9: expected more than mean = 9, "
    "and at most 14.97 times that",
    "rollout.length={kind='lognormal', mean=9, p99=999}": "at most 14.97 times that",
    "rollout.length={kind='histogram', values=[1, 2], weights=[1]}": "values and weights are lists of one length",
    "rollout.length={kind='histogram', values=3, weights=[1]}": "rollout.length.values = 3: expected a list of numbers",
    "rollout.length={kind='histogram', values=[0], weights=[1]}": "rollout.length.values.0 = 0: expected",
    "rollout=3": "rollout = 3: expected a table",
    "kind=sleep": "kind = 'sleep': expected 'weight_update', 'train_step', 'rl_cycle', 'run' or 'collective'",
}


@pytest.fixture
def given(tmp_path) -> Path:
    path = tmp_path / "given.toml"
    path.write_text(GIVEN)
    return path


@pytest.fixture
def simulated(tmp_path) -> Path:
    path = tmp_path / "simulated.toml"
    path.write_text(SIMULATED)
    return path


def run(*arguments: object) -> object:
    with pytest.raises(SystemExit) as leave:
        main([str(argument) for argument in arguments])
    return leave.value.code


def test_a_cycle_of_given_times_adds_up(given):
    report = simulate(given).report

    assert (report.rollout_s, report.train_s, report.update_s, report.switch_s) == (8, 4, 2, 1.5)
    assert (report.step_time_s, report.step_p50_s, report.step_p99_s) == (15.5, 15.5, 15.5)
    assert (report.pause_s, report.requests_per_s, report.tokens_per_s) == (7.5, 8 / 15.5, 8 * 16 / 15.5)
    assert (report.slots_busy, report.rollout_idle, report.staleness) == (1.0, 0.0, {0: 24})
    assert report.exposed == {"rollout": 24, "train": 12, "update": 6, "switch": 4.5}


def test_a_cycle_of_given_times_is_what_it_always_was_to_the_bit():
    """Engines, KV caches and predicted training came later."""
    report = simulate(SCENARIOS / "rl-split-given-update-8xh100-nodes.toml").report

    assert (report.step_time_s, report.makespan_s, report.tokens_per_s, report.tail_s) == (
        399.0, 8901.0, 21762.4686716792, 327.0,
    )  # fmt: skip


def test_the_update_is_that_of_the_same_scenario_of_kind_weight_update(simulated):
    cycle = simulate(simulated)
    alone = simulate(cycle.resolved.scenario.weight_update()).report

    assert cycle.report.update_s == pytest.approx(alone.update_time_s, rel=1e-12)
    assert cycle.report.step_time_s == pytest.approx(8 + 4 + 1.5 + alone.update_time_s, rel=1e-12)
    assert cycle.report.update.scenario_hash == alone.scenario_hash


def test_all_steps_together_have_a_limit_of_requests(given):
    with pytest.raises(UserError, match="10,000,000,000 requests in all steps; at most 4,000,000"):
        simulate(given, ["cycle.steps=10000", "rollout.requests=1000000"])


def test_trainer_state_moves_twice_per_step(simulated):
    without, with_state = (simulate(simulated, changes).report for changes in ([], ["cycle.state=40 GB"]))

    assert with_state.step_time_s - without.step_time_s == pytest.approx(with_state.switch_s - 1.5)
    assert with_state.switch_s > 1.5 + 2 * 40e9 / 64e9


def test_software_of_a_switch_is_the_stacks(simulated):
    reports = [simulate(simulated, [f"stack={stack}"]).report for stack in ("generic", "slime")]
    host_s = load_stack("slime").parameters["switch.s"].value

    assert reports[1].switch_s == pytest.approx(reports[0].switch_s + host_s)
    assert [any(name == "switch.s" for name in report.budget.shared) for report in reports] == [False, True]


def test_state_beside_a_given_update_reads_the_profile(given):
    fast, slow = (simulate(given, ["cycle.state=40 GB", f"cluster={name}"]).report for name in ("h100-hgx", "dgx-a100"))

    assert fast.switch_s < slow.switch_s


def test_p2p_leaves_the_other_gpus_to_the_trainer(simulated):
    changes = ["update.method=p2p", "update.ranks=4", "nodes=2", "cycle={train_time=4, placement='disaggregated'}"]

    assert simulate(simulated, changes).report.gpus == (4, 12)


def test_an_update_that_starts_at_trainers_says_who_trains(simulated):
    update = "update={method='all_senders', trainer={gpus=8}, inference={tp=4}}"
    changes = [update, "nodes=2", "cycle={train_time=4, placement='disaggregated'}"]

    report = simulate(simulated, changes).report

    assert report.gpus == (8, 8)
    with pytest.raises(UserError, match="8 GPUs train, as the update has it"):
        simulate(simulated, [*changes, "cycle.trainer_gpus=4"])


def test_a_synchronous_split_leaves_each_pool_idle_while_the_other_works(given):
    report = simulate(given, ["cycle={train_time=4, update_time=2, placement='disaggregated', trainer_gpus=8}"]).report

    assert (report.step_time_s, report.trainer_idle, report.rollout_idle) == pytest.approx((14, 8 / 14, 4 / 14))


@pytest.mark.parametrize(("staleness", "words"), [(0, "one after another"), (1, "rollout and train at once")])
def test_pools_of_staleness_0_take_turns_in_the_text_too(given, staleness, words):
    lines = str(simulate(given, [*ASYNCHRONOUS, f"cycle.staleness={staleness}"])).splitlines()

    assert [line for line in lines if line.startswith("step  ")][-1].endswith(words)


def test_warm_up_is_not_counted(given):
    report = simulate(given, [*ASYNCHRONOUS, "cycle.steps=6"]).report

    assert (report.warmup, report.steps, report.step_time_s, report.mean_staleness) == (2, 6, 10.0, 1.0)


@pytest.mark.parametrize(("staleness", "counted"), [(0, 20), (1, 20), (2, 21), (6, 21)])
def test_steps_that_count_are_whole_bunches(given, staleness, counted):
    """Batches that start together end close to each other, and only the first of them waits."""
    mode = f"mode='asynchronous', placement='disaggregated', staleness={staleness}"
    report = simulate(given, [f"cycle={{{mode}, trainer_gpus=8, train_time=4, update_time=2}}"]).report

    assert (report.steps, any("in bunches" in note for note in report.notes)) == (counted, counted != 20)


def test_the_hash_is_over_what_is_meant_not_over_the_name(given):
    first, named, seeded = (simulate(given, changes).report for changes in ([], ["name=other"], ["seed=1"]))

    assert first.scenario_hash == named.scenario_hash != seeded.scenario_hash


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenarios_have_a_report_that_holds_together(name):
    prediction = simulate(SCENARIOS / f"{name}.toml")
    report, path = prediction.report, critical_path(prediction.timeline)

    assert sum(report.exposed.values()) == pytest.approx(report.makespan_s)
    assert path.seconds.sum() == pytest.approx(report.makespan_s)
    assert sum(report.provenance.values()) == pytest.approx(1)
    assert 0 < report.tail_s < report.rollout_s <= report.step_time_s
    assert sum(report.staleness.values()) == report.steps * prediction.resolved.scenario.rollout.requests


def test_the_report_has_the_promised_keys(given):
    promised = """kind name scenario_hash makespan_s peak_memory_bytes exposed provenance step_time_s step_p50_s
    step_p99_s rollout_s tail_s train_s update_s switch_s pause_s trainer_idle rollout_idle mean_staleness
    requests_per_s"""

    assert set(promised.split()) <= set(simulate(given).report.to_json())


def test_all_files_are_written(given, tmp_path, capsys):
    code = run("simulate", given, "--out", tmp_path / "out", *(part for one in ASYNCHRONOUS for part in ("--set", one)))
    report = json.loads((tmp_path / "out/report.json").read_text())
    rows = list(csv.DictReader((tmp_path / "out/timeline.csv").open()))
    trace = json.loads(gzip.decompress((tmp_path / "out/trace.json.gz").read_bytes()))
    shown = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}

    assert (code, report["kind"], report["step_time_s"]) == (0, "rl_cycle", 10.0)
    assert {row["place"] for row in rows} == {"engine 0", "engine 1", "trainer"}
    assert shown == {"rank 0", "rank 4", "rank 8"}
    assert "Timeline of the cycle" in (tmp_path / "out/index.html").read_text()
    assert "step time     10 s on average" in capsys.readouterr().out


@pytest.mark.parametrize("change", CHANGES)
def test_a_fault_is_one_line_that_names_the_file(change, given, capsys):
    code = run("simulate", given, "--set", change, "--out", given.parent / "out")
    lines = capsys.readouterr().err.splitlines()

    assert (code, len(lines), CHANGES[change] in lines[0], lines[0].count(str(given))) == (2, 1, True, 1), lines
    assert not (given.parent / "out").exists()


WIDE = ["cluster=h200-hgx", "rollout.engine={tp=1, dp=16, ep=16, max_batch=64}"]


def test_an_update_brings_weights_to_the_engines_ranks():
    """Each of 16 GPUs keeps a sixteenth of the experts, and has its own scheduler."""
    resolved = simulate("rl-cycle-qwen3-30b-32xh100", [*WIDE, "cycle.steps=1"]).resolved
    inference, pool = resolved.update.update.inference, resolved.rollouts(16)

    assert (inference.tp, inference.ep, pool.engines, pool.slots) == (1, 16, 1, 16 * 64)


@pytest.mark.parametrize(("said", "dtype"), [
    ([], "bf16"), (["update.quantize=before"], "fp8"), (["rollout.engine.dtype=bf16", "update.quantize=after"], "bf16"),
])  # fmt: skip
def test_engines_compute_in_the_type_that_the_update_brings(said, dtype):
    cycle = simulate("rl-cycle-qwen3-30b-32xh100", [*said, "cycle.steps=1"])
    others = [note for note in cycle.report.notes if note.startswith("the update brings weights in")]

    assert (cycle.resolved.engine.shape.dtype, bool(others)) == (dtype, len(said) == 2)


@pytest.mark.parametrize(("changes", "line"), [
    (["update.inference.gpus=8"], "cycle.rollout_nodes = 2: are 16 GPUs, but the update reaches 8"),
    (["update.trainer.gpus=8", "update.inference.gpus=16"],
     "cycle.rollout_nodes = 2: leave 16 GPUs to train, but the update has 8 trainers"),
    (["nodes=6", "cycle.rollout_nodes=3", "rollout.engine.tp=3"], "rollout.engine.tp = 3: must divide the 32 heads"),
])  # fmt: skip
def test_pools_that_do_not_add_up_are_refused(changes, line):
    with pytest.raises(UserError) as caught:
        simulate("rl-cycle-qwen3-30b-32xh100", [*changes, "cycle.steps=1"])

    assert line in str(caught.value)


def test_a_table_that_may_be_left_out_has_its_own_keys(simulated, capsys):
    code = run("simulate", simulated, "--set", "model.presett=x")

    assert (code, "unknown key; did you mean preset" in capsys.readouterr().err) == (2, True)


def test_an_update_that_drains_by_itself_is_refused():
    table = {"kind": "rl_cycle", "cluster": "h100-hgx", "nodes": 2, "model": {"preset": "qwen3-30b-a3b"}}
    update = {"method": "all_senders", "trainer": {"gpus": 8}, "drain": "3 s"}
    cycle = {"placement": "disaggregated", "train_time": 4}
    rollout = {"requests": 8, "engines": 2, "slots": 4, "token_time": 1, "length": {"kind": "fixed", "tokens": 9}}

    with pytest.raises(UserError, match=r"update\.drain is not for a cycle"):
        check_question({"kind": "rl_cycle", **table, "update": update, "cycle": cycle, "rollout": rollout})


def test_execute_says_what_it_runs(given, capsys):
    code = run("execute", given, "--out", given.parent / "out")

    assert (
        code,
        "kind = 'rl_cycle': executed are weight_update, collective, train_step" in capsys.readouterr().err,
    ) == (2, True)
