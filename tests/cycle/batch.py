"""A pool that has one batch alone."""

from collections.abc import Sequence

from runcast.simulator.systems.rl_cycle.pace import Pace
from runcast.simulator.systems.rl_cycle.pool import Pool


def rollout_s(tokens: Sequence[int], engines: int, slots: int, pace: Pace) -> float:
    """How long the pool takes for it."""
    pool, now_s = Pool(engines, slots, pace), 0.0
    pool.add(0, tokens)
    pool.deal(now_s)
    while pool.running:
        now_s = pool.next_end_s()
        pool.finish(now_s)
        pool.deal(now_s)
    return now_s
