"""What a rank waits for, and the Programs that cannot run; nothing runs here."""

import re
from pathlib import Path

import pytest
from runcast.calibrate.execute.content import FROM_TRAINERS
from runcast.calibrate.execute.parts import Parts
from runcast.simulator.answers.compare.spans import unfold
from runcast.simulator.base.errors import UserError
from runcast.simulator.program import ProgramBuilder


def two_ranks():
    builder = ProgramBuilder()
    places = [builder.place(f"r{rank}", [rank]) for rank in (0, 1)]
    return builder, [builder.lane(place, "ps") for place in places], [builder.lane(place, "comm") for place in places]


def test_same_rank_waits_for_its_own_part():
    builder, ps, _ = two_ranks()
    gang = builder.op("barrier", ps)
    after = builder.op("sync", ps[:1], [gang])
    part = Parts(builder.build()).rank_parts(0)[after]
    assert (part.after, part.signals, part.lanes) == ((gang,), (), (ps[0],))


def test_other_rank_sends_a_signal():
    builder, ps, _ = two_ranks()
    sender = builder.op("sync", ps[1:])
    after = builder.op("sync", ps[:1], [sender])
    parts = Parts(builder.build())
    assert (parts.rank_parts(0)[after].after, parts.rank_parts(0)[after].signals) == ((), ((sender, 1),))
    assert parts.rank_parts(1)[sender].signalled
    assert not parts.rank_parts(0)[after].signalled


def test_member_of_a_gang_waits_for_what_it_did_before_the_others():
    """The broadcast waits only for the root's copy: rank 1 must still have its buffer before it joins."""
    builder, ps, comm = two_ranks()
    allocated = builder.op("allocate", ps)
    copied = builder.op("copy", ps[:1], [allocated])
    cast = builder.op("broadcast", comm, [copied], root=0)
    parts = Parts(builder.build())
    assert parts.rank_parts(0)[cast].after == (copied,)
    assert (parts.rank_parts(1)[cast].after, parts.rank_parts(1)[cast].signals) == ((allocated,), ())


def test_a_signal_does_not_stand_for_ones_own_part():
    """Rank 0 goes on when its own part of the gang has ended; rank 1 may still be in its part."""
    builder, ps, comm = two_ranks()
    gathered = builder.op("barrier", ps)
    told = builder.op("sync", ps[:1], [gathered])
    sent = builder.op("copy", comm[1:], [told])
    part = Parts(builder.build()).rank_parts(1)[sent]
    assert (part.after, part.signals) == ((gathered,), ((told, 0),))


def test_slots_are_given_out_in_order():
    builder, ps, comm = two_ranks()
    pool = builder.pool("half", 0, 2)
    taken = [builder.op("copy", ps[:1], acquires=[pool]) for _ in range(3)]
    given = [builder.op("reload", comm[:1], releases=[pool]) for _ in range(3)]
    parts = Parts(builder.build())
    assert [parts.rank_parts(0)[op].after for op in taken] == [(), (), (given[0],)]


@pytest.mark.parametrize("pipeline", ["two_stage", "three_stage"])
def test_a_read_waits_for_nothing_of_the_owner(pipeline):
    """Two of four ranks read; owners have filled their memory before anything starts, and do nothing later."""
    scenario = Path(__file__).parents[2] / "data/scenarios/tiny-p2p.toml"
    program = unfold(scenario, [f"update.pipeline={pipeline}"]).program
    parts, reads = Parts(program), set(program.is_kind("read").nonzero()[0].tolist())
    assert sorted(reads) == sorted(op for rank in (0, 1) for op in reads & parts.rank_parts(rank).keys())
    both = [item for rank in (0, 1) for item in parts.rank_parts(rank).items()]
    assert [part.signals for op, part in both if op in reads] == [()] * len(reads)
    for owner in (2, 3):
        assert [program.kind_of(op) for op in parts.rank_parts(owner)] == ["gather_metas"]


LAYOUTS = {
    "two stages": (2, "pp=2"),
    "one stage": (2, "tp=2"),
    "uneven stages": (3, "pp=3"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("method", FROM_TRAINERS)
def test_no_buffer_is_overwritten_before_it_is_read(method, layout):
    """Of two ops that touch a buffer, one of them writing, the first has ended before the second starts; but engines
    load a bucket while it arrives.
    """
    scenario = Path(__file__).parents[2] / "data/scenarios/tiny-stage-heads.toml"
    gpus, sizes = LAYOUTS[layout]
    changes = [f"update.method={method}", f"update.trainer={{gpus={gpus}, {sizes}}}", "update.inference={tp=1}"]
    if method == "colocated":  # engines are on the trainer's GPUs, which are all
        changes.append(f"cluster.gpus_per_node={gpus}")
    program = unfold(scenario, changes).program
    parts = Parts(program)
    ended = [set() for _ in range(len(program))]
    for op in range(len(program)):
        for other in (*parts.predecessors[op], *parts.previous[op]):
            ended[op] |= ended[other] | {other}
    touched = {}
    for op in range(len(program)):
        for access in (program.access_table[i] for i in program.accesses[op]):
            for other, wrote in touched.setdefault(access.buffer, []):
                same = {program.tags["bucket"][op], program.tags["bucket"][other]}
                beside = {program.kind_of(op), program.kind_of(other)} == {"broadcast", "reload"} and len(same) == 1
                assert not (access.write or wrote) or other in ended[op] or beside or op == other
            touched[access.buffer].append((op, access.write))


def test_folded_ranks_are_refused():
    builder = ProgramBuilder()
    builder.op("sync", [builder.lane(builder.place("r0..r1 (2)", [0, 1]), "ps")])
    with pytest.raises(UserError, match=re.escape("a.toml: cannot execute 'r0..r1 (2)': several ranks in one")):
        Parts(builder.build()).check(["sync"], "a.toml")


def test_unknown_kind_is_named_with_those_that_are_known():
    builder, ps, _ = two_ranks()
    builder.op("gemm", ps[:1])
    with pytest.raises(UserError, match="cannot execute ops of kind 'gemm'; supported: copy, sync"):
        Parts(builder.build()).check(["sync", "copy"], "a.toml")


def test_a_circle_is_named():
    builder, ps, _ = two_ranks()
    builder.op("sync", ps[:1], [1], name="a")
    builder.op("sync", ps[:1], name="b")
    with pytest.raises(UserError, match=r"wait for each other in a circle: (a -> b -> a|b -> a -> b)"):
        Parts(builder.build()).check(["sync"], "a.toml")
