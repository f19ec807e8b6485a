"""Updates that start at trainers against their closed forms; where there is none, against a recurrence written anew.

Durations are dyadic rationals, so that sums are exact and times are compared with `==`.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.program import Program
from runcast.simulator.systems.weight_update.lower import (
    Layout,
    TransferPlan,
    Transport,
    make_transfer,
    single_ranks,
)
from runcast.simulator.systems.weight_update.methods import FROM_TRAINERS, METHODS

from ..examples import examples

FEW = examples(40)
seconds = st.integers(0, 96).map(lambda n: n / 16)
counts = st.integers(1, 5)


def plan(
    buckets: int,
    *,
    pp: int = 1,
    per_stage: int = 1,
    receivers: int = 2,
    tp: int = 1,
    slots: int = 2,
    tensors: int = 1,
    colocated: bool = False,
    transport: Transport = Transport(),  # noqa: B008
    train: Layout | None = None,
    experts: int = 0,
    apart: bool = True,
) -> TransferPlan:
    """Equal buckets of so many equal tensors, dealt evenly to the stages; the last ones are of experts.

    With a layout of trainers, each of their meshes gathers tensors of its own, if they are to work apart.
    """
    trainers = range(pp * per_stage)
    last = len(trainers) if colocated else len(trainers) + receivers
    return make_transfer(
        np.full(buckets * tensors, 256),
        np.arange(buckets * tensors) >= (buckets - experts) * tensors,
        np.full(buckets * tensors, -1),
        trainers=trainers,
        receivers=trainers if colocated else range(len(trainers), last),
        train=train or Layout(pp=pp),
        inference=Layout(tp=tp),
        bucket_bytes=256 * tensors,
        classes=single_ranks(last),
        transport=replace(transport, slots=slots),
        apart=apart and train is not None,
    )


def makespan(method: str, of: TransferPlan, **work_s: float) -> float:
    program = METHODS[method].program(of)
    return simulate(program, kind_costs(program, work_s)).makespan_s


def makespan_by_entry(program: Program, per_entry_s: Mapping[str, float], per_bucket_s: Mapping[str, float]) -> float:
    """Seconds per first entry of the shape (tensors, handles), and per bucket."""
    costs = kind_costs(program, per_bucket_s)
    rate = np.array([per_entry_s.get(kind, 0.0) for kind in program.kinds])[program.kind]
    entries = np.array([row[0] if len(row) else 0 for row in program.shape])
    return simulate(program, replace(costs, work_s=costs.work_s + rate * entries)).makespan_s


# -- One sender after another -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["single_sender", "relays"])
@FEW
@given(gather=seconds, cast=seconds, load=seconds, n=counts, slots=st.integers(2, 4))
def test_gather_beside_broadcast_beside_load(method, gather, cast, load, n, slots):
    closed = gather + (n - 1) * max(gather, cast, load) + cast + load
    assert makespan(method, plan(n, per_stage=3, slots=slots), gather=gather, broadcast=cast, reload=load) == closed


@pytest.mark.parametrize("method", ["single_sender", "relays"])
@FEW
@given(gather=seconds, cast=seconds, load=seconds, n=counts)
def test_one_buffer_on_either_side_leaves_pairs_that_cannot_overlap(method, gather, cast, load, n):
    closed = gather + cast + load + (n - 1) * (cast + max(gather, load))
    assert makespan(method, plan(n, slots=1), gather=gather, broadcast=cast, reload=load) == closed


@FEW
@given(gather=seconds, cast=seconds, load=seconds, n=counts, sets=st.integers(1, 3))
def test_all_senders_broadcast_at_once_and_meet_after_each_set(gather, cast, load, n, sets):
    """Broadcasts of a set overlap, as gathers feed them one by one; the next set gathers when they are done."""
    program_time = makespan("all_senders", plan(n * sets, per_stage=n), gather=gather, broadcast=cast, reload=load)
    met = loaded = 0.0
    for _ in range(sets):
        for k in range(n):
            loaded = max(loaded, met + (k + 1) * gather + cast) + load
        met += n * gather + cast
    if load <= gather:  # else the receivers' slots hold up the broadcasts of the next set
        assert program_time == max(loaded, met)
    else:
        assert program_time >= max(loaded, met)


# -- Heads of stages --------------------------------------------------------------------------------------------------


@FEW
@given(gather=seconds, cast=seconds, load_part=st.fractions(0, 1, max_denominator=8), n=counts)
def test_one_stage_head_gathers_and_broadcasts_in_turn(gather, cast, load_part, n):
    load = round(float(load_part) * cast * 16) / 16
    assert makespan("stage_heads", plan(n), gather=gather, broadcast=cast, reload=load) == n * (gather + cast)


@FEW
@given(cast=seconds, part=st.fractions(0, 1, max_denominator=8), rounds=counts, pp=st.integers(2, 4))
def test_several_heads_hide_their_gathers(cast, part, rounds, pp):
    """(pp - 1) t_b >= t_g: T = n t_b + t_g."""
    gather = round(float(part) * (pp - 1) * cast * 16) / 16
    assert makespan("stage_heads", plan(rounds * pp, pp=pp), gather=gather, broadcast=cast) == (
        rounds * pp * cast + gather
    )


@FEW
@given(gather=seconds, cast=seconds, load=seconds, rounds=counts, pp=st.integers(1, 4))
def test_heads_in_general(gather, cast, load, rounds, pp):
    """A head's turn comes after all others' and after its own gather; whoever loads longer holds the lock."""
    turn = max(cast, load)
    closed = gather + (rounds - 1) * max(pp * turn, gather + turn) + pp * turn
    assert makespan("stage_heads", plan(rounds * pp, pp=pp), gather=gather, broadcast=cast, reload=load) == closed


# -- Writes -----------------------------------------------------------------------------------------------------------


@FEW
@given(gather=seconds, load=seconds, write=seconds, n=counts, pp=st.integers(1, 3))
def test_the_writes_of_one_shape_run_beside_the_next_gather_and_load(gather, load, write, n, pp):
    time = makespan("replica_writes", plan(n * pp, pp=pp), gather=gather, replicate=load, write=2 * write)
    ahead = makespan("replica_writes", plan(n * pp, pp=pp, per_stage=2), gather=gather, replicate=load, write=write)
    held = gather + load
    assert time == held + (n - 1) * max(held, 2 * write) + 2 * write  # one source writes to both at once
    assert ahead == held + (n - 1) * max(held, write) + write


@FEW
@given(gather=seconds, load=seconds, write=seconds, n=counts, shapes=st.integers(1, 4), engines=st.integers(1, 9))
def test_of_several_shapes_all_but_the_last_are_waited_for(gather, load, write, n, shapes, engines):
    """One source: each shape is loaded, then written to every engine, four at once; only the last one's writes are not
    waited for.
    """
    of = plan(n, receivers=shapes * engines, tp=shapes)
    writes = -(-engines // 4) * write
    blocked = (shapes - 1) * (writes + load)
    closed = gather + load + blocked + (n - 1) * (max(gather + load, writes) + blocked) + writes
    assert makespan("replica_writes", of, gather=gather, replicate=load, write=write) == closed


FOUR = st.fixed_dictionaries(dict.fromkeys(("stage_in", "gather", "quantize", "write"), seconds))


def flow(n: int, slots: int, work: Mapping[str, float], experts: int = 0, barrier: float = 0.0) -> float:
    """Copy in; gather and quantise, which share a host thread; write; no more than so many buckets in between.

    Further `experts` buckets follow when all else is gathered, and the barrier behind that is past.
    """
    start = copied = gathered = 0.0
    written = [0.0]
    for bucket in range(n + experts):
        if experts and bucket == n:
            start = gathered + barrier
        copied = max(start, copied, written[max(bucket + 1 - slots, 0)]) + work["stage_in"]
        gathered = max(gathered, copied) + work["gather"] + work["quantize"]
        written.append(max(written[-1], gathered) + work["write"])
    return written[-1]


@FEW
@given(FOUR, counts, st.integers(1, 4))
def test_static_writes_are_a_pipeline_with_so_many_in_flight(work, n, slots):
    assert makespan("static_writes", plan(n, slots=slots, transport=Transport(quantize="before")), **work) == (
        flow(n, slots, work)
    )


@FEW
@given(FOUR, counts)
def test_static_writes_with_a_slot_per_stage_and_with_one(work, n):
    host = work["gather"] + work["quantize"]
    alone = work["stage_in"] + host + work["write"]
    most = max(work["stage_in"], host, work["write"])
    quantized = Transport(quantize="before")
    assert makespan("static_writes", plan(n, slots=3, transport=quantized), **work) == alone + (n - 1) * most
    assert makespan("static_writes", plan(n, slots=1, transport=quantized), **work) == n * alone


@FEW
@given(FOUR, st.integers(1, 9), st.integers(1, 4), st.sampled_from([1, 2, 4]))
def test_meshes_share_the_rounds_of_a_stage(work, n, slots, meshes):
    """Of n equal buckets, no fewer than meshes, m meshes gather and write m at a time: ceil(n / m) rounds."""
    n = max(n, meshes)
    of = plan(n, per_stage=4, slots=slots, transport=Transport(quantize="before"), train=Layout(shard=4 // meshes))
    assert makespan("static_writes", of, **work) == flow(-(-n // meshes), slots, work)


@FEW
@given(FOUR, counts, counts, st.integers(1, 4), st.integers(0, 9).map(float))
def test_all_trainers_meet_between_meshes_of_other_ranks(work, n, experts, slots, met):
    """One mesh of two ranks, then two of one rank for experts; the barrier is beside the writes. One more ends it."""
    quantized, train = Transport(quantize="before"), Layout(ep=2, shard=2)
    of = plan(n + 2 * experts, per_stage=2, slots=slots, transport=quantized, train=train, experts=2 * experts)
    assert makespan("static_writes", of, barrier=met, **work) == flow(n, slots, work, experts, met) + met


def test_meshes_of_the_same_ranks_need_not_meet():
    of = plan(4, per_stage=2, train=Layout(shard=2, expert_shard=2), experts=2)
    assert makespan("static_writes", of, barrier=1.0) == 1.0


@pytest.mark.parametrize("pp", [1, 2])
def test_one_mesh_of_all_ranks_is_a_joint_gather(pp):
    """Of a stage whose ranks hold one copy, all gather every bucket, as other methods do."""
    train = Layout(pp=pp, shard=3, expert_shard=3)
    plans = [plan(6 * pp, pp=pp, per_stage=3, train=train, experts=2 * pp, apart=apart) for apart in (False, True)]
    joint, apart = (METHODS["static_writes"].program(of) for of in plans)
    assert joint == apart


@FEW
@given(exchange=seconds, load=seconds, n=counts)
def test_reshard_exchanges_beside_loads(exchange, load, n):
    assert makespan("reshard", plan(n, per_stage=2), exchange=exchange, reload=load) == (
        exchange + (n - 1) * max(exchange, load) + load
    )


@FEW
@given(
    hop=seconds,
    gather_part=st.fractions(0, 1, max_denominator=8),
    load_part=st.fractions(0, 1, max_denominator=8),
    n=counts,
    receivers=st.integers(1, 5),
    slots=st.integers(2, 4),
)
def test_a_chain_fills_hop_by_hop(hop, gather_part, load_part, n, receivers, slots):
    """N ranks, head included: T = t_g + (n + N - 2) t + t_l where gathers and loads are no longer than a hop."""
    gather, load = (round(float(part) * hop * 16) / 16 for part in (gather_part, load_part))
    time = makespan("chain", plan(n, receivers=receivers, slots=slots), gather=gather, forward=hop, reload=load)
    assert time == gather + (n + receivers - 1) * hop + load


@FEW
@given(hop=seconds, n=counts, receivers=st.integers(2, 5))
def test_a_chain_of_single_buffers_moves_every_other_hop(hop, n, receivers):
    assert makespan("chain", plan(n, receivers=receivers, slots=1), forward=hop) == (receivers + 2 * (n - 1)) * hop


# -- Handles and files ------------------------------------------------------------------------------------------------

OF_HANDLES = st.fixed_dictionaries(dict.fromkeys(("gather", "export_handles", "open_handles", "reload"), seconds))


@FEW
@given(OF_HANDLES, seconds, counts, counts, st.integers(1, 3))
def test_handles_are_counted_by_tensor_or_by_bucket(per_entry, flatten, n, tensors, ranks):
    per_tensor, flattened = (
        plan(n, tensors=tensors, per_stage=ranks, colocated=True, transport=Transport(messages=messages))
        for messages in ("tensor", "bucket")
    )
    handles = per_entry["export_handles"] + per_entry["open_handles"]
    kept = per_entry["gather"] + per_entry["reload"]
    apart, joined = (METHODS["colocated"].program(of) for of in (per_tensor, flattened))
    assert makespan_by_entry(apart, per_entry, {}) == n * tensors * (kept + handles)
    assert makespan_by_entry(joined, per_entry, {"flatten": flatten}) == (
        n * tensors * kept + n * handles + n * flatten
    )


@FEW
@given(cast=seconds, gather=seconds, n=counts, pp=st.integers(2, 4))
def test_stages_of_colocated_trainers_tell_each_other_first(cast, gather, n, pp):
    """Nothing beside anything: T = n (t_b + t_g), where t_b brings a stage's shards to the others."""
    assert makespan("colocated", plan(n, pp=pp, colocated=True), broadcast=cast, gather=gather) == n * (cast + gather)


@FEW
@given(work=seconds, load=seconds, n=counts)
@pytest.mark.parametrize(("method", "kind"), [("reshard", "exchange"), ("file_system", "fs_read")])
def test_with_one_buffer_receivers_load_before_they_receive_again(method, kind, work, load, n):
    assert makespan(method, plan(n, slots=1), **{kind: work}, reload=load) == n * (work + load)


@FEW
@given(gather=seconds, write=seconds, read=seconds, load=seconds, n=counts)
def test_a_file_is_written_whole_before_it_is_read(gather, write, read, load, n):
    written = gather + (n - 1) * max(gather, write) + write
    closed = written + read + (n - 1) * max(read, load) + load
    assert makespan("file_system", plan(n), gather=gather, fs_write=write, fs_read=read, reload=load) == closed


# -- Around the transfer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", FROM_TRAINERS)
def test_pausing_starting_and_ending_add_up(method):
    """Everything else waits for the pause, and the engines resume after the hook: separate phases."""
    phases = {"pause": 1.0, "begin": 2.0, "allocate": 4.0, "post_hook": 8.0, "resume": 16.0}
    assert makespan(method, plan(3, per_stage=2, colocated=method == "colocated"), **phases) == 31.0
