"""Programs: what happens, as plain data. Build one, check it, print it and read it back; nothing here knows time."""

from .builder import ProgramBuilder
from .check import validate
from .copies import Copy, with_copies
from .join import join
from .program import Access, Buffer, Lane, Place, Pool, Program
from .ragged import Ragged
from .text import from_text, to_text

__all__ = [
    "Access", "Buffer", "Copy", "Lane", "Place", "Pool", "Program", "ProgramBuilder", "Ragged", "from_text", "join",
    "to_text", "validate", "with_copies",
]  # fmt: skip
