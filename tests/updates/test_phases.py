"""What follows what where there is more than one phase: experts after all else, rounds counted on, the end in order."""

import numpy as np
import pytest
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.program import Program
from runcast.simulator.systems.weight_update.lower import (
    BucketSize,
    Layout,
    TransferPlan,
    Transport,
    assign_readers,
    make_plan,
    make_transfer,
    serial,
    single_ranks,
    three_stage,
    two_stage,
)
from runcast.simulator.systems.weight_update.methods import FROM_TRAINERS, METHODS


def transfer(expert: list[bool], *, train: Layout, ep: int = 1, limit: int = 1, **payload: object) -> TransferPlan:
    """Equal tensors on four trainers, `limit` of them in a bucket; two receivers."""
    count = len(expert)
    return make_transfer(
        np.full(count, 256), np.array(expert), np.full(count, -1), trainers=range(4), receivers=range(4, 6),
        train=train, inference=Layout(ep=ep), bucket_bytes=256 * limit, classes=single_ranks(6),
        transport=Transport(**payload),
    )  # fmt: skip


# -- Experts ----------------------------------------------------------------------------------------------------------


def test_senders_take_turns_across_phases():
    """Two buckets of other tensors, then two of experts': the third and the fourth rank send the latter."""
    plan = transfer([False, False, True, True], train=Layout(shard=4, expert_shard=4))
    program = METHODS["all_senders"].program(plan)
    assert program.root[program.is_kind("broadcast")].tolist() == [0, 1, 2, 3]


def test_heads_gather_experts_when_all_else_is_loaded():
    """Two stages, one bucket of each phase on each: both gather, two broadcasts, and the same again."""
    program = METHODS["stage_heads"].program(transfer([False, True, False, True], train=Layout(pp=2)))

    assert simulate(program, kind_costs(program, {"gather": 3.0, "broadcast": 1.0})).makespan_s == 2 * (3 + 2 * 1)


def test_trainers_hold_parts_of_the_experts_at_their_place():
    """Sharded over the ranks that ep leaves or not; without ep, parts of all experts."""
    layouts = [Layout(ep=4), Layout(ep=2, expert_shard=2), Layout(expert_shard=4)]

    assert [transfer([True] * 4, train=layout).phases[0].local_tensors for layout in layouts] == [0.25, 0.5, 1.0]


def test_messages_are_of_the_tensors_that_a_receiver_keeps():
    program = METHODS["reshard"].program(transfer([True] * 8, train=Layout(), ep=2, limit=8, messages="tensor"))

    assert [program.shape[op][0] for op in np.flatnonzero(program.is_kind("exchange"))] == [4]


# -- Shares ------------------------------------------------------------------------------------------------------------


def bytes_of(program: Program, kind: str) -> set[int]:
    return set(program.bytes[program.is_kind(kind)].tolist())


def test_stages_of_colocated_trainers_exchange_shards():
    program = METHODS["colocated"].program(transfer([False] * 2, train=Layout(tp=2, pp=2)))

    assert bytes_of(program, "broadcast") == {256 // 2}


def test_the_ranks_of_a_stage_copy_in_their_shares():
    program = METHODS["static_writes"].program(transfer([False], train=Layout(shard=4, expert_shard=4)))

    assert bytes_of(program, "stage_in") == {256 // 4}


def test_receivers_apply_changes_to_what_they_keep_and_register_it():
    plan = transfer([True] * 4, train=Layout(), ep=2, limit=2, delta=True, registers=True)
    program = METHODS["single_sender"].program(plan)
    (registered,) = np.flatnonzero(program.is_kind("register_tensors"))

    assert (bytes_of(program, "apply"), program.shape[registered].tolist()) == ({256}, [2])


# -- Locks and ends ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_heads_name_tensors_under_the_lock(pp):
    program = METHODS["stage_heads"].program(transfer([False] * 4, train=Layout(pp=pp)))

    assert simulate(program, kind_costs(program, {"send_meta": 1.0})).makespan_s == 4.0


ENDS = {"drop_handle": 1.0, "unregister": 2.0, "free_buffers": 4.0, "post_hook": 8.0, "barrier": 16.0,
        "destroy_group": 32.0}  # fmt: skip


@pytest.mark.parametrize("pipeline", [two_stage, serial, three_stage])
def test_what_ends_an_update_adds_up(pipeline):
    plan = make_plan(np.full(4, 256), 2, BucketSize(256, 3))
    times = [
        simulate(program, kind_costs(program, ENDS)).makespan_s
        for program in (pipeline(plan), pipeline(assign_readers(plan, "AB", 2)))
    ]

    assert times == [61.0, 63.0]


@pytest.mark.parametrize("method", sorted({*FROM_TRAINERS} - {"all_senders", "file_system"}))
def test_all_meet_after_the_hook_and_before_engines_resume(method):
    """Those that are left out meet in between, too."""
    program = METHODS[method].program(transfer([False] * 2, train=Layout()))

    assert simulate(program, kind_costs(program, {"post_hook": 1.0, "barrier": 2.0, "resume": 4.0})).makespan_s == 7.0


@pytest.mark.parametrize(("buffers", "registered"), [(3, 1), (2, 2)])
def test_reads_land_in_the_h2d_buffer_or_else_in_both_halves(buffers, registered):
    program = two_stage(assign_readers(make_plan(np.full(4, 256), 2, BucketSize(256, buffers)), "AB", 2))

    assert set(program.bytes[program.is_kind("register", "unregister")].tolist()) == {registered * 256}
