"""Ranks that act alike are simulated once: folded and unfolded Programs give equal times, op by op.

Against the unfolded engine run, on small clusters of every kind and with costs given by kind.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import simulate as predict
from runcast.simulator.collectives import STREAMS
from runcast.simulator.costs import Costs, cost, kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import Profile, load_profile, load_stack
from runcast.simulator.program import Program
from runcast.simulator.systems.weight_update.lower import (
    BucketSize,
    UpdatePlan,
    make_plan,
    serial,
    three_stage,
    two_stage,
)

from ..examples import examples

PIPELINES = {
    "two stages": (two_stage, 3),
    "serial": (serial, 3),
    "three stages": (three_stage, 3),
    "freed at the end": (lambda plan: three_stage(plan, "end"), 3),
    "no H2D buffer": (two_stage, 2),
}
MACHINES = {
    "h20, NVLink": cluster("h20-hgx", 1),
    "l40s, PCIe": cluster("l40s-pcie", 1),
    "h20, 3 nodes of 2": cluster({"base": "h20-hgx", "gpus_per_node": 2, "nics": 2, "pcie_switches": 2}, 3),
    "l40s, 2 nodes of 4": cluster({"base": "l40s-pcie", "gpus_per_node": 4}, 2),
}
PROFILE = load_profile("generic").join(load_stack("checkpoint-engine"))
SET_UP = ("init_group", "gather", "allocate", "open_handle", "drop_handle", "free_buffers", "post_hook", "destroy")
SCARCE = {"link_fraction.hbm": 0.05, "copy.hbm_fraction": 0.05, "reload.tensor_s": 1e-3} | {
    "interference.reload.broadcast": 0.5,
    "interference.broadcast.reload": 0.7,
}


def scarce() -> Profile:
    """Nothing hides a difference: no set-up, hardly any device memory bandwidth, reloads and broadcasts disturb."""
    values = SCARCE | {name: 0.0 for name in PROFILE.parameters if name.startswith(SET_UP)}
    changed = {name: replace(PROFILE[name], value=value) for name, value in values.items()}
    return Profile("scarce", {**PROFILE.parameters, **changed})


PROFILES = {"generic": PROFILE, "scarce": scarce()}


@st.composite
def plans(draw: st.DrawFn, buffers: int) -> tuple[UpdatePlan, UpdatePlan]:
    """An unfolded plan of 2 to 6 ranks with uneven buckets, and the same folded into one class or two."""
    ranks = draw(st.integers(2, 6))
    sizes = np.array(draw(st.lists(st.integers(1, 64), min_size=2, max_size=20))) * 2**24
    size = BucketSize(draw(st.integers(64, 160)) * 2**24, buffers)
    cut = draw(st.integers(1, ranks))
    classes = [part for part in (range(cut), range(cut, ranks)) if part]
    return make_plan(sizes, ranks, size), make_plan(sizes, ranks, size, classes=classes)


def differences(unfolded: Program, folded: Program, costs: tuple[Costs, Costs]) -> list[tuple[str, float, float]]:
    """Ops of the folded Program whose start or end differs from those that they stand for, by name."""
    first, other = simulate(unfolded, costs[0]), simulate(folded, costs[1])
    stands_for: dict[tuple[str, int], list[int]] = {}
    for op in range(len(unfolded)):
        stands_for.setdefault(_key(unfolded, op), []).append(op)
    found = []
    for op in range(len(folded)):
        own = set(folded.ranks_of(op))
        ops = [one for one in stands_for[_key(folded, op)] if own.issuperset(unfolded.ranks_of(one))]
        for mine, theirs in ((other.end_s[op], first.end_s[ops].max()), (other.start_s[op], first.start_s[ops].max())):
            if abs(mine - theirs) > 1e-9 * first.makespan_s:
                found.append((folded.names[op], float(mine), float(theirs)))
    return found


def _key(program: Program, op: int) -> tuple[str, int]:
    bucket = program.tags["bucket"][op] if "bucket" in program.tags else -1
    return program.kind_of(op), int(bucket)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("profile", PROFILES)
@examples(6)
@given(data=st.data())
def test_on_clusters(profile, pipeline, machine, data):
    write, buffers = PIPELINES[pipeline]
    unfolded, folded = (write(plan) for plan in data.draw(plans(buffers)))
    costs = tuple(cost(program, MACHINES[machine], PROFILES[profile], STREAMS) for program in (unfolded, folded))
    assert differences(unfolded, folded, costs) == []


@pytest.mark.parametrize("pipeline", PIPELINES)
@examples(25)
@given(data=st.data(), shared=st.booleans())
def test_with_costs_by_kind(pipeline, data, shared):
    write, buffers = PIPELINES[pipeline]
    unfolded, folded = (write(plan) for plan in data.draw(plans(buffers)))
    kinds = sorted({*unfolded.kinds})
    seconds = dict(
        zip(kinds, data.draw(st.lists(st.integers(0, 40), min_size=len(kinds), max_size=len(kinds))), strict=True)
    )
    costs = tuple(
        kind_costs(p, seconds, demand=_lanes(p) if shared else None, capacity_bytes_per_s=(1.0,) * 6)
        for p in (unfolded, folded)
    )
    assert differences(unfolded, folded, costs) == []


def _lanes(program: Program) -> dict[int, dict[int, float]]:
    """H2D copies and broadcasts cross one lane per rank."""
    demand = {int(op): {int(program.root[op]): 1.0} for op in np.flatnonzero(program.is_kind("h2d"))}
    every = dict.fromkeys(range(program.ranks), 1.0)
    return demand | {int(op): every for op in np.flatnonzero(program.is_kind("broadcast"))}


@pytest.mark.parametrize("method", ["broadcast", "p2p"])
def test_ranks_of_different_sites_are_not_alike(method):
    """A server hears from its own worker, which is never at another site."""
    cluster = {"base": "dgx-h100", "sites": 2, "site_bandwidth": "20 GB/s", "site_latency": "20 ms"}
    table = {"kind": "weight_update", "cluster": cluster, "nodes": 4, "model": {"bytes": 2e9, "tensors": 50}}
    folded, unfolded = (
        predict(table | {"update": {"method": method}, "fold": fold}).report.update_time_s for fold in (True, False)
    )

    assert folded == pytest.approx(unfolded, rel=1e-9)
