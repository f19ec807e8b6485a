"""H2D copies and broadcasts that cross the same links: contention from the links, not a rule, decides what is faster.

The same Programs run on links that the two share and on links apart. A small fluid model is the oracle.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.collectives import STREAMS
from runcast.simulator.costs import cost, kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.hardware import Cluster, Fabric, Node, device, duplex, half_duplex, loop, oneway
from runcast.simulator.profile import PARAMETERS, Parameter, Profile
from runcast.simulator.program import Program
from runcast.simulator.systems.weight_update.lower import BucketSize, UpdatePlan, make_plan, three_stage, two_stage

from ..examples import examples

some_seconds = st.integers(1, 96).map(lambda n: n / 16)
HALF, TWO_THIRDS = Fraction(1, 2), Fraction(2, 3)


def plan(ranks: int, rounds: int, *, folded: bool = False) -> UpdatePlan:
    """Every rank owns `rounds` buckets of 256 bytes."""
    classes = [range(ranks)] if folded else None
    return make_plan(np.full(ranks * rounds, 256), ranks, BucketSize(256, 3), classes=classes)


def fluid(
    h: Fraction,
    beta: Fraction,
    load: Fraction,
    n: int,
    rounds: int,
    slow: tuple[Fraction, Fraction] = (HALF, HALF),
    meet: Callable[[int, int], bool] = lambda root, rank: True,
) -> Fraction:
    """The end of a three-stage update whose H2D buffers are free again when their broadcast starts.

    An H2D on `rank` and a broadcast from `root` that meet run at the two speeds `slow`; a broadcast has one speed, that
    of its slowest lane. Broadcast g needs the IPC half that reload g - 2 read.
    """
    now = Fraction(0)
    copying = dict.fromkeys(range(n), h)  # seconds left of the H2D of each rank that has one
    cast: Fraction | None = None
    g, loaded = 0, list[Fraction]()
    while len(loaded) < n * rounds:
        half_free = g < 2 or loaded[g - 2] <= now
        if cast is None and g % n not in copying and half_free:
            cast = beta
            if g // n + 1 < rounds:
                copying[g % n] = h
        met = {rank for rank in copying if cast is not None and meet(g % n, rank)}
        speed = {rank: slow[0] if rank in met else Fraction(1) for rank in copying}
        cast_speed = slow[1] if met else Fraction(1)
        steps = [left / speed[rank] for rank, left in copying.items()]
        if cast is not None:
            steps.append(cast / cast_speed)
        elif not half_free:
            steps.append(loaded[g - 2] - now)
        step = min(steps)
        now += step
        copying = {rank: left - speed[rank] * step for rank, left in copying.items() if left > speed[rank] * step}
        if cast is not None:
            cast -= cast_speed * step
            if cast == 0:
                loaded.append(max([now, *loaded[-1:]]) + load)
                g, cast = g + 1, None
    return loaded[-1]


# -- One abstract lane per device -------------------------------------------------------------------------------------


def makespan(program: Program, h: float = 4, beta: float = 1, load: float = 1, *, shared: bool) -> float:
    """Where shared, an H2D asks all of its owner's lane, a broadcast all of every lane; capacities are 1."""
    demand: dict[int, dict[int, float]] = {}
    if shared:
        demand |= {int(op): {int(program.root[op]): 1.0} for op in np.flatnonzero(program.is_kind("h2d"))}
        every = dict.fromkeys(range(program.ranks), 1.0)
        demand |= {int(op): every for op in np.flatnonzero(program.is_kind("broadcast"))}
    seconds, capacity = {"h2d": h, "broadcast": beta, "reload": load}, (1.0,) * program.ranks
    return simulate(program, kind_costs(program, seconds, demand=demand, capacity_bytes_per_s=capacity)).makespan_s


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(("rounds", "expected"), [(1, 9), (2, 20), (3, 28), (4, 36), (5, 44)])
def test_pcie_bound_three_stage(rounds, expected, folded):
    assert makespan(three_stage(plan(4, rounds, folded=folded)), shared=True) == expected


@pytest.mark.parametrize("rounds", [2, 3, 4])
def test_only_the_lanes_decide_which_pipeline_is_faster(rounds):
    ideal, synchronised = three_stage(plan(4, rounds)), two_stage(plan(4, rounds))
    apart = [makespan(program, shared=False) for program in (ideal, synchronised)]
    shared = [makespan(program, shared=True) for program in (ideal, synchronised)]
    assert (apart, shared) == ([4 * rounds + 5, 8 * rounds + 1], [8 * rounds + 4, 8 * rounds + 1])


@examples(60)
@given(some_seconds, some_seconds, some_seconds, st.integers(1, 4), st.integers(1, 3))
def test_three_stage_on_shared_lanes_is_the_fluid_model(h, beta, load, n, r):
    expected = fluid(Fraction(h), Fraction(beta), Fraction(load), n, r)
    assert makespan(three_stage(plan(n, r)), h, beta, load, shared=True) == pytest.approx(float(expected), rel=1e-12)


# -- Cluster graphs ---------------------------------------------------------------------------------------------------

LINE = 64.0  # bytes/s of every PCIe link and cable: 256 bytes in 4 s
HUGE = 2.0**60


def ideal_profile() -> Profile:
    """Links reach their line rate, latencies and host work are zero, kernels do not disturb each other."""
    ones = ("link_fraction", "copy.hbm_fraction", "interference")
    return Profile("ideal", {n: Parameter(float(n.startswith(ones)), 0.0, "exact", "this test") for n in PARAMETERS})


def box(*, nvlink: bool) -> Cluster:
    """Four GPUs on one root complex with unlimited host memory; NVLink, where it is there, is as fast as PCIe."""
    wires = half_duplex("numa0", "cpu0", "host_memory", HUGE)
    for i in range(4):
        wires += [loop(f"gpu{i}", "hbm", HUGE), *duplex(f"gpu{i}", "cpu0", "pcie", LINE)]
        wires += duplex(f"gpu{i}", "nvswitch", "nvlink", LINE) if nvlink else []
    return Cluster.from_wires(device("h20"), wires)


def makespan_on(cluster: Cluster, program: Program) -> float:
    return simulate(program, cost(program, cluster, ideal_profile(), STREAMS)).makespan_s


@pytest.mark.parametrize(("rounds", "collided"), [(1, 20), (2, 24 * 2 - 10 / 3), (3, 24 * 3 - 10 / 3)])
def test_graph_decides_whether_h2d_and_broadcast_collide(rounds, collided):
    """A GPU receives the same s bytes by H2D and by broadcast, so on one inbound link H = beta = 4 s (not 4 to 1).

    The ring asks 3/4 of the link, an H2D all of it: both get half, so that a broadcast runs at 2/3, an H2D at 1/2, and
    the three stages lose to the two (20 R) once there is a second round.
    """
    ideal, synchronised = three_stage(plan(4, rounds)), two_stage(plan(4, rounds))
    measured = [makespan_on(box(nvlink=nvlink), p) for nvlink in (True, False) for p in (ideal, synchronised)]
    assert measured == pytest.approx([4 + 16 * rounds, 20 * rounds, collided, 20 * rounds], rel=1e-12)
    assert float(fluid(*map(Fraction, (4, 4, 0)), 4, rounds, (HALF, TWO_THIRDS))) == pytest.approx(collided, rel=1e-12)


def pod(*, gpudirect: bool) -> Cluster:
    """Four nodes of four GPUs with fast NVLink; NIC k sits behind GPU k's switch, or reaches the GPU on wires apart.

    The ring between nodes uses four rails, so that a GPU's inbound link carries s / 4 of a broadcast and s of its H2D:
    H = 4 s and beta = 1 s, each asking the whole link.
    """
    wires = half_duplex("numa0", "cpu0", "host_memory", HUGE)
    for i in range(4):
        wires += [loop(f"gpu{i}", "hbm", HUGE), *duplex(f"gpu{i}", "nvswitch", "nvlink", HUGE)]
        wires += [*duplex(f"gpu{i}", f"pcie{i}", "pcie", LINE), *duplex(f"pcie{i}", "cpu0", "pcie", LINE)]
        wires += duplex(f"nic{i}", f"pcie{i}" if gpudirect else f"gpu{i}", "pcie", LINE)
        wires += [oneway(f"nic{i}", f"port{i}", "nic", LINE), oneway(f"port{i}", f"nic{i}", "nic", LINE)]
    return Cluster([Node(device("h20"), wires)] * 4, Fabric("rail"))


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_gpudirect_collides_with_h2d_on_the_inbound_link(rounds):
    """A broadcast does not enter its root's own node and so meets only the H2D copies of the other three."""
    ideal, synchronised = three_stage(plan(16, rounds)), two_stage(plan(16, rounds))
    collided = fluid(*map(Fraction, (4, 1, 0)), 16, rounds, meet=lambda root, rank: root // 4 != rank // 4)
    measured = [makespan_on(pod(gpudirect=direct), p) for direct in (False, True) for p in (ideal, synchronised)]
    assert measured == pytest.approx([4 + 16 * rounds, 20 * rounds, float(collided), 20 * rounds], rel=1e-12)
