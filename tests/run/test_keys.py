"""Keys of a run that went unheard, or counted twice: each has its effect, or is refused in one line."""

from pathlib import Path
from typing import get_args

import pytest
from runcast.simulator import UserError, simulate
from runcast.simulator.scenario import change
from runcast.simulator.systems.run.modes import MODES
from runcast.simulator.systems.run.scenario import INSTEAD, Sync

from .make import FOUR_WORKERS as FOUR

PREDICTED = """
kind = "run"
cluster = "dgx-h100"
nodes = 4
[model]
preset = "llama3-8b"
[parallel]
tp = 2
zero = 1
[batch]
global = 64
seq_len = 4096
[run]
steps = 10
"""
PHONES = """
kind = "run"
cluster = "dgx-h100"
nodes = 1
[federated]
rounds = 2
clients = 100
sampled = 10
epoch_time = "60 s"
up = "5 Mb/s"
down = "20 Mb/s"
"""
QUEUE = """
kind = "run"
cluster = "dgx-h100"
nodes = 4
[jobs]
job = [{ name = "a", gpus = 8, time = "10 h", count = 4 }]
"""
ALONE = FOUR.replace('gradient = "1 GB"', "")
"""Workers that send each other nothing."""
SERVERS, LOCAL, GOSSIP = "sync.mode=parameter_server", ("sync.mode=local", "sync.inner=100"), "sync.mode=gossip"


def cause(**keys: str) -> str:
    given = {"name": "x", "part": "node", "mtbf": "1000 s"} | keys
    return "failures.cause=[{" + ", ".join(f"{key}='{value}'" for key, value in given.items()) + "}]"


@pytest.fixture
def run(tmp_path):
    def simulated(text: str, *changes: str):
        path = Path(tmp_path / "run.toml")
        path.write_text(text)
        return simulate(path, changes)

    return simulated


REFUSED = {
    (FOUR, SERVERS, cause(effect="slow")): "failures.cause.0.effect = 'slow': expected stop",
    (FOUR, SERVERS, cause(part="job")): "failures.cause.0.part = 'job': expected gpu or nic or link or node",
    (FOUR, SERVERS, cause(), "failures.spares=1"): "is not for sync.mode = 'parameter_server': goes with all_reduce",
    (FOUR, "sync.mode=foo"): "sync.mode = 'foo': expected 'all_reduce', 'local', 'parameter_server' or 'gossip'",
    (FOUR, "sync.mode=[0]"): "sync.mode = [0]: expected 'all_reduce', 'local', 'parameter_server' or 'gossip'",
    (FOUR, SERVERS, "run.start=true"): "run.start = True: is not for sync.mode",
    (FOUR, GOSSIP, "sync.workers=3", "sync.gossip.topology=torus"): "a torus needs a product of two numbers",
    (FOUR, "compress={method='low_rank', rank=4}"): "compress.method = 'low_rank': method = 'low_rank' needs rows",
    (FOUR, "failures.cause=[{name='x', mtbf='9 h', factor=3}]"): "factor goes with effect = 'slow', not 'stop'",
    (FOUR, cause(effect="slow", detect="9 s")): "detect goes with effect = 'stop', not 'slow': speed.detect says when",
    (FOUR, cause(effect="planned", notice="9 s")): "notice goes with effect = 'stop', not 'planned'",
    (FOUR, "failures.trace=[{at=9, effect='planned', detect=9}]"): "detect goes with effect = 'stop', not 'planned'",
    (ALONE, "compress.method=int8"): "compress.method = 'int8': there are no gradients to compress: give step.gradient",
    (FOUR, "sync.workers=1", "compress.method=int8"): "sync.workers = 1: one worker exchanges nothing",
    (FOUR, "sync.backup=1", "sync.inside.workers=2"): "sync.backup = 1: is not for groups of workers",
    (FOUR, "sync.backup=1", "elastic.mode=drop"): "elastic.least = 1: expected more than the 1 backup workers",
    (FOUR, "sync.inside.workers=2", "elastic.mode=drop"): "elastic.mode = 'drop': is not for groups",
    (FOUR, "elastic={mode='shrink', least=2}"): "elastic.least = 2: goes with elastic.mode = 'drop'",
    (FOUR, "checkpoint={mode='memory', stall=1, store='1 GB/s'}"): "checkpoint.store = '1 GB/s': goes with",
    (FOUR, "checkpoint={stall=1, write=3}"): "checkpoint.write = 3: goes with checkpoint.mode = 'background' or",
    (FOUR, "checkpoint={stall=1, read='1 GB/s'}"): "checkpoint.bytes = None: say what is saved",
    (FOUR, cause(effect="planned", mtbf="10 s"), "checkpoint.stall=100"): "on 4 nodes, and it takes 100 s to come back",
    (FOUR, cause(mtbf="4 h", repair="12 h")): "a failure every 3,600 s on 4 nodes, and it takes 43,200 s to come back",
    (
        FOUR,
        cause(mtbf="4 h", detect="3 h"),
    ): "no work is ever done: a failure every 3,600 s on 4 nodes, and it takes 10,8",
    (FOUR, cause(effect="slow", repair="1 h"), "speed.detect=60"): "no work is ever done: a failure every 250 s",
    (FOUR, cause(part="leaf", mtbf="8 h", repair="11 h"), "elastic.mode=drop"): "and it takes 39,600 s to come back",
    (FOUR, "sync.bandwidth=5", cause(mtbf="4 h")): "sync.bandwidth = '300,000,001 s': nothing is ever saved: a failure",
    (FOUR, cause(), "checkpoint.stall=90_000"): "checkpoint.stall = '90,000 s': nothing is ever saved: a failure every",
    (
        FOUR,
        cause(),
        "checkpoint={mode='background', stall=0, write=90_000, interval=100}",
    ): "checkpoint.write = '90,000 s': nothing is ever saved: a failure every",
    (
        FOUR,
        cause(mtbf="8000 h"),
        "run.steps=1e6",
        "checkpoint={stall=4.2e7, interval=1e6}",
    ): "checkpoint.stall = '42,000,000 s': the run ends after 65,",
    (
        FOUR,
        SERVERS,
        cause(repair="20000 s"),
    ): "every 1,000 s on the nodes of a worker, and it takes 20,000 s to come back",
    (
        FOUR,
        SERVERS,
        cause(mtbf="0.2 s"),
    ): "step.time = '2 s': nothing is ever saved: a failure every 200 ms on the nodes",
    (QUEUE, cause(repair="20000 s")): "a failure every 1,000 s of a node, and it takes 20,000 s to come back from one",
    (QUEUE, cause()): "jobs = '36,000 s': nothing is ever saved: a failure every 1,000 s on the nodes of job 'a",
    (QUEUE, "model.preset=llama3-8b"): "model = {'preset': 'llama3-8b'}: is not for [jobs]: goes with",
    (QUEUE, cause(effect="planned")): "failures.cause.0.effect = 'planned': expected stop",
    (QUEUE, cause(), "failures.init=60"): "failures.init = 60: is not for [jobs]: goes with",
    (PHONES, "federated.bytes=1 MB", "slow=[{node=0, factor=2.0}]"): "slow = [{'node': 0",
}


@pytest.mark.parametrize(("given", "words"), REFUSED.items(), ids=map(str, range(len(REFUSED))))
def test_what_is_not_simulated_is_refused(run, given, words):
    with pytest.raises(UserError) as found:
        run(*given)

    assert words in found.value.faults[0]


def test_every_mode_that_a_scenario_may_name_is_registered():
    assert {*get_args(Sync.model_fields["mode"].annotation), *INSTEAD} == set(MODES)


def test_a_slow_node_counts_once(run):
    slow = "slow=[{node=3, factor=2.0}]"
    alone, step = (run(PREDICTED, *changes).report for changes in ([slow], []))
    several, calm = (run(PREDICTED, "sync.workers=4", *changes).report for changes in ([slow], []))

    assert alone.wall_s == pytest.approx(10 * alone.step_s)
    assert alone.step_s < 2 * step.step_s
    assert several.history.breakdown_s["compute"] + several.history.breakdown_s["wait"] == pytest.approx(
        2 * calm.history.breakdown_s["compute"]
    )


def test_values_of_16_bits_are_as_many(run):
    exchange = [
        run(PREDICTED, "sync.workers=4", "sync.latency=0", "sync.overlap.order=none", "compress.method=int8", change)
        .report.history.breakdown_s["exchange"]
        for change in ("precision.reduce=fp32", "precision.reduce=bf16")
    ]  # fmt: skip

    assert exchange[1] == pytest.approx(exchange[0])


def test_the_model_of_clients_is_in_the_hash(run):
    hashes = {run(PHONES, f"model.preset={name}").report.scenario_hash for name in ("llama3-8b", "llama3-70b")}

    assert len(hashes) == 2


@pytest.mark.parametrize(("every", "pauses"), [(10, 100), (100, 10), (150, 6), (1000, 1)])
def test_training_stands_as_often_as_is_said_whatever_a_round_has(run, every, pauses):
    history = run(FOUR, *LOCAL, f"pause=[{{every={every}, time=1}}]").report.history

    assert history.breakdown_s["pause"] == pytest.approx(pauses)


def test_each_fragment_has_the_latency_of_its_own_exchange(run):
    whole, parts = (
        run(FOUR, *LOCAL, "sync.latency=1", f"sync.fragments={n}").report.history.breakdown_s["exchange"]
        for n in (1, 10)
    )

    assert parts - whole == pytest.approx(10 * 2 * 3 * 9)  # rounds, a ring of 4, fragments more


def test_ranks_that_turn_slow_are_those_of_speed_per_where_workers_step_alone(run):
    turn = "speed.turn=[{at=0, rank=31, factor=2.0}]"

    assert run(FOUR, *LOCAL, "speed.per=gpu", turn).report.wall_s > 3800


def test_a_node_that_fails_takes_all_workers_on_it_along(run):
    trace = "failures={trace=[{at=10.5, node=3}], detect=100}"
    changes = (SERVERS, "step.gpus=4", "run.steps=400", "sync.bandwidth=1 TB/s", trace)

    assert run(FOUR, *changes).report.history.breakdown_s["detect"] == pytest.approx(2 * 100 / 8)


def test_groups_on_a_node_that_fails(run):
    changes = (SERVERS, "sync.inside.workers=2", "run.steps=100", "failures={trace=[{at=5, node=3}], detect=10}")

    assert run(FOUR, *changes).report.history.counts["failures"] == 1


def test_a_rail_leaf_takes_all_nodes_of_its_pod_away(run):
    leaf = "failures={repair=500, cause=[{name='rail', part='leaf', mtbf='8000 s', repair=500}]}"
    changes = "elastic.mode=drop", "checkpoint={stall=0, interval=2}", "run.repeats=1", leaf
    history = run(FOUR, *changes).report.history

    assert history.breakdown_s["repair"] == pytest.approx(500 * history.counts["failures"])
    assert {event.detail for event in history.events} == {"rail, node 0 and 3 more"}


@pytest.mark.parametrize("mode", [("sync.mode=all_reduce",), LOCAL, (SERVERS,), (GOSSIP,)])
def test_a_note_says_that_workers_send_each_other_nothing(run, mode):
    assert "nothing travels between workers; see step.gradient" in run(ALONE, *mode, "run.steps=100").report.notes


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ((cause(mtbf="1e9 h"),), ["nothing is saved, so every failure loses all work; see [checkpoint]"]),
        ((cause(effect="slow"),), []),
        (
            (cause(effect="slow"), "checkpoint.stall=1"),
            ["no checkpoint is made at intervals: no failure undoes work, and checkpoint.interval is not given"],
        ),
    ],
)
def test_notes_on_what_is_saved_are_of_what_failures_undo(run, keys, words):
    notes = run(FOUR, *keys, "run.repeats=1", "run.steps=10").report.notes

    assert [note for note in notes if "saved" in note or "checkpoint is" in note] == words


def test_spare_nodes_need_no_repair(run):
    assert run(FOUR, cause(mtbf="1e9 h"), "failures.spares=1", "run.repeats=1").report.steps == 1000


def test_the_least_shape_of_a_weibull_distribution_runs(run):
    assert run(FOUR, "failures.cause=[{name='x', mtbf='1e9 h', shape=0.1}]", "run.repeats=1").report.steps == 1000


def test_a_run_that_goes_on_without_nodes_need_not_wait_for_their_repair(run):
    failing = cause(mtbf="4 h", repair="11 h")  # a failure every hour

    assert run(FOUR, failing, "elastic.mode=drop", "run.repeats=1").report.steps == 1000
    with pytest.raises(UserError, match="no work is ever done"):
        run(FOUR, failing)


def test_repairs_that_leave_time_for_work_are_no_reason_to_refuse(run):
    """A failure each 4,500 s, two spare nodes, repairs of 21,600 s: after three failures all wait for the first."""
    failing = "failures={repair='6 h', spares=2, cause=[{name='node', part='node', mtbf='9000 s'}]}"

    report = run(
        FOUR, failing, "run.steps=20_000", "checkpoint={stall='0.001 s', interval='2 s'}", "run.repeats=1"
    ).report

    assert report.goodput > 0.2


@pytest.mark.parametrize(("part", "many"), [("nic", 32), ("link", 32), ("leaf", 8), ("node", 4)])
def test_parts_fail_as_often_as_there_are(run, part, many):
    assert run(FOUR, cause(part=part, mtbf="1e6 s"), "run.repeats=1").report.mtbf_s == pytest.approx(1e6 / many)


@pytest.mark.parametrize("mode", [("sync.mode=all_reduce",), LOCAL, (SERVERS,), (GOSSIP,)])
def test_a_run_of_hardly_any_samples_makes_its_first_round(run, mode):
    fewest, one_step = (run(FOUR, *mode, f"run={{samples={many}}}").report for many in (1e-6, 100))

    assert fewest.to_json()["samples"] == one_step.to_json()["samples"]


@pytest.mark.parametrize("mode", [("sync.mode=all_reduce",), (SERVERS,), (GOSSIP,)])
def test_a_part_of_a_step_is_a_step(run, mode):
    assert run(FOUR, *mode, "run={steps=1e-12}").report.steps == run(FOUR, *mode, "run={steps=1}").report.steps


def test_rates_are_drawn_so_that_a_round_is_done_between_failures(run):
    """A round takes 167 s, most of it its exchange: at twice as many failures none would ever be done."""
    resolved = run(FOUR, cause(), "sync.bandwidth='9 MB/s'", "checkpoint.stall=1", "run={steps=3, repeats=1}").resolved
    until_safe_s = resolved.rounds(resolved.workers).round_s + 1.0

    assert min(map(resolved.drawn_mtbf_s, range(9))) == pytest.approx(until_safe_s / 2)


def test_removing_masks_takes_what_is_stated(run):
    slow, fast = (run(PHONES, "federated.bytes=1 MB", f"federated.secure.unmask={rate}").report for rate in (1e6, 2e6))

    assert slow.history.breakdown_s["encode"] == pytest.approx(2 * fast.history.breakdown_s["encode"])


def test_jobs_that_a_trace_leaves_out_are_told(run, tmp_path):
    (tmp_path / "log.csv").write_text("JobID,Submit,Start,End,GPUs\n1,0,0,60,8\n2,0,0,60,0\n")
    report = run(QUEUE, "jobs={trace='log.csv'}").report

    assert "log.csv: 1 jobs are left out: have no GPUs" in report.notes


@pytest.mark.parametrize(("mode", "kept"), [("memory", {"mode", "bytes"}), ("blocking", {"mode", "bytes", "stall"})])
def test_the_stated_time_of_a_checkpoint_is_that_of_its_mode(mode, kept):
    table = {"kind": "run", "cluster": "dgx-h100", "step": {"time": 1}, "run": {"steps": 9}}
    saved = table | {"checkpoint": {"stall": 60, "bytes": 1e12}}

    assert set(change(saved, {"checkpoint.mode": mode}, "test")["checkpoint"]) == kept
