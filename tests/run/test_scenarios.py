"""Runs from their files to their reports: the shipped ones, closed forms from keys, and what is refused in one line."""

import json
from pathlib import Path

import pytest
from runcast.simulator import UserError, simulate
from runcast.simulator.cli import main
from runcast.simulator.hardware import cluster, limits
from runcast.simulator.scenario import load_question
from runcast.simulator.systems.run.intervals import shipped_run_errors
from runcast.simulator.systems.train_step.run import expected_s

from .make import FOUR_WORKERS

SCENARIOS = Path(__file__).parents[2] / "data/scenarios"
SHIPPED = sorted(path.stem for path in SCENARIOS.glob("run-*.toml"))
CAUSE = "failures.cause=[{name='any', part='job', mtbf='3 h'}]"

CHANGES = {
    ("run.steps=0",): "run.steps = 0: expected more than 0",
    ("run={}",): "give run.steps, run.samples, run.wall or [target]",
    ("failures={}",): "failures: give [[failures.cause]] or [[failures.trace]]: nothing fails",
    (CAUSE, "failures.spares=4"): "failures.spares = 4: expected fewer than the 4 nodes",
    ("failures.cause=[{name='x', mtbf='0 h'}]",): "failures.cause.0.mtbf = '0 h': expected a time above zero",
    ("failures.cause=[{name='x', mtbf='9 h', shape=0.005}]",): "failures.cause.0.shape = 0.005: expected at least 0.1",
    (CAUSE, "failures.init=4 h"): "no work is ever done: a failure every 10,800 s on 4 nodes, and it takes 14,400 s",
    (CAUSE, "run.steps=1_000_000"): "checkpoint = '2,000,000 s': nothing is ever saved",
    (CAUSE, "input={sample='1 MB', samples=4000, store='100 MB/s'}"): "checkpoint = '159,626 s': nothing is ever saved",
    ("failures.cause=[{name='x', part='job', mtbf='3 min', effect='planned'}]",): "'2,000 s': nothing is ever saved",
    (CAUSE, "checkpoint.interval=1 h"): "checkpoint: give store, the rate of the shared store, or stall",
    (CAUSE, "checkpoint.store=lustre"): "checkpoint.store = 'lustre': expected a quantity such as",
    (CAUSE, "checkpoint.store=2 GB/s"): "checkpoint.bytes = None: say what is saved",
    ("sync.mode=local",): "sync: mode = 'local' needs inner, the steps between",
    ("sync.inner=5",): "sync.inner = 5: goes with sync.mode = 'local'",
    ("sync.workers=64", "step.gpus=1"): "sync.workers = 64: 4 nodes have 32 GPUs, and each worker has 1",
    ("sync.backup=4",): "sync.backup = 4: expected fewer than the 4 workers",
    ("sync.inside.workers=3",): "sync.inside.workers = 3: expected a divisor of 4 workers",
    ("sync.server.update=stale",): "sync.server: update = 'stale' and bound must be given together",
    ("sync.gossip.topology=torus",): "sync.gossip = {'topology': 'torus'}: goes with sync.mode = 'gossip'",
    ("model.preset=llama3-8b",): "give step.time or [model], not both",
    ("parallel.tp=8",): "parallel = {'tp': 8}: is for a step that is predicted, not given as step.time",
    ("speed.rebalance=3",): "speed: rebalance goes with balance = 'dynamic'",
    ("speed.jitter={kind='gaussian', spread=0.7}",): "a Gaussian's spread is at most 0.5",
    ("jobs.policy=fifo",): "jobs: give at least one of job, arrivals and trace",
    (
        "federated.rounds=1_000_000",
        "federated.clients=90",
        "federated.sampled=60",
        "federated.epoch_time='1 s'",
        "federated.up='1 MB/s'",
        "federated.down='1 MB/s'",
    ): "federated: 1,000,000 rounds of 60 clients are 60,000,000 updates; at most 50,000,000",
    ("federated.rounds=3",): "federated: give clients, sampled, epoch_time, up, down, or silos",
    ("slow=[{node=9, factor=2.0}]",): "slow.0.node = 9: there are 4 nodes, numbered from 0",
    ("sync.mode=gossip", CAUSE): "failures = {'cause': [{'name': 'any', 'part': 'job', 'mtbf': '3 h'}]}: is not for",
    ("sync.mode=gossip", "checkpoint.stall=1"): "checkpoint = {'stall': 1}: is not for sync.mode = 'gossip'",
    ("sync.mode=parameter_server", "run={wall='1 h'}"): "run.wall = '1 h': is not for sync.mode",
    ("sync.mode=parameter_server", "run.steps=6e7"): "at most 50,000,000 updates are simulated one by one",
    ("run.steps=1e12",): "run: would work for",
    ("speed.turn=[{at=0, rank=99, factor=4.0}]",): "speed.turn.0.rank = 99: there are 4 ranks, numbered from 0",
    ("failures.trace=[{at=5, node=4}]",): "failures.trace.0.node = 4: there are 4 nodes, numbered from 0",
    ("sync.mode=local", "sync.inner=5", "sync.delay=6"): "sync: fragments and delay are at most inner = 5",
}


@pytest.fixture
def given(tmp_path) -> Path:
    path = tmp_path / "given.toml"
    path.write_text(FOUR_WORKERS)
    return path


def breakdown(path: Path, *changes: str) -> dict[str, float]:
    return dict(simulate(path, changes).report.history.breakdown_s)


def test_a_run_of_given_steps_takes_them_and_a_ring_of_exchanges(given):
    # 4 workers: 2 (N - 1) / N of a gigabyte at 10 GB/s in each of 1,000 steps.
    assert breakdown(given, "sync.overlap.order=none") == pytest.approx(
        {"compute": 2000.0, "exchange": 1000 * 1.5 * 0.1}
    )


def test_a_diloco_run_exchanges_once_in_its_inner_steps(given):
    changes = "sync.mode=local", "sync.inner=50"

    assert breakdown(given, *changes)["exchange"] == pytest.approx(1000 / 50 * 0.15)


def test_an_asynchronous_server_makes_gradients_as_stale_as_there_are_other_workers(given):
    changes = "sync.mode=parameter_server", "step.gradient=1 MB"
    report = simulate(given, [*changes, "speed.jitter={kind='gaussian', spread=0.1}"]).report

    assert report.to_json()["staleness_mean"] == pytest.approx(3.0, abs=0.05)


def test_a_synchronous_server_takes_the_larger_of_its_link_and_the_workers(given):
    # Li et al., OSDI 2014: 2 max(S / B_w, W S / (P B_s)) beside 2 s of compute.
    changes = "sync.mode=parameter_server", "run.steps=20"
    server = "sync.server={update='synchronous', servers=2, bandwidth='5 GB/s'}"

    assert simulate(given, [*changes, server]).report.wall_s == pytest.approx(20 * (2 + 2 * max(0.1, 4 / (2 * 5))))


def test_groups_exchange_inside_after_each_step_and_between_them_after_several(given):
    changes = "sync.mode=local", "sync.inner=50"
    inside = "sync.inside={workers=2, bandwidth='100 GB/s'}"
    every = 2 * 0.5 * 0.01  # a ring of two in each group
    rarely = (
        2 * 0.5 * 0.1 / 2 + 0.5 * 0.01
    )  # each worker exchanges a half with the other group, and passes it on inside

    assert simulate(given, [*changes, inside]).report.wall_s == pytest.approx(1000 * (2 + every) + 20 * rarely)


@pytest.mark.parametrize(
    ("mode", "steps"),
    [("mode='local', inner=50", 100), ("mode='parameter_server', server={on='workers'}", 50), ("mode='gossip'", 100)],
)  # servers: 100 updates of two groups
def test_an_exchange_inside_groups_is_no_computing_and_slow_workers_do_not_slow_it(given, mode, steps):
    sync = f"sync={{{mode}, inside={{workers=2, bandwidth='1 GB/s'}}}}"
    slow = "speed={per='worker', jitter={kind='trace', values=[1.5]}}"

    assert breakdown(given, sync, slow, "run.steps=100")["compute"] == pytest.approx(steps * 2 * 1.5)


def test_groups_on_equal_links_take_as_long_as_one_ring(given):
    """2(G-1)/G + 2(M-1)/M/G = 2(N-1)/N (Thakur et al., IJHPCA 2005): each byte crosses the links as often."""
    serial = "sync.overlap.order=none"
    grouped = simulate(given, [serial, "sync.inside={workers=2, bandwidth='10 GB/s'}"]).report

    assert grouped.wall_s == pytest.approx(simulate(given, [serial]).report.wall_s)


def test_failures_cost_what_daly_expects(given):
    changes = CAUSE, "checkpoint={stall='60 s', interval='20 min'}", "failures.init=5 min", "run.steps=500_000"
    report = simulate(given, [*changes, "sync.workers=1", "step.gpus=32", "run.repeats=4"]).report

    assert report.wall_s == pytest.approx(expected_s(1e6, 1200.0, 60.0, 300.0, 3 * 3600.0), rel=0.03)


def test_a_trace_alone_says_how_often_to_save(given):
    changes = "failures.trace=[{at=500}, {at=1500}]", "checkpoint.stall=10", "sync.workers=1", "step.gpus=32"

    assert breakdown(given, *changes)["lost"] < 2 * 300


def test_a_failure_behind_the_end_says_nothing_of_how_often_to_save(given):
    changes = "checkpoint.stall=10", "sync.workers=1", "step.gpus=32"
    alone = simulate(given, ["failures.trace=[{at=500}]", *changes]).report
    more = simulate(given, ["failures.trace=[{at=500}, {at='30 d'}, {at='31 d'}]", *changes]).report

    assert (more.mtbf_s, more.wall_s, more.checkpoint_steps) == (alone.mtbf_s, alone.wall_s, alone.checkpoint_steps)


def test_samples_are_reached_where_workers_leave(given):
    """Four workers train on 400 tokens a step, and soon three of them on 300."""
    leaves = "failures.trace=[{at=500, node=3, repair='9 d'}]", "elastic.batch=shrinks", "checkpoint.stall=0"
    report = simulate(given, [*leaves, "run={samples=400_000, repeats=1}"]).report

    assert (report.steps > 1000, 0 <= report.samples - 400_000 < 300) == (True, True)


def test_a_step_that_does_not_fit_is_no_secret(tmp_path):
    text = (SCENARIOS / "train-llama3-70b-64xh100.toml").read_text().replace('"train_step"', '"run"')
    path = tmp_path / "large.toml"
    path.write_text(text.replace("[run]", "[ignored]") + '\n[run]\nwall = "1 d"\n')

    prediction = simulate(path, ["batch.micro=4"])
    told = next(line for line in prediction.lines() if line.startswith("  memory "))
    assert (prediction.fits, prediction.report.to_json()["fits"]) == (False, False)
    assert "DOES NOT FIT: pipeline rank 0 needs " in told
    assert prediction.report.shortage.endswith(" GiB of 80 GiB")


def test_a_run_of_given_steps_says_nothing_of_memory(given):
    prediction = simulate(given)

    assert (prediction.fits, prediction.report.shortage) == (None, "")
    assert [line for line in prediction.lines() if line.startswith("  memory ")] == []


def test_a_target_gives_steps_by_the_noise_scale(given):
    changes = "run={}", "target={steps_min=500, noise_scale=400}"  # the batch is that of 4 workers

    assert simulate(given, changes).report.steps == 1000


_SERVERS = "sync.mode=parameter_server", "step.gradient=1 MB", "speed.jitter={kind='gaussian', spread=0.1}"


@pytest.mark.parametrize(
    ("changes", "behind"),
    [
        ((*_SERVERS, "sync.server={update='synchronous'}"), 0),
        ((*_SERVERS, "sync.server={update='stale', bound=0}"), 1.5),  # all read at once; 0 to 3 are applied before
        (_SERVERS, 3),  # one of each of the others
        ((*_SERVERS, "sync.server={prefetch=true}"), 6),  # two of each
        (("sync.mode=gossip", "sync.gossip={overlap=true}"), 1),
    ],
)
def test_steps_to_a_target_follow_how_stale_gradients_are(given, changes, behind):
    target = "target={steps_min=500, noise_scale=1e-9, stale_curve=[[6, 7]]}"  # a step more for each update behind

    assert simulate(given, [*changes, "run={}", target]).report.steps == pytest.approx(500 * (1 + behind), rel=0.01)


def test_a_target_knows_nothing_of_gradients_that_are_more_stale_than_its_curve(given):
    target = "target={steps_min=500, noise_scale=1e-9, stale_curve=[[3, 2]]}"

    with pytest.raises(UserError, match=r"stale_curve = 3\.0: is its last point, but the run has (5\.9\d*|6): add"):
        simulate(given, [*_SERVERS, "sync.server={prefetch=true}", "run={}", target])


def test_samples_of_backup_workers_do_not_count(given):
    report = simulate(given, ["sync.backup=1", "speed.jitter={kind='lognormal', spread=0.3}"]).report

    assert report.samples == 1000 * 3 * 100


_STEPS = 20_000
_HOT = 1 - 0.99**8  # any of eight GPUs


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        ([], 2 - 0.99**32),
        (["sync.mode=local", "sync.inner=1"], 2 - 0.99**32),
        (["sync.backup=1"], 2 - (1 - _HOT) ** 4 - 4 * _HOT * (1 - _HOT) ** 3),  # at least two workers are hot
    ],
)
def test_each_gpu_of_a_worker_is_hot_by_itself(given, changes, factor):
    hot = "speed={per='gpu', throttle={factor=2, share=0.01}}"
    free = "sync.bandwidth=1e8 GB/s", "run.repeats=1", f"run.steps={_STEPS}"

    assert simulate(given, [*changes, hot, *free]).report.wall_s / (2 * _STEPS) == pytest.approx(factor, abs=0.01)


_FREE = "sync.bandwidth=1e8 GB/s", "step.gradient=1", "run.repeats=1"


@pytest.mark.parametrize(
    "mode",
    [
        [],
        ["sync.mode=local", "sync.inner=1"],
        ["sync.mode=local", "sync.inner=1", "sync.workers=4", "step.gpus=8", "sync.inside.workers=2"],
        ["sync.mode=gossip"],
        ["sync.mode=parameter_server", "sync.server={update='synchronous'}"],
    ],
)
def test_the_slowest_rank_of_a_worker_is_not_always_the_same_one(given, mode):
    # Four ranks take 1 or 3, the first half as long again: 4.5 in half of the steps, else 3, or 1.5 if all take 1.
    two = "sync.workers=2", "step.gpus=16", "slow=[{node=0, factor=1.5}]"
    changes = [*_FREE, *two, *mode, f"run.steps={_STEPS}", "speed.jitter={kind='trace', values=[1, 3]}"]
    factor = 4.5 / 2 + (3 * 7 / 8 + 1.5 / 8) / 2

    assert simulate(given, changes).report.wall_s / (2 * _STEPS) == pytest.approx(factor, abs=0.03)


def test_compressed_gradients_are_gathered(given):
    changes = "compress={method='top_k', density=0.01, encode='1e8 GB/s', decode='1e8 GB/s'}"

    assert breakdown(given, "sync.overlap.order=none", changes)["exchange"] == pytest.approx(1000 * 3 * 0.02 * 0.1)


TOP_K = "compress={method='top_k', density=0.01}"


def measured_parts(folder, **bytes_per_s):
    """A profile of H100 that has measured parts of compression at so many bytes per second."""
    machine = limits(cluster("dgx-h100", 1))
    scored = {"rows": 10, "median": 0.1, "p90": 0.2, "bias": 0.0}
    models = {}
    for part, rate in bytes_per_s.items():
        e = rate / machine.memory_bytes_per_s
        model = {
            "form": "passes over memory", "coefficients": {"a_s": 1e-7, "e": e, "g": 0.001, "y0": 0.05},
            "fitted": scored, "range": {"bytes": [1, 1e12]}, "growth": {"bytes": 0.1}, "held_out": scored,
            "groups": 2, "source": "t", "bands": [{"size": 1, **scored, "spread": 0.2}],
        }  # fmt: skip
        models[f"compress.{part}"] = {"default": "torch", "variants": {"torch": model}}
    content = {"schema": 2, "base": "h100-sxm", "devices": ["H100 SXM"], "limits": vars(machine), "models": models}
    (folder / "mine.json").write_text(json.dumps(content))
    return f"profile='{folder / 'mine.json'}'"


def encoding(report):
    """What a report says of encode and decode: shares of the run by provenance, and notes."""
    notes = [note for note in report.notes if note.startswith("times of ")]
    return report.provenance, notes


def test_memory_passes_are_data_sheet_numbers_and_said_to_be_a_lower_bound(given):
    report = simulate(given, [TOP_K]).report
    share = report.history.breakdown_s["encode"] / report.wall_s

    provenance, (note,) = encoding(report)
    assert provenance == pytest.approx({"given": 1 - share, "datasheet": share})
    assert note.startswith("times of encode and decode are memory passes, a lower bound")


def test_a_run_takes_what_its_profile_has_measured(given, tmp_path):
    """An eighth, on each GPU, of 1 GB encoded, the sum cleared, 4 messages of 20 MB added, in each of 1,000 steps."""
    profile = measured_parts(tmp_path, top_k_encode=5e9, top_k_decode=1e9, clear=1e12)
    report = simulate(given, [TOP_K, profile]).report
    share = report.history.breakdown_s["encode"] / report.wall_s

    assert report.history.breakdown_s["encode"] == pytest.approx(1000 / 8 * (0.2 + 0.001 + 4 * 0.02), rel=1e-3)
    assert encoding(report) == (
        pytest.approx({"given": 1 - share, "fitted": share}),
        ["times of encode and decode are the profile's (fitted)"],
    )


def test_a_run_is_as_unsure_as_its_encoding(given, tmp_path):
    """Rates of a profile that is off by a fifth; decoding is stated."""
    profile = measured_parts(tmp_path, top_k_encode=5e9)
    report = simulate(given, [TOP_K[:-1] + ", decode='1 TB/s'}", profile, "run.repeats=1"]).report
    own = shipped_run_errors().width("time", "all_reduce")
    encode_s = 1000 / 8 * 0.2

    assert report.spread**2 - own**2 == pytest.approx((0.2 * encode_s / report.wall_s) ** 2, rel=1e-2)


def test_parts_are_told_apart(given, tmp_path):
    """Encoding is stated and nothing need be said; decoding is measured, with a sum that memory passes clear.

    Each of 8 GPUs does an eighth.
    """
    stated = "compress={method='top_k', density=0.01, encode='10 GB/s'}"
    report = simulate(given, [stated, measured_parts(tmp_path, top_k_decode=1e9)]).report
    clear_s = 1e9 / limits(cluster("dgx-h100", 1)).memory_bytes_per_s
    decode_s = 1000 / 8 * (clear_s + 4 * 0.02)

    assert report.history.breakdown_s["encode"] == pytest.approx(1000 / 8 * 0.1 + decode_s, rel=1e-3)
    assert encoding(report) == (
        pytest.approx({"given": 1 - decode_s / report.wall_s, "fitted": decode_s / report.wall_s}, rel=1e-3),
        ["times of decode are the profile's (fitted)"],
    )


def test_gpus_of_a_worker_share_encoding_and_residuals_alike(given):
    """The same gradient on one GPU and on eight, whose links carry the same."""
    changes = "compress={method='top_k', density=0.01, error_feedback=true}", "sync.workers=4"
    one, eight = (
        simulate(given, [*changes, f"step.gpus={gpus}", "sync.bandwidth='10 GB/s'"]).report for gpus in (1, 8)
    )

    assert one.history.breakdown_s["encode"] == pytest.approx(8 * eight.history.breakdown_s["encode"])
    assert (one.residual_bytes, one.history.breakdown_s["exchange"]) == (
        8 * eight.residual_bytes,
        eight.history.breakdown_s["exchange"],
    )


def test_error_feedback_keeps_a_gradient_on_the_gpus_of_a_worker(given):
    changes = "compress={method='top_k', density=0.01, error_feedback=true}"

    assert simulate(given, [changes]).report.residual_bytes == 1e9 / 8


def test_gpus_that_train_nothing_are_paid_for_but_neither_fail_nor_hold_a_part(given):
    failures = "failures.cause=[{name='GPU', part='gpu', mtbf='3200 h'}]"
    save = "checkpoint={mode='background', store='1 GB/s', bytes='16 GB', snapshot='1 GB/s', interval='99 s'}"
    some, full = (simulate(given, [f"step.gpus={gpus}", "sync.workers=4", failures, save]).report for gpus in (2, 8))

    assert (some.gpus, some.mtbf_s, full.mtbf_s) == (8, 3200 * 3600 / 8, 3200 * 3600 / 32)
    assert some.rates == full.rates
    assert "24 of 32 GPUs train nothing: their nodes are paid for whole" in some.notes
    assert some.history.breakdown_s["checkpoint"] == pytest.approx(4 * full.history.breakdown_s["checkpoint"])


def test_residuals_are_in_the_memory_of_a_step_and_in_the_probability_that_it_fits():
    """DiLoCo of 8 billion parameters: 4 bytes of residual each, on 8 GPUs."""
    path = SCENARIOS / "run-diloco.toml"
    plain, kept = (
        simulate(path, ["run.steps=500", "batch.micro=4", f"compress={{method='int8', error_feedback={said}}}"]).report
        for said in ("false", "true")
    )
    more = kept.residual_bytes

    assert (more, dict(kept.step.peak.held)["gradient residuals"]) == (pytest.approx(4 * 8.03e9 / 8, rel=1e-3), more)
    assert kept.step.peak.peak_bytes - plain.step.peak.peak_bytes == pytest.approx(more)
    assert (plain.step.fits, kept.step.fits) == (True, False)
    assert kept.step.fits_probability < plain.step.fits_probability


def test_a_run_with_other_rates_has_the_same_predicted_step():
    resolved = simulate(SCENARIOS / "run-diloco.toml", ["run.steps=500", "run.repeats=1"]).resolved

    assert resolved.with_rate_spread(None).step is resolved.step


@pytest.mark.parametrize("name", SHIPPED)
def test_the_time_of_a_shipped_run_is_the_sum_of_its_causes(name):
    report = simulate(SCENARIOS / f"{name}.toml", ["run.repeats=1"]).report.to_json()

    assert sum(report["breakdown_s"].values()) == pytest.approx(report["wall_s"], rel=1e-9)


def test_llama_3_is_effective_for_more_than_nine_tenths_of_its_54_days():
    report = simulate(SCENARIOS / "run-llama3-405b-16384xh100.toml", ["run.repeats=1"]).report

    assert (report.goodput > 0.9, report.history.counts["failures"] == pytest.approx(419, rel=0.15)) == (True, True)


def test_intervals_hold_the_step_and_chance(given):
    report = simulate(given, [CAUSE, "checkpoint={stall='60 s', interval='20 min'}", "run.steps=50_000"]).report

    assert report.wall_interval_s[0] < report.wall_s < report.wall_interval_s[1]


@pytest.mark.parametrize(("changes", "message"), CHANGES.items(), ids=lambda value: value[0][:40] if value else "")
def test_what_is_not_allowed_is_one_line(given, changes, message):
    with pytest.raises(UserError) as error:
        simulate(given, changes)

    assert [message in line for line in error.value.faults] == [True]


def test_all_files_come_out(given, tmp_path):
    with pytest.raises(SystemExit) as leave:
        main(
            ["simulate", str(given), "--set", CAUSE, "--set", "checkpoint.stall=1 min", "--out", str(tmp_path / "out")]
        )

    assert (leave.value.code or 0, sorted(path.name for path in (tmp_path / "out").iterdir())) == (
        0, ["index.html", "report.json", "timeline.csv", "trace.json.gz"],
    )  # fmt: skip


def test_equal_seeds_give_equal_bytes(given):
    changes = [CAUSE, "checkpoint.stall=1 min", "speed.jitter={kind='pareto', spread=0.5}"]
    one, other = (json.dumps(simulate(given, changes).report.to_json()) for _ in range(2))

    assert one == other


def test_a_run_does_not_say_that_stragglers_and_failures_are_not_simulated():
    changes = ["run={wall='1 h', repeats=1}"]
    found = simulate(load_question(SCENARIOS / "run-llama3-405b-16384xh100.toml", changes)).report

    assert any("are not simulated" in note for note in found.step.notes)
    assert not any("are not simulated" in note for note in found.notes)
