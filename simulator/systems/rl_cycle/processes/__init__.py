"""The RL cycle around a weight update: rollouts, training, the switch between them, and who waits for whom."""

from .plan import LARGEST_TAIL, CyclePlan, Lengths, Rollouts, Switch
from .pool import Pace, Pool
from .run import CycleRun, Request, run_cycle

__all__ = [
    "LARGEST_TAIL", "CyclePlan", "CycleRun", "Lengths", "Pace", "Pool", "Request", "Rollouts", "Switch", "run_cycle",
]  # fmt: skip
