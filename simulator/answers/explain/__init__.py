"""Why a prediction is what it is, what each number in it is worth, and what would help."""

from ...report.report import Parts
from .advice import Refused, Tried
from .case import Case, make_case
from .explanation import Explanation, explain, explained, first_look
from .knobs import Knob, knobs
from .page import write_page
from .sensitivity import Sensitivity, Side, Turned, turn
from .text import lines

__all__ = [
    "Case", "Explanation", "Knob", "Parts", "Refused", "Sensitivity", "Side", "Tried", "Turned", "explain", "explained",
    "first_look", "knobs", "lines", "make_case", "turn", "write_page",
]  # fmt: skip
