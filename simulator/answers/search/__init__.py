"""Search: the best plans of a scenario among all that its GPUs allow, proved where the budget allows it.

`search(table, gpus=64)` is `runcast search` as a function: pure data, nothing printed or written.
"""

from .found import Amounts, Found, Measured, Row
from .run import search, search_file
from .space import Axis, Rule, Space
from .wanted import Wanted, read_wanted, share

__all__ = [
    "Amounts", "Axis", "Found", "Measured", "Row", "Rule", "Space", "Wanted", "read_wanted", "search",
    "search_file", "share",
]  # fmt: skip
