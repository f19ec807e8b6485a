"""A random scenario and the same one changed: resolved, priced and simulated, whole or with every op alone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from runcast.simulator import engine
from runcast.simulator.base.memo import Memo
from runcast.simulator.costs import Costs
from runcast.simulator.program import Program, Ragged
from runcast.simulator.scenario import change, check_question, resolve
from runcast.simulator.systems.train_step.resolve import ResolvedTrain
from runcast.simulator.systems.weight_update.resolve import Resolved
from runcast.simulator.timeline import Timeline

_MEMO = Memo()  # clusters and profiles of all tests in one process; results do not depend on it


def law(examples: int) -> settings:
    """Settings of a test that sees the same few scenarios in every run.

    What fails is shown as it was found: scenarios are small, and to look for smaller ones takes minutes.
    """
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    once = [Phase.explicit, Phase.generate]
    return settings(max_examples=examples, derandomize=True, suppress_health_check=slow, phases=once)


def resolved(table: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> Resolved | ResolvedTrain:
    """A step or an update; `changes` are by key, as of `--set` or as factors."""
    return resolve(check_question(change(table, changes or {}, "a law"), "a law"), "a law", _MEMO)


def run(of: Resolved | ResolvedTrain) -> Timeline:
    """What happens when."""
    return engine.simulate(of.program, of.costs)


def seconds(of: Resolved | ResolvedTrain) -> float:
    """From start to end."""
    return run(of).makespan_s


def unshared_s(program: Program, costs: Costs) -> float:
    """The same where every op runs as if it were alone: links are never shared, and nothing slows anything else."""
    alone = replace(
        costs,
        row=np.zeros(len(program), np.int64),
        demand=Ragged.build([[]]),
        rate_bytes_per_s=np.empty(0),
        interference=np.ones_like(costs.interference),
    )
    return engine.simulate(program, alone).makespan_s
