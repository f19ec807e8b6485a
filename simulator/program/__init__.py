"""Programs: what happens, as plain data. Build one, check it, join several; nothing here knows time."""

from .builder import ProgramBuilder
from .check import validate
from .copies import Copy, add_copies
from .join import join
from .precedence import edges, may_overlap
from .program import Access, Buffer, Lane, Place, Pool, Program
from .ragged import Ragged, group_equal

__all__ = [
    "Access",
    "Buffer",
    "Copy",
    "Lane",
    "Place",
    "Pool",
    "Program",
    "ProgramBuilder",
    "Ragged",
    "add_copies",
    "edges",
    "group_equal",
    "join",
    "may_overlap",
    "validate",
]  # fmt: skip
