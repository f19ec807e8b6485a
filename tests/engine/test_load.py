"""What the engine keeps track of between two settlements: caps in the answers it remembers, links that are full."""

import pytest
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.engine.load import Load
from runcast.simulator.program import ProgramBuilder


def two_on_a_link():
    b = ProgramBuilder()
    for rank, kind in enumerate("ab"):
        b.op(kind, [b.lane(b.place(f"r{rank}", [rank]), "x")], name=kind)
    return b.build()


def test_a_cap_that_changes_midway_moves_the_shares():
    program = two_on_a_link()
    costs = kind_costs(program, {"a": 1, "b": 2}, demand={0: {0: 1.0}, 1: {0: 1.0}}, capacity_bytes_per_s=(1.0,))

    def slow(engine):
        yield engine.env.timeout(1)
        engine.set_rank_speed(0, 0.25)

    assert simulate(program, costs, [slow]).end_s.tolist() == [3, 3]


@pytest.mark.parametrize("links", [1, 9])
def test_a_link_is_full_no_longer_when_one_leaves(links):
    program = two_on_a_link()
    row = dict.fromkeys(range(links), 1.0)
    costs = kind_costs(program, {"a": 1, "b": 2}, demand={0: row, 1: row}, capacity_bytes_per_s=(1.0,) * links)
    load = Load(costs)
    load.add(int(costs.row[0]))
    load.add(int(costs.row[1]))
    assert load.full == set(range(links))
    assert load.is_full(int(costs.row[0]))
    load.remove(int(costs.row[0]))
    assert not load.full
