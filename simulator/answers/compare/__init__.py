"""Two results side by side: inputs that differ, and what they do to each term of the time."""

from .comparison import Comparison, Drawn, Input, Metric, Side, Term, compare
from .sources import Operand, open_side, side_of

__all__ = ["Comparison", "Drawn", "Input", "Metric", "Operand", "Side", "Term", "compare", "open_side", "side_of"]
