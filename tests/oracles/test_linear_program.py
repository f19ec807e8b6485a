"""Collectives ask unequal amounts of their links; their max-min speeds against a sequence of linear programs.

Each program raises the lowest level r_f = s_f max_l d_fl of the flows that are still free; a flow whose level cannot
rise beyond it, whatever the others give up, is fixed there (lexicographic max-min).
"""

import random

import numpy as np
import pytest
from runcast.simulator.engine import max_min
from scipy.optimize import linprog

Demands = list[dict[int, float]]


def lexicographic(demands: Demands, capacity: list[float], caps: list[float]) -> list[float]:
    """Speeds by linear programs over the levels r and the lowest one t."""
    n = len(demands)
    top = np.array([max(demand.values()) for demand in demands])
    load = np.zeros((len(capacity), n))
    for f, demand in enumerate(demands):
        load[list(demand), f] = np.array(list(demand.values())) / top[f]
    most = np.array(caps) * top
    level: dict[int, float] = {}
    while len(level) < n:
        free = [f for f in range(n) if f not in level]
        lowest = _best(np.r_[np.zeros(n), 1.0], load, capacity, most, level, free, 0.0)
        rise = {f: _best(np.r_[np.eye(n)[f], 0.0], load, capacity, most, level, free, lowest) for f in free}
        stuck = [f for f in free if rise[f] <= lowest * (1 + 1e-7) + 1e-9] or [min(free, key=rise.__getitem__)]
        level |= dict.fromkeys(stuck, lowest)
    return [level[f] / top[f] for f in range(n)]


def _best(goal, load, capacity, most, level, free, floor) -> float:
    """The largest goal . (r, t) where free flows have r >= t >= floor, the others their level, no link too full."""
    n = len(most)
    at_least = np.zeros((len(free), n + 1))
    at_least[range(len(free)), free] = -1.0
    at_least[:, n] = 1.0
    slack = 1e-12 * floor
    bounds = [(level[f], level[f]) if f in level else (0.0, most[f]) for f in range(n)] + [
        (max(floor - slack, 0.0), None)
    ]
    found = linprog(
        -goal,
        A_ub=np.vstack([np.c_[load, np.zeros(len(capacity))], at_least]),
        b_ub=np.r_[np.array(capacity) * (1 + 1e-12), np.zeros(len(free))],
        bounds=bounds,
        method="highs",
    )
    assert found.status == 0, found.message
    return -found.fun


def instance(seed: int) -> tuple[Demands, list[float], list[float]]:
    """Up to 6 links and 8 collectives; about half of the caps are below 1."""
    rng = random.Random(seed)
    capacity = [rng.uniform(5, 50) for _ in range(rng.randint(1, 6))]
    demands = [
        {link: rng.uniform(1, 30) for link in rng.sample(range(len(capacity)), rng.randint(1, len(capacity)))}
        for _ in range(rng.randint(1, 8))
    ]
    return demands, capacity, [rng.choice([1.0, rng.uniform(0.05, 1)]) for _ in demands]


@pytest.mark.parametrize("block", range(4))
def test_collectives_with_unequal_amounts(block):
    cases = [instance(seed) for seed in range(block * 40, block * 40 + 40)]
    np.testing.assert_allclose(
        np.concatenate([max_min(*case) for case in cases]),
        np.concatenate([lexicographic(*case) for case in cases]),
        rtol=1e-6,
    )


def test_a_collective_beside_a_flow_on_its_lesser_link():
    """Levels: the collective 8 on link 0 and 4 on link 1 rises with the flow until link 1 is full: r/2 + r = 6."""
    assert max_min([{0: 8.0, 1: 4.0}, {1: 6.0}], [10.0, 6.0]) == [0.5, 4 / 6]


def test_a_capped_flow_leaves_its_share_to_the_others():
    assert max_min([{0: 10.0}, {0: 10.0}, {0: 10.0}], [12.0], [0.2, 1.0, 1.0]) == [0.2, 0.5, 0.5]


def test_a_flow_without_links_runs_at_its_cap():
    assert max_min([{}, {0: 4.0}], [2.0], [0.75, 1.0]) == [0.75, 0.5]


def test_a_stalled_flow_asks_nothing():
    assert max_min([{0: 10.0}, {0: 10.0}], [10.0], [0.0, 1.0]) == [0.0, 1.0]
