"""The text form of a Program: a line per place, lane, buffer, pool, op and lane order; it reads back to an equal value.

    runcast program 1
    place "r0" 0
    lane 0 "h2d"
    buffer "h2d" 0 4096 device
    op h2d "h2d b0" bytes=4096 writes=0:0:4096 bucket=0
    order 0: 0

Places, lanes, buffers, pools and ops are numbered from 0 in the order of their lines; names are JSON strings; ranks are
written as ranges (`0-3,7`); a byte range is buffer:offset:bytes; keys that an op does not use are left out, and a key
that is none of the columns is a tag.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from ..errors import UserError
from .builder import ProgramBuilder
from .check import faults
from .program import COLUMNS, Program

_HEADER = "runcast program 1"
_TOKEN = re.compile(r'[^\s"]*"(?:[^"\\]|\\.)*"|\S+')
_LIST_KEYS = ("shape", "after", "acquires", "releases")
_MOST_RANKS = 10_000_000  # a world beyond any, so that a slip of the pen does not fill the memory
_WORDS = ("place", "lane", "buffer", "pool", "op", "order")


def to_text(program: Program) -> str:
    """The Program as text; `from_text` inverts it."""
    return "\n".join([_HEADER, *_declarations(program), *_ops(program), *_orders(program)]) + "\n"


def from_text(text: str, where: str = "program") -> Program:
    """Read a Program back.

    Raises:
        UserError: a line that does not parse or an index that points nowhere, with its line number.
    """
    lines = text.splitlines()
    if not lines or lines[0].strip() != _HEADER:
        raise UserError(f"{where}: line 1: expected {_HEADER!r}")
    reader = _Reader()
    for number, line in enumerate(lines[1:], start=2):
        try:
            reader.line(line)
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise UserError(f"{where}: line {number}: cannot read {line[:80]!r}: {error}") from error
    program = reader.build()
    if found := faults(program):
        raise UserError(*(f"{where}: {line}" for line in found))
    return program


def _declarations(program: Program) -> Iterator[str]:
    for place in program.places:
        yield f"place {json.dumps(place.name)} {_ranges(place.ranks)}"
    for lane in program.lanes:
        yield f"lane {lane.place} {json.dumps(lane.name)}"
    for buffer in program.buffers:
        yield f"buffer {json.dumps(buffer.name)} {buffer.place} {buffer.bytes} {buffer.memory}"
    for pool in program.pools:
        yield f"pool {json.dumps(pool.name)} {pool.place} {pool.slots}"


def _ops(program: Program) -> Iterator[str]:
    for op in range(len(program)):
        fields = " ".join(f"{key}={value}" for key, value in _fields(program, op) if value != "")
        yield f"op {json.dumps(program.kind_of(op))} {json.dumps(program.names[op])} {fields}".rstrip()


def _fields(program: Program, op: int) -> Iterator[tuple[str, str]]:
    accesses = [program.access_table[i] for i in program.accesses[op]]
    dtype = program.dtypes[program.dtype[op]]
    yield "bytes", str(program.bytes[op]) if program.bytes[op] else ""
    yield "shape", _join(program.shape[op])
    yield "dtype", json.dumps(dtype) if dtype else ""
    yield "group", _ranges(program.groups[program.group[op]])
    yield "root", str(program.root[op]) if program.root[op] != -1 else ""
    yield "after", _join(program.deps[op])
    yield "reads", ",".join(f"{a.buffer}:{a.offset}:{a.bytes}" for a in accesses if not a.write)
    yield "writes", ",".join(f"{a.buffer}:{a.offset}:{a.bytes}" for a in accesses if a.write)
    yield "acquires", _join(program.acquires[op])
    yield "releases", _join(program.releases[op])
    for tag, values in program.tags.items():
        yield tag, str(values[op]) if values[op] != -1 else ""


def _orders(program: Program) -> Iterator[str]:
    for lane, ops in enumerate(program.order):
        yield f"order {lane}: {' '.join(map(str, ops))}".rstrip()


def _join(values: Iterable[int]) -> str:
    return ",".join(str(value) for value in values)


def _ranges(ranks: Sequence[int]) -> str:
    """Runs of consecutive ranks: (0, 1, 2, 7) is `0-2,7`."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), key=lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


class _Reader:
    """Builds a Program from its lines."""

    def __init__(self) -> None:
        self.builder = ProgramBuilder()
        self.ops: list[dict[str, str]] = []
        self.orders: dict[int, list[int]] = {}
        self.lanes = 0

    def line(self, line: str) -> None:
        word, *rest = _TOKEN.findall(line) or [""]
        if word and word not in _WORDS:
            raise ValueError(f"unknown line {word!r}; known: {', '.join(_WORDS)}")
        if word:
            getattr(self, f"_{word}")(*rest)

    def build(self) -> Program:
        lanes_of: dict[int, list[int]] = {}
        for lane, ops in self.orders.items():
            for op in ops:
                lanes_of.setdefault(op, []).append(lane)
        for op, fields in enumerate(self.ops):
            self.builder.op(lanes=lanes_of.get(op, ()), **_arguments(fields))
        return self.builder.build_with_order([self.orders.get(lane, []) for lane in range(self.lanes)])

    def _place(self, name: str, ranks: str = "") -> None:
        self.builder.place(_string(name), _ranks(ranks))

    def _lane(self, place: str, name: str) -> None:
        if self.builder.lane(_number(place), _string(name)) != self.lanes:
            raise ValueError("this lane stands here twice")
        self.lanes += 1

    def _buffer(self, name: str, place: str, size_bytes: str, memory: str) -> None:
        self.builder.buffer(_string(name), _number(place), _number(size_bytes), memory)

    def _pool(self, name: str, place: str, slots: str) -> None:
        self.builder.pool(_string(name), _number(place), _number(slots))

    def _op(self, kind: str, name: str, *fields: str) -> None:
        texts = {"kind": kind, "name": name}
        for key, value in (field.split("=", 1) for field in fields):
            if key in texts:
                raise ValueError(f"{key} stands here twice")
            texts[key] = value
        _arguments(texts)
        self.ops.append(texts)

    def _order(self, lane: str, *ops: str) -> None:
        number = _number(lane.rstrip(":"))
        if not 0 <= number < self.lanes or number in self.orders:
            raise ValueError("no such lane, or its order stands here twice")
        self.orders[number] = [_number(op) for op in ops]


def _arguments(fields: dict[str, str]) -> dict[str, Any]:
    """Keyword arguments of `ProgramBuilder.op` from the text fields of one op line."""
    values = {key: _value(key, text) for key, text in fields.items()}
    columns = {("size_bytes" if key == "bytes" else key): values[key] for key in values if key in COLUMNS}
    return columns | {"tags": {key: values[key] for key in values if key not in COLUMNS}}


def _value(key: str, text: str) -> Any:
    if key in ("kind", "name", "dtype"):
        return _string(text)
    if key in _LIST_KEYS:
        return [_number(item) for item in text.split(",")]
    if key in ("reads", "writes"):
        return [_byte_range(item) for item in text.split(",")]
    return _ranks(text) if key == "group" else _number(text)


def _string(text: str) -> str:
    value = json.loads(text)
    if not isinstance(value, str):
        raise ValueError(f"expected a string in quotes, not {text}")
    return value


def _number(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{text} does not fit in 64 bits")
    return value


def _byte_range(text: str) -> tuple[int, int, int]:
    buffer, offset, size_bytes = (_number(number) for number in text.split(":"))
    return buffer, offset, size_bytes


def _ranks(text: str) -> tuple[int, ...]:
    """Inverts `_ranges`."""
    ranks: list[int] = []
    for run in text.split(",") if text else []:
        first, _, last = run.partition("-")
        run_ = range(_number(first), _number(last or first) + 1)
        if len(ranks) + len(run_) > _MOST_RANKS:
            raise ValueError(f"more than {_MOST_RANKS} ranks")
        ranks.extend(run_)
    return tuple(ranks)
