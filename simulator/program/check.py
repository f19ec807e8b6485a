"""What makes a Program well formed: every index points somewhere, every byte range lies in its buffer.

Deadlocks are not looked for here: the engine finds them when it runs, with the cycle.
"""

from collections.abc import Iterator

from .program import COLUMNS, MEMORIES, Buffer, Lane, Pool, Program
from .ragged import Ragged


def validate(program: Program) -> Program:
    """Return the Program if it is well formed.

    Raises:
        ValueError: one line per fault.
    """
    if found := faults(program):
        raise ValueError("\n".join(found))
    return program


def faults(program: Program) -> list[str]:
    """One line per fault; empty if the Program is well formed."""
    pointing = list(_dangling(program))
    return pointing or [*_sizes(program), *_lanes(program), *_accesses(program)]


def _dangling(program: Program) -> Iterator[str]:
    columns: tuple[tuple[str, Ragged, int], ...] = (
        ("after", program.deps, len(program)),
        ("order", program.order, len(program)),
        ("acquires", program.acquires, len(program.pools)),
        ("releases", program.releases, len(program.pools)),
    )
    for name, column, count in columns:
        for value in column.values[(column.values < 0) | (column.values >= count)]:
            yield f"{name} names {value}, but there are {count}"
    declared: tuple[Lane | Buffer | Pool, ...] = (*program.lanes, *program.buffers, *program.pools)
    for item in declared:
        if not 0 <= item.place < len(program.places):
            yield f"{item.name} is at place {item.place}, but there are {len(program.places)}"
    for access in program.access_table:
        if not 0 <= access.buffer < len(program.buffers):
            yield f"an op accesses buffer {access.buffer}, but there are {len(program.buffers)}"


def _sizes(program: Program) -> Iterator[str]:
    for op in (program.bytes < 0).nonzero()[0]:
        yield f"op {program.names[op]!r} has {program.bytes[op]} bytes"
    for buffer in program.buffers:
        if buffer.bytes < 0:
            yield f"buffer {buffer.name!r} has {buffer.bytes} bytes"
        if buffer.memory not in MEMORIES:
            yield f"buffer {buffer.name!r} lies in {buffer.memory!r}; known: {', '.join(MEMORIES)}"
    for tag in program.tags:
        if not tag.isidentifier() or tag in COLUMNS:
            yield f"tag {tag!r}: expected a word that names no column"
    for pool in program.pools:
        if pool.slots < 0:
            yield f"pool {pool.name!r} has {pool.slots} slots"


def _lanes(program: Program) -> Iterator[str]:
    for op in range(len(program)):
        lanes = program.lanes_of[op].tolist()
        if not lanes:
            yield f"op {program.names[op]!r} runs on no lane"
        if len(set(lanes)) < len(lanes):
            yield f"op {program.names[op]!r} stands twice on one lane"


def _accesses(program: Program) -> Iterator[str]:
    for access in program.access_table:
        buffer = program.buffers[access.buffer]
        if access.offset < 0 or access.bytes < 0 or access.offset + access.bytes > buffer.bytes:
            yield f"bytes {access.offset}+{access.bytes} lie outside buffer {buffer.name!r} of {buffer.bytes} bytes"
