"""From a training plan to a Program: layers with their exchanges, actions of a pipeline, the end of a step."""

from .assembly import ACTIONS
from .coarse import Coarse, coarse, join_coarse
from .kept import buffer_parts, kept_by_part
from .plan import Again, Sharding, Stage, TrainPlan, Types
from .script import Fragments
from .step import lower

__all__ = [
    "ACTIONS", "Again", "Coarse", "Fragments", "Sharding", "Stage", "TrainPlan", "Types", "buffer_parts", "coarse",
    "join_coarse", "kept_by_part", "lower",
]  # fmt: skip
