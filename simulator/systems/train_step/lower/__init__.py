"""From a training plan to a Program: layers with their exchanges, actions of a pipeline, the end of a step."""

from .assembly import ACTIONS
from .coarse import Coarse, coarse, join_coarse
from .kept import activation_parts, buffer_parts
from .plan import Again, Sharding, Stage, TrainPlan, Types
from .script import Fragments
from .step import lower

__all__ = [
    "ACTIONS",
    "Again",
    "Coarse",
    "Fragments",
    "Sharding",
    "Stage",
    "TrainPlan",
    "Types",
    "activation_parts",
    "buffer_parts",
    "coarse",
    "join_coarse",
    "lower",
]  # fmt: skip
