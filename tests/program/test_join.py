"""Programs side by side: each keeps its places and ops, and what they share is one op."""

from runcast.simulator.program import Program, ProgramBuilder, join


def replica(rank: int, microbatches: int) -> Program:
    """Kernels of a rank, then an all-reduce with the other rank, then the optimizer."""
    b = ProgramBuilder()
    place = b.place(f"r{rank}", [rank])
    compute, dp = b.lane(place, "compute"), b.lane(place, "dp")
    kernels = [b.op("gemm", [compute], name=f"m{m}") for m in range(microbatches)]
    reduced = b.op("all_reduce", [dp], kernels[-1:], name="gradients", group=(0, 1), size_bytes=8)
    b.op("adamw", [compute], [reduced], name="optimizer", shape=[rank])
    return b.build()


def test_a_shared_collective_is_one_op_that_waits_for_all():
    joined, _ = join([replica(0, 1), replica(1, 2)])
    assert joined.names == ("m0", "gradients", "optimizer", "m0", "m1", "optimizer")
    assert [joined.lane_name(lane) for lane in range(4)] == ["r0.compute", "r0.dp", "r1.compute", "r1.dp"]
    assert [row.tolist() for row in joined.order] == [[0, 2], [1], [3, 4, 5], [1]]
    assert [row.tolist() for row in joined.deps] == [[], [0, 4], [1], [], [], [1]]
    assert (joined.groups[joined.group[1]], joined.bytes[1]) == ((0, 1), 8)


def test_numbers_say_which_op_became_which():
    _, (first, second) = join([replica(0, 1), replica(1, 2)])
    assert (first.tolist(), second.tolist()) == ([0, 1, 2], [3, 4, 1, 5])


def test_apart_every_program_keeps_its_own():
    joined, _ = join([replica(0, 1), replica(1, 1)], share=False)
    assert (len(joined), joined.deps[4].tolist(), joined.shape[5].tolist()) == (6, [3], [1])


def test_one_program_stays_as_it_is():
    one = replica(0, 3)
    assert join([one])[0] is one
