"""A run explained: levers that must help do, by how much theory says, and those that cannot apply are not tried."""

import json
import re
from functools import cache
from html import unescape
from math import sqrt
from pathlib import Path

import pytest
from runcast.simulator import UserError, simulate
from runcast.simulator.answers.explain import RunExplanation, explain
from runcast.simulator.answers.explain.levers import share_step
from runcast.simulator.base.units import format_usd
from runcast.simulator.figures import write_html
from runcast.simulator.scenario import change, check_question, what_ifs
from runcast.simulator.systems.registry import SYSTEMS
from runcast.simulator.systems.train_step.run import expected_s

from ..command import runcast

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "data/scenarios"
STEP_S, STEPS, STALL_S, MTBF_S, RESTART_S = 10.0, 100_000, 10.0, 3600.0, 60.0


def run(**tables):
    """A run of four workers, a node each, whose steps take a second."""
    given = {
        "name": "four workers",
        "kind": "run",
        "cluster": "dgx-h100",
        "nodes": 4,
        "step": {"time": 1, "samples": 10, "gpus": 8},
        "run": {"steps": 1000},
    }
    return given | tables


def failing(interval_s):
    """A run that is saved after so much work, and of which nothing else varies."""
    return run(
        run={"steps": STEPS, "repeats": 4},
        step={"time": STEP_S},
        checkpoint={"interval": interval_s, "stall": STALL_S},
        failures={"init": RESTART_S, "cause": [{"name": "host", "part": "job", "mtbf": MTBF_S}]},
    )


def daly_s(interval_s, mtbf_s=MTBF_S):
    """The expected time of this run."""
    return expected_s(STEPS * STEP_S, interval_s, STALL_S, RESTART_S, mtbf_s)


@cache
def explained_failing(interval_s) -> RunExplanation:
    return explain(failing(interval_s))


BEST_S = sqrt(2 * STALL_S * MTBF_S)
SLOW_TAILS = {"kind": "pareto", "spread": 2.0}
SERVERS = run(
    run={"steps": 400},
    step={"time": 1, "samples": 10, "gpus": 8, "gradient": "10 GB"},
    speed={"jitter": {"kind": "lognormal", "spread": 0.5}},
    sync={"mode": "parameter_server", "server": {"update": "stale", "bound": 1, "bandwidth": "10 GB/s"}},
)
LOCAL = run(
    step={"time": 1, "samples": 10, "gpus": 8, "gradient": "10 GB"},
    sync={"mode": "local", "inner": 10, "bandwidth": "3 GB/s", "latency": 0},
)
NO_STEPS = {"step": {}, "run": {}}
PHONES = run(
    **NO_STEPS,
    federated={
        "rounds": 20, "clients": 1000, "sampled": 20, "epoch_time": 60, "up": "1 MB/s", "down": "1 MB/s",
        "bytes": "6 MB", "dropout": 0.1, "deadline": 100, "compute": {"kind": "lognormal", "spread": 0.5},
    }
)  # fmt: skip
QUEUE = run(
    **NO_STEPS,
    nodes=1,
    jobs={
        "policy": "fifo",
        "job": [
            {"name": "half", "gpus": 4, "time": "10 h"},
            {"name": "all", "gpus": 8, "time": "1 h", "at": 1},
            {"name": "other half", "gpus": 4, "time": "1 h", "at": 1},
        ],
    },
)
ARRIVALS = run(
    **NO_STEPS,
    nodes=1,
    jobs={"arrivals": {"rate": 10, "count": 50, "time": "1 h", "gpus": [1, 8], "overestimate": 3.0}},
)
RICH = run(
    run={"steps": 4000, "repeats": 4},
    step={"time": 1, "samples": 10, "gpus": 8, "gradient": "1 GB"},
    sync={"workers": 4, "bandwidth": "10 GB/s"},
    nodes=5,
    speed={"jitter": {"spread": 0.1}, "ranks": {"spread": 0.1}, "turn": [{"at": 10, "factor": 2.0}]},
    checkpoint={"store": "10 GB/s", "bytes": "100 GB"},
    failures={
        "detect": 60, "place": 60, "init": 60, "warmup": 60, "repair": "1 h", "spares": 1,
        "cause": [{"name": "host", "part": "node", "mtbf": "4 h"}],
    },
    input={"sample": "1 MB", "samples": 1000, "cpu": 1e-3, "store": "5 GB/s"},
)  # fmt: skip
KINDS = {"rich": RICH, "local": LOCAL, "servers": SERVERS, "phones": PHONES, "queue": QUEUE, "arrivals": ARRIVALS}


@cache
def explained(kind) -> RunExplanation:
    return explain(KINDS[kind])


def gains(found):
    return {one.name: one.gain for one in found.tried}


def reasons(found):
    return {one.name: one.reason for one in found.refused}


@pytest.mark.parametrize(("interval_s", "better", "factor"), [(1800, "/2", 0.5), (60, "x2", 2)])
@pytest.mark.slow
def test_checkpoints_closer_to_the_optimum_save_what_daly_says(interval_s, better, factor):
    found = gains(explained_failing(interval_s))

    assert found[f"checkpoint interval {better}"] == pytest.approx(
        1 - daly_s(factor * interval_s) / daly_s(interval_s), abs=0.02
    )


@pytest.mark.slow
@pytest.mark.parametrize("interval_s", [1800, 60])
def test_dalys_interval_is_better_than_twice_and_half_of_one_far_from_it(interval_s):
    found = gains(explained_failing(interval_s))
    ranked = sorted((name for name in found if "interval" in name), key=lambda name: -found[name])

    assert ranked[0] == "Daly's checkpoint interval"
    assert found[ranked[0]] == pytest.approx(1 - daly_s(BEST_S) / daly_s(interval_s), abs=0.02)


@pytest.mark.slow
def test_an_interval_that_is_not_given_is_multiplied_as_it_is_derived():
    table = failing(1800)
    del table["checkpoint"]["interval"]
    found = explain(table)
    derived_s = found.report.checkpoint_interval_s
    twice = next(one for one in found.tried if one.name == "checkpoint interval x2")
    by_hand = simulate_table(table, f"checkpoint.interval={2 * derived_s}", "run.repeats=1")

    assert twice.gains[0] == pytest.approx(1 - by_hand.wall_s / found.report.wall_s)


def simulate_table(table, *changes):
    """The report of a table with changes."""
    from runcast.simulator.scenario import change, check_question, parse_changes

    return simulate(check_question(change(table, parse_changes(changes), "x"), "x")).report


@pytest.mark.parametrize(("jitter", "helps"), [({}, False), (SLOW_TAILS, True)])
def test_a_backup_worker_helps_where_tails_are_heavy(jitter, helps):
    found = gains(explain(run(speed={"per": "worker", "jitter": jitter}, nodes=16, run={"steps": 20_000})))

    assert (found["1 backup worker"] > 0.2) is helps
    assert (found["2 backup workers"] > found["1 backup worker"]) is helps


def test_a_backup_worker_of_workers_that_never_vary_costs_its_samples():
    found = gains(explain(run()))

    assert found["1 backup worker"] == pytest.approx(1 - 4 / 3)


@pytest.mark.parametrize(
    ("lever", "factor"), [("inner steps x2", 0.5), ("inner steps /2", 2), ("workers' links x2", 0.5)]
)
def test_exchanges_take_the_share_that_a_lever_leaves_of_them(lever, factor):
    found = explained("local")
    exchange = found.report.history.breakdown_s["exchange"] / found.report.wall_s

    assert gains(found)[lever] == pytest.approx((1 - factor) * exchange)


def test_a_lever_on_links_leaves_exchanges_alone_that_the_cluster_prices():
    """A rate that is said prices them as a ring: eight GPUs of a node were 86 % slower with twice of it."""
    found = explain(run(nodes=1, step={"time": 0.2, "samples": 10, "gradient": "16 GB"}, sync={"workers": 8}))

    assert "change cluster.nic" in reasons(found)["workers' links x2"]


def test_backfill_is_worth_the_wait_of_a_job_that_fits_beside_the_first():
    # In order, `all` waits 10 h for `half`, and `other half` 11 h for both; else it fills the other half at once.
    found = explained("queue")

    assert found.aim == "the mean wait in the queue"
    assert gains(found)["backfill"] == pytest.approx(1 - 10 / 21, rel=1e-3)


def test_twice_the_bound_and_the_servers_help_workers_that_wait_for_them():
    found = gains(explained("servers"))

    assert [found[name] > 0 for name in ("servers x2", "servers' links x2", "stale bound x2")] == [True] * 3


def test_a_part_that_fails_half_as_often_saves_what_daly_says():
    found = gains(explained_failing(1800))

    assert found["host: half as often"] == pytest.approx(1 - daly_s(1800, 2 * MTBF_S) / daly_s(1800), abs=0.02)


def test_a_step_with_residuals_in_its_memory_is_not_that_of_the_run():
    """DiLoCo, whose step is predicted, without and with error feedback."""
    plain, same, kept = (
        simulate(SCENARIOS / "run-diloco.toml", ["run.steps=500", f"compress={{method='int8', error_feedback={said}}}"])
        for said in ("false", "false", "true")
    )
    others = [share_step(plain.resolved, one.resolved) for one in (same, kept)]
    assert [other.step is plain.resolved.step for other in others] == [True, False]


def test_a_lever_is_what_a_simulation_with_its_changes_says():
    found = explained("servers")
    lever = next(one for one in found.tried if one.name == "stale bound x2")
    seeds = [simulate_table(SERVERS, "sync.server.bound=2", f"seed={seed}").wall_s for seed in (0, 1)]

    assert lever.means.wall_s == pytest.approx(sum(seeds) / 2)


@pytest.mark.parametrize("kind", KINDS)
def test_levers_are_ranked_by_what_they_save(kind):
    ranked = list(gains(explained(kind)).values())

    assert ranked == sorted(ranked, reverse=True)
    assert explained(kind).best == [one for one in explained(kind).tried if one.gain > 5e-5]


def test_every_shipped_lever_goes_with_one_of_these_runs():
    tried = {name for kind in KINDS for name in gains(explained(kind))}
    already = {"elastic: workers shrink"}

    assert {one.name for one in what_ifs().values() if one.subject == "run"} - tried - already == set()


def test_what_cannot_apply_is_not_tried():
    found = explained("local")

    assert {
        name: reasons(found)[name] for name in ("backfill", "checkpoint interval x2", "servers x2", "prefetch x2")
    } == {
        "backfill": "goes with jobs",
        "checkpoint interval x2": "goes with checkpoint",
        "servers x2": "goes with sync.server",
        "prefetch x2": "goes with input",
    }
    assert "sync.backup = 1: goes with sync.mode = 'all_reduce'" in reasons(found)["1 backup worker"]


def test_what_is_so_already_is_not_tried():
    assert reasons(explain(run(sync={"workers": 4, "backup": 1})))["1 backup worker"] == "it changes nothing here"


def test_the_key_of_a_list_counts_where_one_of_its_tables_has_it():
    cause = {"name": "host", "part": "node", "mtbf": "100 h"}
    tried = [
        "elastic: workers leave" in gains(explain(run(failures={"cause": [cause, other]})))
        for other in (cause, cause | {"repair": "1 h"})
    ]

    assert tried == [False, True]


def test_a_target_is_to_be_reached_in_less_time():
    found = explain(run(run={}, target={"steps_min": 1000, "noise_scale": 100}), quick=True)

    assert found.aim == "the time to the target"


@pytest.mark.slow
def test_runs_of_a_given_time_are_compared_by_their_speed():
    found = explain(failing(1800) | {"run": {"wall": "20 d", "repeats": 1}})
    half = next(one for one in found.tried if one.name == "checkpoint interval /2")

    assert half.means.wall_s == pytest.approx(found.report.wall_s)
    assert half.means.samples_per_s > found.report.tokens_per_s
    assert half.gain == pytest.approx(1 - daly_s(900) / daly_s(1800), abs=0.03)


def test_what_is_less_than_chance_is_told():
    found = explained_failing(1800)
    beyond = {one.name: found.is_beyond_chance(one) for one in found.best}
    text = "\n".join(found.lines())

    assert set(beyond.values()) == {True, False}
    assert [
        name for name, is_beyond in beyond.items() if not is_beyond and name not in text.partition("less than")[2]
    ] == []


def test_nothing_is_known_of_chance_from_one_seed():
    found = explain(run(run={"steps": 100, "repeats": 1}))

    assert (found.seeds, found.chance, found.is_beyond_chance(found.tried[0])) == (1, None, None)


def test_a_lever_is_worth_its_share_of_the_cost_and_of_its_interval():
    found = explained("rich")
    cost, ends = found.report.spent.cost_usd, found.report.cost_interval_usd
    one = next(one for one in found.best if one.name == "host: half as often")

    assert ends[0] < cost < ends[1]
    assert one.worth == pytest.approx([one.gain * usd for usd in (cost, *ends)])
    assert " to ".join(map(format_usd, one.worth[1:])) in "\n".join(found.lines())


def test_a_lever_pays_for_the_gpus_that_it_needs():
    spare = next(one for one in explained("rich").tried if "spare" in one.name)
    nodes = spare.changes["nodes"] / RICH["nodes"]

    assert spare.worth.usd == pytest.approx((1 - (1 - spare.gain) * nodes) * explained("rich").report.spent.cost_usd)


def test_a_run_of_a_given_time_has_the_interval_of_a_million_samples():
    found = explain(RICH | {"run": {"wall": "1 h", "repeats": 4}})
    text = "\n".join(found.lines())

    assert found.best[0].worth.low_usd == found.best[0].worth.high_usd
    assert re.search(r"cost .* \(90 % interval of such runs: \$[\d,.]+ to \$[\d,.]+ per million tokens\)", text)
    assert ("worth" in text, "  90 %  " in text) == (True, False)


def test_a_wait_in_a_queue_is_not_paid_for():
    assert {one.worth for one in explained("queue").tried} == {None}


def test_quick_says_where_the_time_goes():
    found = explain(RICH, quick=True)
    said = found.to_json()

    assert (said["what_ifs"], said["refused"], said["quick"]) == ([], [], True)
    assert sum(said["breakdown_s"].values()) == pytest.approx(said["total_s"])
    assert said["largest_loss"] == max(said["breakdown_s"].keys() - {"compute"}, key=said["breakdown_s"].get)
    assert not any("what to change" in line for line in found.lines())


def test_the_report_is_that_of_simulate():
    said = explain(RICH, quick=True).to_json()

    assert said["total_s"] == simulate_table(RICH).wall_s


def test_what_a_lever_saves_is_of_the_two_times_that_are_shown():
    found = explained_failing(BEST_S)

    assert [one.gain for one in found.tried] == pytest.approx(
        [1 - one.means.wall_s / found.unchanged.wall_s for one in found.tried], abs=1e-9
    )


def test_the_time_of_a_lever_is_that_of_simulate_with_its_changes_and_seeds():
    found = explained_failing(BEST_S)
    lever = found.best[0]

    by_hand = [simulate(failing(BEST_S), lever.changes | {"seed": seed}).report.wall_s for seed in found.lever_seeds]

    assert lever.means.wall_s == pytest.approx(sum(by_hand) / 2)


def test_the_keys_of_its_json():
    said = json.loads(json.dumps(explained("rich").to_json()))

    assert list(said) == [
        "schema", "version", "kind", "of", "name", "question", "scenario_hash", "bound_by", "goodput", "tokens_per_s",
        "mode", "total_s", "interval_low_s", "interval_high_s", "cost_usd", "cost_low_usd",
        "cost_high_usd", "breakdown_s", "largest_loss", "aim", "chance", "seeds",
        "lever_seeds", "unchanged", "best", "what_ifs", "refused", "quick", "inputs",
    ]  # fmt: skip
    assert list(said["what_ifs"][0]) == [
        "name", "about", "changes", "gain", "gains", "wall_s", "samples_per_s", "queue_s", "worth_usd",
        "worth_low_usd", "worth_high_usd", "beyond_chance",
    ]  # fmt: skip


def test_the_page_names_what_was_tried(tmp_path):
    found = explained("rich")
    write_html(tmp_path / "why.html", *found.page())
    text = unescape((tmp_path / "why.html").read_text())

    assert [one.name for one in found.best if one.name not in text] == []


def test_on_the_command_line(tmp_path):
    path = SCENARIOS / "run-jobs.toml"
    done = runcast("explain", path, "--quick", "--json", "-", "--set", "jobs.arrivals.count=20", cwd=tmp_path)

    assert json.loads(done.stdout)["of"] == "run"


def test_a_mistake_is_one_line():
    with pytest.raises(UserError, match=r"scenario: run\.steps = 0: expected more than 0"):
        explain(run(run={"steps": 0}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("diloco", "top 1 % of gradients"),
        ("federated", "clients more alike"),
        ("llama3-405b-16384xh100", "GPU: half as often"),
        ("parameter-server-async", "top 1 % of gradients"),
    ],
)
def test_what_to_change_first_in_a_shipped_run(name, first):
    assert explain(SCENARIOS / f"run-{name}.toml").best[0].name == first


def test_the_record_of_a_system_says_how_it_is_explained():
    assert [kind for kind, system in SYSTEMS.items() if system.has_levers] == ["rl_cycle", "run"]
    assert [kind for kind, system in SYSTEMS.items() if system.parts] == ["weight_update", "train_step"]


def test_changes_of_a_lever_are_those_that_were_simulated():
    """Also where it multiplies what the scenario leaves out: the interval that Daly's formula gives."""
    table = failing(None) | {"run": {"steps": 10_000, "repeats": 1}}
    lever = next(one for one in explain(table).tried if one.name == "checkpoint interval /2")
    again = simulate(check_question(change(table, lever.changes, "test"))).report

    assert again.wall_s == pytest.approx(simulate(check_question(table)).report.wall_s * (1 - lever.gains[0]))
