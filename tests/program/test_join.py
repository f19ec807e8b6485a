"""Programs side by side: each keeps its places and ops, and what they share is one op."""

from runcast.simulator.program import Program, ProgramBuilder, join, to_text


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
    assert (
        to_text(joined)
        == """\
runcast program 1
place "r0" 0
place "r1" 1
lane 0 "compute"
lane 0 "dp"
lane 1 "compute"
lane 1 "dp"
op "gemm" "m0"
op "all_reduce" "gradients" bytes=8 group=0-1 after=0,4
op "adamw" "optimizer" shape=0 after=1
op "gemm" "m0"
op "gemm" "m1"
op "adamw" "optimizer" shape=1 after=1
order 0: 0 2
order 1: 1
order 2: 3 4 5
order 3: 1
"""
    )


def test_numbers_say_which_op_became_which():
    _, (first, second) = join([replica(0, 1), replica(1, 2)])
    assert (first.tolist(), second.tolist()) == ([0, 1, 2], [3, 4, 1, 5])


def test_apart_every_program_keeps_its_own():
    joined, _ = join([replica(0, 1), replica(1, 1)], share=False)
    assert (len(joined), joined.deps[4].tolist(), joined.shape[5].tolist()) == (6, [3], [1])


def test_one_program_stays_as_it_is():
    one = replica(0, 3)
    assert join([one])[0] is one
