"""A worker's steps: each takes the time that the simulation draws, whatever of it is real work."""

import time

from runcast.simulator.systems.run.team import Team

_MOST_STEPS = 1000  # of a worker
_STREAM = 1  # of random numbers: the one that `run_servers` draws steps from; any other gives the same distribution


def step_times_s(team: Team, worker: int) -> list[float]:
    """What a worker's steps take."""
    factors = team.jitter_of(worker).draw(team.rng(_STREAM, worker), _MOST_STEPS)
    return (team.step_s * team.speed(worker) * factors).tolist()


def sleep_until(end_s: float) -> float:
    """Sleep until the performance counter shows so many seconds; returns how many it shows more."""
    time.sleep(max(end_s - time.perf_counter(), 0.0))
    return time.perf_counter() - end_s
