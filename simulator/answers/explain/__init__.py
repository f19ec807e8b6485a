"""Why a prediction is what it is, what each number in it is worth, and what would help."""

from .by_levers import ByLevers
from .case import Case, Refused, make_case
from .cycle import CycleCase, CycleExplanation, CycleLever
from .explanation import AnyCase, AnyExplanation, Explanation, Tried, explain, explain_case, first_look, open_case
from .run import Lever, RunCase, RunExplanation
from .sensitivity import Knob, Sensitivity, Side, Turned, knobs, turn

__all__ = [
    "AnyCase", "AnyExplanation", "ByLevers", "Case", "CycleCase", "CycleExplanation", "CycleLever", "Explanation",
    "Knob", "Lever", "Refused", "RunCase", "RunExplanation", "Sensitivity", "Side", "Tried", "Turned", "explain",
    "explain_case", "first_look", "knobs", "make_case", "open_case", "turn",
]  # fmt: skip
