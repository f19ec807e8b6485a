"""The report's numbers: definitions hold, and published updates come out as measured."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from runcast.simulator import Prediction, engine, simulate
from runcast.simulator.insight import critical_path

SCENARIOS = Path(__file__).parents[2] / "data/scenarios"
PUBLISHED_S = {"kimi-k2-16xh20": 14.36, "deepseek-v3.1-16xh20": 10.19}  # checkpoint-engine README, broadcast


@pytest.fixture(scope="module")
def prediction() -> Prediction:
    return simulate(SCENARIOS / "kimi-k2-16xh20.toml")


@pytest.mark.parametrize("name", PUBLISHED_S)
def test_published_updates_within_a_quarter(name):
    assert simulate(SCENARIOS / f"{name}.toml").report.update_time_s == pytest.approx(PUBLISHED_S[name], rel=0.25)


@pytest.mark.parametrize("name", PUBLISHED_S)
def test_published_updates_lie_in_the_interval(name):
    report = simulate(SCENARIOS / f"{name}.toml").report

    assert report.interval_low_s < PUBLISHED_S[name] < report.interval_high_s


def test_exposed_seconds_sum_to_the_makespan(prediction):
    assert sum(prediction.report.exposed.values()) == pytest.approx(prediction.report.makespan_s, rel=1e-12)


def test_the_spans_of_the_critical_path_touch(prediction):
    timeline = prediction.timeline
    ops = critical_path(timeline).ops

    assert np.array_equal(timeline.start_s[ops[1:]], timeline.end_s[ops[:-1]])


def test_shares_of_provenance_sum_to_one(prediction):
    assert sum(prediction.report.provenance.values()) == pytest.approx(1)


def test_the_update_is_the_makespan_without_the_gather(prediction):
    report = prediction.report

    assert report.update_time_s == pytest.approx(report.makespan_s - report.busy_s["gather"])


def test_memory_is_three_buckets_and_the_resident_weights(prediction):
    report, resolved = prediction.report, prediction.resolved

    assert report.peak.bytes == 3 * report.bucket_bytes + resolved.resident_bytes


def test_the_report_has_the_promised_keys(prediction):
    promised = """kind name scenario_hash makespan_s peak_memory_bytes exposed provenance update_time_s gather_s init_s
    h2d_s broadcast_s reload_s post_hook_s pause_s bytes effective_bytes_per_s bucket_bytes rounds"""

    assert set(promised.split()) <= set(prediction.report.to_json())


def test_equal_scenarios_give_equal_bytes(prediction):
    again = simulate(SCENARIOS / "kimi-k2-16xh20.toml")

    assert again.timeline.end_s.tobytes() == prediction.timeline.end_s.tobytes()


def test_folded_and_unfolded_reports_agree(prediction):
    unfolded = simulate(SCENARIOS / "kimi-k2-16xh20.toml", ["fold=false"]).report

    assert unfolded.update_time_s == pytest.approx(prediction.report.update_time_s, rel=1e-12)


def test_half_the_nic_rate_costs_little_where_the_host_is_the_limit(prediction):
    slower = simulate(SCENARIOS / "kimi-k2-16xh20.toml", ["cluster={base='h20-hgx', nic='200 Gb/s'}"]).report

    assert prediction.report.update_time_s < slower.update_time_s < 1.2 * prediction.report.update_time_s


def test_the_report_says_that_the_host_is_the_limit(prediction):
    assert 0.9 < prediction.report.host_share < 1


@pytest.mark.slow
def test_a_rank_that_runs_slow_costs_what_a_slow_node_costs():
    """A process that slows a rank and a scenario that says so agree on the ranks' own work."""
    resolved = simulate(SCENARIOS / "kimi-k2-16xh20.toml", ["slow=[{node=1, factor=2}]"]).resolved
    even = simulate(SCENARIOS / "kimi-k2-16xh20.toml", ["fold=false"]).resolved

    def slows_node_1(running):
        for rank in range(8, 16):
            running.set_rank_speed(rank, 0.5)
        yield running.env.timeout(0)

    slowed = engine.simulate(even.program, even.costs, [slows_node_1])
    said = engine.simulate(resolved.program, resolved.costs)

    assert max(durations(slowed, "reload")) == pytest.approx(max(durations(said, "reload")))


def test_a_reload_that_a_broadcast_disturbs_makes_the_update_longer(prediction):
    costs = prediction.resolved.costs
    kinds = costs.classes
    factors = costs.interference.copy()
    factors[kinds.index("reload"), kinds.index("broadcast")] = 0.5

    disturbed = engine.simulate(prediction.resolved.program, replace(costs, interference=factors))

    assert disturbed.makespan_s > prediction.report.makespan_s + 0.3 * prediction.report.busy_s["broadcast"]


def durations(timeline, kind):
    mask = timeline.program.is_kind(kind)
    return (timeline.end_s - timeline.start_s)[mask].tolist()
