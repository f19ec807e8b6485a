"""Runs on nodes of several kinds: the slowest one sets rates of links and copies, and all workers have one step."""

import pytest
from runcast.simulator import UserError, simulate

from .make import FOUR_WORKERS

FAST, SLOW = {"base": "dgx-h100", "nodes": 2}, {"base": "dgx-h100", "nic": "10 Gb/s", "nodes": 2}


@pytest.fixture
def four_workers(tmp_path):
    """Four workers of a node each, whose links are those of the cluster."""
    path = tmp_path / "run.toml"
    path.write_text(FOUR_WORKERS.partition("[sync]")[0])
    return path


def resolved(path, **changes):
    return simulate(path, changes).resolved


@pytest.mark.parametrize("mix", [[FAST, SLOW], [SLOW, FAST]], ids=["slow last", "slow first"])
def test_links_of_workers_are_those_of_the_slowest_nodes(four_workers, mix):
    mixed = resolved(four_workers, cluster={"mix": mix})
    slow = resolved(four_workers, cluster={"mix": [SLOW, SLOW]})

    assert mixed.link_bytes_per_s == slow.link_bytes_per_s
    assert mixed.simulate(0).wall_s == pytest.approx(slow.simulate(0).wall_s)


def test_a_mix_of_equal_nodes_is_a_cluster_of_them(four_workers):
    alike, plain = resolved(four_workers, cluster={"mix": [FAST, FAST]}), resolved(four_workers)

    assert alike.simulate(0).wall_s == plain.simulate(0).wall_s


def test_a_run_of_one_worker_trains_on_all_kinds():
    slow = {"base": "dgx-h100", "nic": "100 Gb/s"}
    mixes = (
        [{**slow, "nodes": 64}],
        [{"base": "dgx-h100", "nodes": 32}, {**slow, "nodes": 32}],
        [slow | {"nic": "400 Gb/s", "nodes": 64}],
    )
    all_slow, mixed, fast = (
        simulate("run-llama3-70b-512xh100", {"cluster": {"mix": mix}, "run.samples": 1e10, "level": "coarse"}).report
        for mix in mixes
    )

    assert fast.step_s < mixed.step_s <= all_slow.step_s


def test_parts_fail_on_the_nodes_that_have_them(four_workers):
    """Two nodes of eight NICs, then two of four."""
    small = {"base": "dgx-h100", "gpus_per_node": 4, "nics": 4, "nodes": 2}
    mixed = resolved(four_workers, cluster={"mix": [FAST, small]})
    nodes = [mixed._nodes_of("nic", number) for number in range(mixed.parts["nic"])]

    assert nodes == [*[(0,)] * 8, *[(1,)] * 8, *[(2,)] * 4, *[(3,)] * 4]


def test_workers_on_unequal_nodes_are_refused_where_their_step_is_predicted():
    mix = [{"base": "dgx-h100", "nodes": 4}, {"base": "dgx-a100", "nodes": 4}]

    with pytest.raises(UserError, match=r"^run-diloco: sync.workers = 8: workers on different kinds of nodes take un"):
        simulate("run-diloco", {"cluster": {"mix": mix}})


def test_workers_that_have_the_same_nodes_each_have_one_step():
    mix = [{"base": "dgx-h100", "nodes": 1}, {"base": "dgx-a100", "nodes": 1}] * 4
    report = simulate("run-diloco", {"cluster": {"mix": mix}, "sync.workers": 4, "run.steps": 1000}).report

    assert "4 workers of 16 x H100 SXM and A100 SXM 80GB" in report.question
