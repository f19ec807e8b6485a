"""Programs: what happens, as plain data. Build one, check it, join several; nothing here knows time."""

from .builder import ProgramBuilder
from .check import validate
from .join import Copy, add_copies, join
from .program import Access, Buffer, Lane, Place, Pool, Program, edges, may_overlap
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
