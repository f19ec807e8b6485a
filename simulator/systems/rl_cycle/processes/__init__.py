"""The RL cycle around a weight update: rollouts, training, the switch between them, and who waits for whom."""

from .lengths import LARGEST_TAIL, Lengths
from .plan import CyclePlan, Rollouts, Switch
from .pool import Pace, Pool, rollout_s
from .run import CycleRun, Request, run_cycle
from .switch import move_s

__all__ = [
    "LARGEST_TAIL", "CyclePlan", "CycleRun", "Lengths", "Pace", "Pool", "Request", "Rollouts", "Switch", "move_s",
    "rollout_s", "run_cycle",
]  # fmt: skip
