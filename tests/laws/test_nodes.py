"""Weak scaling gains nothing from more nodes, and the order of nodes changes nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.costs import PHASES, phase_of_op

from .plans import steps, updates
from .predict import law, resolved, seconds

EIGHT_GPUS = ("dgx-h100", "dgx-a100", "h800-hgx", "dgx-b200")
TWICE = {"nodes": {"times": 2}, "batch.global": {"times": 2}}


def optimizer_s(step):
    """Seconds of the optimizer's ops on each pipeline rank: of the shard that ZeRO leaves it."""
    program = step.program
    place = np.array([lane.place for lane in program.lanes])[program.lanes_of.values[program.lanes_of.start[:-1]]]
    own = phase_of_op(program) == PHASES.index("optimizer")
    return np.bincount(place[own], step.costs.uncontended_s[own], minlength=len(program.places))


def check_weak_scaling(table):
    """ZeRO halves the shard of states that a rank updates: by that alone a step of twice the GPUs may be shorter."""
    one, two = resolved(table), resolved(table, TWICE)
    saved = float((optimizer_s(one) - optimizer_s(two)).max())

    assert seconds(two) >= (seconds(one) - max(saved, 0.0)) * (1 - 1e-9)


@law(6)
@given(table=steps(nodes=(1, 2)))
def test_weak_scaling_gains_nothing_but_smaller_shards(table):
    check_weak_scaling(table)


@law(8)
@given(table=steps(nodes=(1, 2), zero=(0,)))
def test_weak_scaling_gains_nothing_where_nothing_is_sharded(table):
    assert seconds(resolved(table, TWICE)) >= seconds(resolved(table)) * (1 - 1e-9)


def mixed(table, parts):
    """The same scenario on a mix of nodes: of each part, what it changes of one node."""
    return table | {"cluster": {"mix": [{"base": table["cluster"], "nodes": 1} | part for part in parts]},
                    "nodes": len(parts)}  # fmt: skip


@law(8)
@given(table=st.one_of(steps(nodes=(2, 4)), updates()))
def test_equal_nodes_listed_one_by_one_are_the_same_cluster(table):
    listed = mixed(table, [{}] * table["nodes"])

    assert seconds(resolved(listed)) == pytest.approx(seconds(resolved(table)), rel=1e-12)


@law(8)
@given(
    table=steps(clusters=EIGHT_GPUS, nodes=(4,), pp=(1,)),
    other=st.sampled_from(EIGHT_GPUS),
    order=st.permutations(range(4)),
)
def test_the_order_of_unequal_nodes_changes_nothing(table, other, order):
    """Without a pipeline, whose first stages are on the nodes that are listed first."""
    nodes = [{}, {}, {"nic": "100 Gb/s"}, {"base": other}]
    first, second = (seconds(resolved(mixed(table, of))) for of in (nodes, [nodes[i] for i in order]))

    assert second == pytest.approx(first, rel=1e-12)


@pytest.mark.slow
@law(150)
@given(table=steps(nodes=(1, 2)))
def test_weak_scaling_gains_nothing_but_smaller_shards_in_many_steps(table):
    check_weak_scaling(table)
