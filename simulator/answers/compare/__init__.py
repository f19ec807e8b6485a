"""Two results side by side: what differs in what went in, and what that did to each term of the time."""

from .comparison import Comparison, Input, Metric, Term, compare
from .side import Drawn, Side
from .sources import Given, open_side, side_of

__all__ = ["Comparison", "Drawn", "Given", "Input", "Metric", "Side", "Term", "compare", "open_side", "side_of"]
