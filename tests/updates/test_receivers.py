"""P2P mode: who reads which bucket, and what the pipelines make of it.

Letters are NICs. Durations are dyadic rationals, so that sums are exact and times are compared with `==`.
"""

from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.systems.weight_update.lower import (
    BucketSize,
    UpdatePlan,
    assign_readers,
    assign_receivers,
    fill_buckets,
    make_plan,
    serial,
    three_stage,
    two_stage,
)

from ..examples import examples

MANY = examples(200)
FEW = examples(40)
seconds = st.integers(0, 96).map(lambda n: n / 16)


def plan(owned: list[int], buffers: int = 3) -> UpdatePlan:
    """Rank r owns `owned[r]` buckets of one tensor each, all equal."""
    owner = np.repeat(np.arange(len(owned)), owned)
    sizes = np.full(len(owner), 256)
    size = BucketSize(256, buffers)
    return replace(make_plan(sizes, len(owned), size), buckets=fill_buckets(sizes, owner, size.bytes))


def reads(update: UpdatePlan) -> list[tuple[int, int, int]]:
    """(receiver, owner, which of the owner's buckets), in the order in which they go out."""
    buckets = update.buckets
    nth = buckets.offset_bytes // 256
    return list(zip(buckets.root.tolist(), buckets.owner.tolist(), nth.tolist(), strict=True))


# -- The examples of the source's rule --------------------------------------------------------------------------------

EXAMPLES = {  # name: (NIC of each rank, buckets of each rank, listed, who reads what)
    "two owners on each NIC": (
        "AABB", [2, 1, 2, 1], 4, [(0, 0, 0), (2, 2, 0), (0, 0, 1), (2, 2, 1), (0, 1, 0), (2, 3, 0)],
    ),
    "a pass ends early": ("AABB", [3, 0, 1, 0], 4, [(0, 0, 0), (2, 2, 0), (0, 0, 1), (0, 0, 2)]),
    "one local NIC": ("AABB", [2, 1, 1, 0], 2, [(0, 0, 0), (0, 2, 0), (0, 0, 1), (0, 1, 0)]),
    "one owner NIC": ("AABB", [1, 2, 0, 0], 4, [(0, 0, 0), (0, 1, 0), (0, 1, 1)]),
}  # fmt: skip


@pytest.mark.parametrize(("nics", "owned", "listed", "expected"), EXAMPLES.values(), ids=EXAMPLES.keys())
def test_examples(nics, owned, listed, expected):
    assert reads(assign_readers(plan(owned), nics, listed)) == expected
    buckets = [(owner, nth) for owner, count in enumerate(owned) for nth in range(count)]
    dealt = assign_receivers([nics[owner] for owner, _ in buckets], list(enumerate(nics[:listed])))
    assert [(receiver, *buckets[bucket]) for receiver, bucket in dealt] == expected


def test_the_examples_in_the_words_of_the_source():
    names = ["a0", "a1", "b0", "c0", "c1", "d0"]
    dealt = assign_receivers("AAABBB", [(0, "A"), (1, "A"), (2, "B"), (3, "B")])
    assert " ".join(f"({receiver},{names[bucket]})" for receiver, bucket in dealt) == (
        "(0,a0) (2,c0) (0,a1) (2,c1) (0,b0) (2,d0)"
    )
    names = ["a0", "a1", "a2", "c0"]
    dealt = assign_receivers("AAAB", [(0, "A"), (2, "B")])
    assert " ".join(f"({receiver},{names[bucket]})" for receiver, bucket in dealt) == "(0,a0) (2,c0) (0,a1) (0,a2)"


def test_one_reader_takes_from_every_nic_in_turn():
    single = assign_readers(plan([2, 1, 2, 1]), "AABB", 4, single=True)
    assert reads(single) == [(0, 0, 0), (0, 2, 0), (0, 0, 1), (0, 2, 1), (0, 1, 0), (0, 3, 0)]


def test_nothing_but_roots_rounds_and_order_changes():
    before, after = plan([2, 1, 2, 1]), assign_readers(plan([2, 1, 2, 1]), "AABB", 2)
    kept = ("owner", "first_tensor", "tensors", "bytes", "offset_bytes")
    rows = [sorted(zip(*(getattr(p.buckets, name).tolist() for name in kept), strict=True)) for p in (before, after)]
    assert rows[0] == rows[1]
    assert (before.reads, after.reads, before.listed, after.listed) == (False, True, 4, 2)


# -- Properties -------------------------------------------------------------------------------------------------------


@st.composite
def questions(draw: st.DrawFn) -> tuple[str, list[int], int]:
    """NICs of the ranks, how many buckets each owns, how many are listed."""
    nics = draw(st.text("ABCD", min_size=1, max_size=6))
    owned = draw(st.lists(st.integers(0, 4), min_size=len(nics), max_size=len(nics)).filter(any))
    return nics, owned, draw(st.integers(1, len(nics)))


def dealt(question: tuple[str, list[int], int]) -> tuple[list[tuple[int, int]], str, list[int]]:
    """Who reads what, the NIC of each bucket, and the ranks that may receive by the rule."""
    nics, owned, listed = question
    owner_nics = "".join(nic * count for nic, count in zip(nics, owned, strict=True))
    lowest = [rank for rank in range(listed) if nics[rank] not in nics[:rank]]
    receivers = lowest[: len(set(owner_nics))]
    return assign_receivers(owner_nics, list(enumerate(nics[:listed]))), owner_nics, receivers


def passes(deal: list[tuple[int, int]], first: int) -> list[list[tuple[int, int]]]:
    """Cut before each turn of the first receiver."""
    found: list[list[tuple[int, int]]] = []
    for receiver, bucket in deal:
        if receiver == first:
            found.append([])
        found[-1].append((receiver, bucket))
    return found


@MANY
@given(questions())
def test_every_bucket_is_dealt_once_column_by_column(question):
    deal, owner_nics, _ = dealt(question)
    seen = list(dict.fromkeys(owner_nics))
    column = [owner_nics[:bucket].count(nic) for bucket, nic in enumerate(owner_nics)]
    by_columns = sorted(range(len(owner_nics)), key=lambda bucket: (column[bucket], seen.index(owner_nics[bucket])))
    assert [bucket for _, bucket in deal] == by_columns


@MANY
@given(questions())
def test_the_lowest_listed_rank_of_each_nic_receives_if_there_are_as_many_owner_nics(question):
    deal, _, receivers = dealt(question)
    assert sorted({receiver for receiver, _ in deal}) == receivers


@MANY
@given(questions())
def test_a_pass_takes_no_owner_nic_twice_and_ends_only_where_it_must(question):
    deal, owner_nics, receivers = dealt(question)
    cut = passes(deal, receivers[0])
    for one in cut:
        assert [receiver for receiver, _ in one] == receivers[: len(one)]
        assert len({owner_nics[bucket] for _, bucket in one}) == len(one)
    for one, after in pairwise(cut):
        used = {owner_nics[bucket] for _, bucket in one}
        assert len(one) == len(receivers) or owner_nics[after[0][1]] in used


@MANY
@given(questions(), st.booleans())
def test_rounds_are_counted_per_receiver_without_a_gap(question, single):
    nics, owned, listed = question
    update = assign_readers(plan(owned), nics, listed, single=single)
    buckets = update.buckets
    assert sorted(row[1:] for row in reads(update)) == [(r, i) for r, n in enumerate(owned) for i in range(n)]
    order = list(zip(buckets.round.tolist(), buckets.root.tolist(), strict=True))
    assert order == sorted(set(order))
    for root in set(buckets.root.tolist()):
        assert buckets.round[buckets.root == root].tolist() == list(range((buckets.root == root).sum()))
    assert not single or set(buckets.root.tolist()) == {0}


@MANY
@given(questions())
def test_a_receiver_takes_its_rounds_in_the_order_of_dealing(question):
    nics, owned, listed = question
    deal, _, receivers = dealt(question)
    owners = list(chain.from_iterable([(owner, nth) for nth in range(count)] for owner, count in enumerate(owned)))
    update = assign_readers(plan(owned), nics, listed)
    for receiver in receivers:
        mine = [(owner, nth) for root, owner, nth in reads(update) if root == receiver]
        assert mine == [owners[bucket] for to, bucket in deal if to == receiver]


# -- Pipelines --------------------------------------------------------------------------------------------------------


def makespan(program, h=4.0, beta=1.0, load=1.0, copy=0.0):
    costs = kind_costs(program, {"read": h, "copy": copy, "broadcast": beta, "reload": load})
    return simulate(program, costs).makespan_s


@pytest.mark.parametrize(("rounds", "expected"), [(1, 9), (2, 17), (3, 25)])
def test_two_stage_unit_case(rounds, expected):
    """All ranks listed, a NIC each: every rank reads as much as it would have copied."""
    assert makespan(two_stage(assign_readers(plan([rounds] * 4), "ABCD", 4))) == expected


@FEW
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), seconds, seconds, seconds, seconds)
def test_two_stage_closed_form(n, times, owned, h, copy, cast, load):
    """N receivers of N k ranks, a NIC each and r buckets each: R = k r rounds of N reads."""
    update = assign_readers(plan([owned] * (n * times)), "ABCDEFGHIJKL", n)
    r, beta = times * owned, copy + cast
    closed = (h + beta) + (r - 1) * max(h + beta, load) + r * (n - 1) * max(beta, load) + load
    assert makespan(two_stage(update), h, cast, load, copy) == closed


@examples(80)
@given(questions(), st.booleans(), seconds, seconds, seconds, seconds)
def test_two_stage_for_any_assignment(question, single, h, copy, cast, load):
    """The same sum where rounds are uneven: a read is waited for once a round, all else once a bucket."""
    nics, owned, listed = question
    update = assign_readers(plan(owned), nics, listed, single=single)
    n_b, r, beta = sum(owned), update.buckets.rounds, copy + cast
    closed = (h + beta) + (r - 1) * max(h + beta, load) + (n_b - r) * max(beta, load) + load
    assert makespan(two_stage(update), h, cast, load, copy) == closed


@FEW
@given(questions(), seconds, seconds, seconds)
def test_one_reader_reads_one_after_another(question, h, beta, load):
    """H + beta + (N_b - 1) max(H + beta, L) + L, whatever the NICs: as without an H2D buffer."""
    nics, owned, listed = question
    closed = h + beta + (sum(owned) - 1) * max(h + beta, load) + load
    assert makespan(two_stage(assign_readers(plan(owned), nics, listed, single=True)), h, beta, load) == closed
    assert makespan(two_stage(assign_readers(plan(owned, buffers=2), nics, listed)), h, beta, load) == closed


@FEW
@given(questions(), seconds, seconds, seconds)
def test_serial(question, h, beta, load):
    nics, owned, listed = question
    update = assign_readers(plan(owned), nics, listed)
    assert makespan(serial(update), h, beta, load) == update.buckets.rounds * h + sum(owned) * (beta + load)


@pytest.mark.parametrize(("freed", "expected"), [("start", 13), ("end", 14)])
def test_three_stage_unit_case(freed, expected):
    assert makespan(three_stage(assign_readers(plan([2] * 4), "ABCD", 4), freed)) == expected


# -- The Program ------------------------------------------------------------------------------------------------------

PIPELINES = [two_stage, serial, three_stage]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_unlisted_ranks_tell_what_they_own_and_no_more(pipeline):
    program = pipeline(assign_readers(plan([2, 1, 2, 1]), "AABB", 2))
    kinds = {rank: set() for rank in range(4)}
    for op in range(len(program)):
        for rank in program.ranks_of(op):
            kinds[rank].add(program.kind_of(op))
    assert kinds[2] == kinds[3] == {"gather_metas"}
    assert "read" in kinds[0] - kinds[1]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_read_takes_the_owners_range_into_the_receivers_buffer(pipeline):
    update = assign_readers(plan([2, 1, 2, 1]), "AABB", 4)
    program = pipeline(update)
    found = {}
    for op in np.flatnonzero(program.is_kind("read")).tolist():
        source, target = sorted((program.access_table[i] for i in program.accesses[op]), key=lambda one: one.write)
        (owner,), (receiver,) = ((program.places[program.buffers[one.buffer].place].ranks) for one in (source, target))
        memories = [program.buffers[one.buffer].memory for one in (source, target)]
        assert (memories, source.bytes, target.bytes) == (["host", "device"], 256, 256)
        assert (program.shape[op].tolist(), program.root[op], program.ranks_of(op)) == ([owner], receiver, [receiver])
        found[int(program.tags["bucket"][op])] = (receiver, owner, source.offset // 256)
    assert [found[bucket] for bucket in sorted(found)] == reads(update)


@pytest.mark.parametrize("pipeline", PIPELINES)
@FEW
@given(questions(), seconds, seconds, seconds)
def test_folded_is_unfolded(pipeline, question, h, beta, load):
    nics, owned, listed = question
    update = assign_readers(plan(owned), nics, listed)
    halves = (tuple(range(listed)), tuple(range(listed, len(nics))))
    folded = replace(update, classes=tuple(ranks for ranks in halves if ranks))
    assert makespan(pipeline(folded), h, beta, load) == makespan(pipeline(update), h, beta, load)
