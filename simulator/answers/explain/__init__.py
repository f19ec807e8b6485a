"""Why a prediction is what it is, what each number in it is worth, and what would help."""

from .case import Case, Refused, make_case
from .cycle import CycleExplanation, CycleLever
from .explanation import Explanation, Tried, explain, explain_case, first_look, open_case
from .run import Lever, RunCase, RunExplanation
from .sensitivity import Knob, Sensitivity, Side, Turned, knobs, turn
from .text import lines, write_page

__all__ = [
    "Case", "CycleExplanation", "CycleLever", "Explanation", "Knob", "Lever", "Refused", "RunCase", "RunExplanation",
    "Sensitivity", "Side", "Tried", "Turned", "explain", "explain_case", "first_look", "knobs", "lines", "make_case",
    "open_case", "turn", "write_page",
]  # fmt: skip
