"""Plans of training for tests, from a few numbers."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from runcast.simulator.systems.run.history import History
from runcast.simulator.systems.run.speed import Crew
from runcast.simulator.systems.run.spread import Spread
from runcast.simulator.systems.run.sync.rounds import EachStep, Rounds
from runcast.simulator.systems.run.training.failures import Failure
from runcast.simulator.systems.run.training.plan import TrainingPlan
from runcast.simulator.systems.run.training.process import run_training

FOUR_WORKERS = """
kind = "run"
cluster = "dgx-h100"
nodes = 4

[step]
time = "2 s"
samples = 100
gradient = "1 GB"
gpus = 8

[run]
steps = 1000

[sync]
bandwidth = "10 GB/s"
latency = 0
"""
"""The file of a run of four workers, a node each."""

_STEP, _STEADY = EachStep(1.0), Spread()


def train(
    rounds: Rounds | Callable[[int], Rounds] = _STEP,
    *,
    ranks: int = 1,
    workers: int = 1,
    jitter: Spread = _STEADY,
    speeds: Iterable[float] | None = None,
    failures: Iterable[Failure] = (),
    **rest: Any,
) -> History:
    """Train on `ranks` nodes of one rank each."""
    of = np.ones(ranks) if speeds is None else np.array(list(speeds))
    listed = failures if isinstance(failures, Iterator) else list(failures)
    plan = TrainingPlan(
        rounds_of=rounds if callable(rounds) else lambda _: rounds,
        crew=Crew(of, jitter),
        workers=workers,
        nodes=len(of),
        samples=1.0,
        failures=lambda: iter(listed),
        **rest,
    )
    return run_training(plan)


def failure(
    at_s: float, node: int = 0, *, detect_s: float = 0.0, repair_s: float = 0.0, effect: str = "stop"
) -> Failure:
    """A failure at a stated time."""
    return Failure(at_s, "test", (node,), effect, detect_s, repair_s)
