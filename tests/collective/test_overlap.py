"""Two exchanges of one step at once on 64 GPUs under two leaves: what a step says, and every message (docs/fabrics.md).

Gradients are summed by rail (rings of 8 ranks, 1 GiB), and tokens go to experts on all 64 ranks (256 MiB).
"""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from runcast.simulator.collectives import Machines
from runcast.simulator.collectives.algorithms import algorithms
from runcast.simulator.collectives.algorithms.hops import ClusterNet
from runcast.simulator.costs import cost
from runcast.simulator.engine import simulate
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import load_network, load_profile, load_stack
from runcast.simulator.program import ProgramBuilder
from runcast.simulator.systems.collective.lower import EXCHANGE, Exchange, lower

PAGE = Path(__file__).parents[2] / "docs/fabrics.md"
RANKS = tuple(range(64))
GROUPS = {("all_reduce", "ring"): [tuple(range(k, 64, 8)) for k in range(8)], ("all_to_all", "direct"): [RANKS]}
SIZES = {"all_reduce": 1 << 30, "all_to_all": 256 << 20}


def machines(oversubscription):
    """Leaves of four nodes, whose 32 NICs share 32 uplinks or fewer."""
    radix = 32 + 32 // oversubscription
    given = {"base": "dgx-h100", "fabric": "leaf", "leaf_radix": radix, "oversubscription": oversubscription}
    profile = load_profile("h100-sxm").join(load_network("infiniband")).join(load_stack("generic"))
    return Machines(cluster(given, 8), profile)


def by_messages(on):
    """Seconds of the sums and of the all-to-all, every message a flow."""
    exchanges = []
    for (op, name), groups in GROUPS.items():
        nets = [ClusterNet(on, ranks, op, dict.fromkeys(RANKS, RANKS)) for ranks in groups]
        chunks = algorithms(op)[name].chunks
        exchanges += [Exchange(chunks(net.group()), net.group(), SIZES[op], net) for net in nets]
    program, costs = lower(on.cluster, on.capacity, exchanges)
    end_s = np.zeros(len(exchanges))
    np.maximum.at(end_s, program.tags[EXCHANGE], simulate(program, costs).end_s)
    return float(end_s[:8].max()), float(end_s[8])


def by_step(on):
    """The same two as ops of a step."""
    builder = ProgramBuilder()
    place = builder.place("stage", RANKS)
    for (op, _), groups in GROUPS.items():
        builder.op(op, [builder.lane(place, op)], (), size_bytes=SIZES[op], group=groups[0])
    program = builder.build()
    return tuple(simulate(program, cost(program, on.cluster, on.profile, tuple(GROUPS))).end_s.tolist())


@cache
def milliseconds(oversubscription):
    on = machines(oversubscription)
    return [1e3 * seconds for pair in zip(by_step(on), by_messages(on), strict=True) for seconds in pair]


def rows():
    line = r"^\| (\d) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$"
    return [tuple(map(float, row)) for row in re.findall(line, PAGE.read_text(), re.MULTILINE)]


def test_the_page_has_a_row_for_each_oversubscription():
    assert [int(row[0]) for row in rows()] == [1, 2, 4, 8]


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]:.0f}")
def test_the_page_says_how_much_is_missed(row):
    assert [f"{value:.1f}" for value in row[1:]] == [f"{value:.1f}" for value in milliseconds(int(row[0]))]
