"""Search: the best plans of a scenario among all that its GPUs allow, proved where the budget allows it.

`search(table, gpus=64)` is `runcast search` as a function: pure data, nothing printed or written.
"""

from .records import Amounts, Measured, Row, SearchResult
from .run import search, search_file
from .space import Axis, Rule, Space, Wanted, read_wanted

__all__ = [
    "Amounts", "Axis", "Measured", "Row", "Rule", "SearchResult", "Space", "Wanted", "read_wanted", "search",
    "search_file",
]  # fmt: skip
