"""Unequal machines: every rank has its own, and a collective is as slow as its slowest member."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError, simulate
from runcast.simulator.engine import simulate as run
from runcast.simulator.scenario import check_question, check_train
from runcast.simulator.systems.train_step.replicas import share
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

from ..examples import examples

H100, A100 = {"base": "dgx-h100", "nodes": 1}, {"base": "dgx-a100", "nodes": 1}
STEP = {"kind": "train_step", "model": {"preset": "llama3-8b"}, "recompute": {"mode": "full"}}


def step(*nodes: dict, sequences: int = 32, split: str = "even", **tables) -> ResolvedTrain:
    batch = {"global": sequences, "seq_len": 4096, "split": split}
    mixed = {"cluster": {"mix": list(nodes)}, "nodes": sum(one["nodes"] for one in nodes), "batch": batch}
    return ResolvedTrain(check_train({**STEP, **mixed, **tables}))


def seconds(resolved: ResolvedTrain) -> float:
    return run(resolved.program, resolved.costs).makespan_s


@pytest.mark.parametrize("level", ["kernels", "coarse"])
@pytest.mark.parametrize("other", [A100, H100 | {"nic": "100 Gb/s"}], ids=["A100", "slow NICs"])
@pytest.mark.parametrize("parallel", [{}, {"tp": 2}, {"zero": 0}, {"tp": 4, "cp": 2}], ids=str)
def test_the_order_of_nodes_changes_nothing(parallel, other, level):
    """Where there is no pipeline: nodes listed first have the first stages."""
    given = {"parallel": parallel, "level": level, "sequences": 16}
    nodes = [H100, other]
    assert seconds(step(*nodes, **given)) == pytest.approx(seconds(step(*reversed(nodes), **given)), rel=1e-12)


def test_a_factor_leaves_each_device_its_own_number():
    """`explain` turned the rates of all devices to one value."""
    name, mixed = "gemm.training_rate", step(H100, A100)
    own = {device: one.value_or(name, 1.0) for device, one in mixed.profile.others.items()}
    found = mixed.scale({name: 1.1}).profile

    assert own
    assert set(own.values()) != {mixed.profile.value_or(name, 1.0)}
    assert {device: one.value_or(name, 1.0) / 1.1 for device, one in found.others.items()} == pytest.approx(own)


TCP = {"base": "dgx-h100", "nodes": 1, "network": "ethernet"}


@pytest.mark.parametrize("tables", [
    STEP | {"batch": {"global": 32, "seq_len": 4096}},
    {"kind": "weight_update", "model": {"preset": "qwen3-30b-a3b"}, "stack": "checkpoint-engine"},
], ids=["step", "update"])  # fmt: skip
def test_each_nic_has_what_kernel_tcp_leaves_it_wherever_it_is_listed(tables):
    """Hosts bound NICs of 400 Gb/s, not those of 25."""
    mix = [TCP | {"nic": rate} for rate in ("400 Gb/s", "25 Gb/s")]
    found = [
        simulate(check_question({**tables, "cluster": {"mix": listed}, "nodes": 2})).timeline.makespan_s
        for listed in (mix, mix[::-1])
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_an_even_split_takes_what_the_slowest_machines_take():
    mixed, slowest = seconds(step(H100, A100)), seconds(step({**A100, "nodes": 2}))
    assert mixed == pytest.approx(slowest, rel=0.01)


def test_a_slow_nic_slows_collectives_wherever_it_is_listed():
    plain = {"parallel": {"zero": 0}, "overlap": {"dp": False}}
    even = seconds(step({**H100, "nodes": 2}, **plain))
    assert seconds(step(H100, H100 | {"nic": "100 Gb/s"}, **plain)) > 1.1 * even


def test_sequences_by_speed_keep_all_machines_busy():
    resolved = step(H100, A100, sequences=256, split="proportional")
    ends = run(resolved.program, resolved.costs)
    program = resolved.program
    backward = [program.only_at([place]) & program.is_kind("embed_backward") for place in range(2)]
    slow, fast = (float(ends.end_s[ops].max()) for ops in backward)
    assert resolved.shares == (9, 23)
    assert fast == pytest.approx(slow, rel=0.15)


def test_sequences_by_speed_are_faster_than_an_even_split():
    even, proportional = (seconds(step(H100, A100, sequences=256, split=split)) for split in ("even", "proportional"))
    assert proportional < 0.6 * even


def test_replicas_on_equal_machines_are_simulated_once():
    resolved = step({**H100, "nodes": 2}, {**A100, "nodes": 1}, sequences=48)
    assert resolved.replicas == (tuple(range(16, 24)), tuple(range(16)))


def both(parallel: dict, **tables) -> tuple[ResolvedTrain, ResolvedTrain]:
    """A step of which equal replicas are simulated once, and one of which each is."""
    nodes = [{**H100, "nodes": 4}, {**A100, "nodes": 4}]
    folded, unfolded = (step(*nodes, sequences=16, parallel={"tp": 8, **parallel}, **tables) for _ in range(2))
    vars(unfolded)["replicas"] = tuple((place,) for place in range(unfolded.dims.dp))
    return folded, unfolded


@pytest.mark.parametrize("parallel", [{}, {"pp": 2}, {"zero": 3}, {"zero": 0}], ids=str)
def test_folded_is_what_every_replica_by_itself_gives(parallel):
    """A replica per node, so that none shares a NIC with another, and no sends beside gathers or sums.

    What an exchange of all replicas takes of a NIC is counted on the first one's: one replica stands for all.
    """
    folded, unfolded = both(parallel, overlap={"params": False, "dp": False} if "pp" in parallel else {})
    assert len(unfolded.program.places) > len(folded.program.places)
    assert seconds(unfolded) == pytest.approx(seconds(folded), rel=1e-12)


def test_folded_is_nearly_what_replicas_give_where_sends_meet_gathers():
    """Of an exchange of all replicas only the first one's NICs are loaded, so that sends of the others are faster."""
    folded, unfolded = both({"pp": 2})
    assert seconds(unfolded) == pytest.approx(seconds(folded), rel=1e-3)


@pytest.mark.parametrize(("nodes", "tables"), [
    ([{**H100, "nodes": 18}], {"slow": [{"node": node, "factor": 1 + node / 50} for node in range(18)]}),
    ([H100, A100], {"parallel": {"tp": 8, "pp": 2}}),
], ids=["18 kinds", "a stage each"])  # fmt: skip
def test_a_split_by_speed_needs_replicas_that_differ(nodes, tables):
    with pytest.raises(UserError, match=r"split = .proportional.: expected even: all replicas are on equally fast"):
        seconds(step(*nodes, sequences=2 * 144, split="proportional", **tables))


def test_slow_nodes_that_do_not_meet_in_a_pipeline_do_not_add_up():
    """A replica with a slow first stage and one with a slow last stage: each is late once."""
    plan = {"parallel": {"tp": 8, "pp": 2}, "sequences": 16}
    nodes = {**H100, "nodes": 4}  # stages 0 0 1 1
    first, last = {"node": 0, "factor": 1.5}, {"node": 3, "factor": 1.5}
    both = seconds(step(nodes, **plan, slow=[first, last]))
    one_by_one = max(seconds(step(nodes, **plan, slow=[slow])) for slow in (first, last))
    assert both == pytest.approx(one_by_one, rel=0.01)


def test_memory_is_checked_on_each_device():
    small = {"base": "a100-40-hgx", "nodes": 1}
    resolved = step(small, A100, parallel={"zero": 1}, recompute={"mode": "none"})
    report = simulate(resolved.scenario).report
    fits = [(of.device, of.device_bytes >> 30, of.fits) for of in report.memory]
    assert fits == [("A100 SXM 40GB", 40, False), ("A100 SXM 80GB", 80, True)]


def test_mfu_is_of_the_mean_peak():
    report = simulate(step(H100, A100).scenario).report
    assert report.peak_flop_per_s == pytest.approx((989.4e12 + 312e12) / 2, rel=1e-3)


@pytest.mark.parametrize("order", [1, -1])
def test_an_update_takes_numbers_of_every_device(order):
    """The links of each node have the fractions of its own device; host work is that of the software."""
    nodes = [{"base": "dgx-h100", "nodes": 1}, {"base": "dgx-a100", "nodes": 1}][::order]
    table = {"kind": "weight_update", "model": {"preset": "qwen3-30b-a3b"}, "stack": "checkpoint-engine"}
    mixed, h100, a100 = (
        simulate(check_question({**table, "cluster": cluster, "nodes": 2})).report.update_time_s
        for cluster in ({"mix": nodes}, "dgx-h100", "dgx-a100")
    )
    assert h100 < mixed <= a100 * 1.001


# -- Shares -----------------------------------------------------------------------------------------------------------


def test_shares_are_as_even_in_time_as_whole_numbers_allow():
    """Of 32 micro-batches for 2 replicas that take 3 s each and 2 that take 1 s: 4 and 12, both done after 12 s."""
    assert share([2, 2], [3.0, 1.0], 32) == (4, 12)


def test_shares_come_in_multiples_of_what_a_schedule_takes():
    assert share([1, 1], [3.0, 1.0], 32, unit=4) == (8, 24)


@examples(50)
@given(st.lists(st.tuples(st.integers(1, 4), st.floats(0.1, 10)), min_size=1, max_size=3), st.integers(1, 6))
def test_no_other_shares_are_done_sooner(classes, even):
    sizes, each = [size for size, _ in classes], [seconds for _, seconds in classes]
    total = even * sum(sizes)
    found = share(sizes, each, total)
    every = [()]
    for size in sizes:
        every = [(*counts, more) for counts in every for more in range(1, total // size + 1)]
    whole = [counts for counts in every if sum(n * size for n, size in zip(counts, sizes, strict=True)) == total]
    latest = [max(n * s for n, s in zip(counts, each, strict=True)) for counts in whole]
    assert (found in whole, max(n * s for n, s in zip(found, each, strict=True))) == (True, min(latest))


# -- Bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"parallel": {"zero": 3}, "split": "proportional"}, "batch.split = 'proportional': replicas meet in every"),
        ({"profile": "b200-sxm"}, "profile = 'b200-sxm': is made for B200 SXM, not for A100 SXM 80GB, H100 SXM"),
    ],
)
def test_what_does_not_fit_is_one_line(change, line):
    with pytest.raises(UserError) as error:
        _ = step(H100, A100, **change).costs
    assert [fault for fault in error.value.faults if line in fault], error.value.faults
