"""What all importers share: clean lines, numbers as tools print them, what a user says of a log because it does not say
it, and what has been found in it so far.

Lines come without what launchers, terminals and collectors of logs put around what the tool wrote. A number is a value
and the step of its last digit, so that rounding is no contradiction.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from ...simulator.base.errors import Fault, UserError, fault, unknown
from ...simulator.base.units import parse
from ...simulator.formats.lines import clean_line
from ...simulator.formats.samples import Samples, sound_samples
from ...simulator.hardware import device


class Line(NamedTuple):
    """One line, counted from 1 as an editor does."""

    number: int
    text: str


def clean_lines(text: str) -> list[Line]:
    """All lines of a log, with the numbers that they have in the file."""
    return [Line(number, clean_line(line)) for number, line in enumerate(text.split("\n"), start=1)]


_NUMBER = re.compile(r"[-+]?\d{1,30}(?:\.(\d{0,30}))?(?:[eE]([-+]?\d{1,2}))?")

_MOST = 1e30
"""Above this nothing is a size, a time or a rate."""

JSON_STEP = 1e-6
"""Step of a number that was written with `%lf`, as nccl-tests writes its JSON."""


class Printed(NamedTuple):
    """A number of a log; the true one lies within a step of it."""

    value: float
    step: float

    @property
    def low(self) -> float:
        """The least that it can stand for, not below zero."""
        return max(self.value - self.step, 0.0)

    @property
    def high(self) -> float:
        """The most that it can stand for."""
        return self.value + self.step


def parse_number(token: str) -> Printed | None:
    """`12.30` is 12.3 with a step of 0.01, `1.2e+06` has one of 1e5; None for `N/A`, `nan` and what is no number."""
    match = _NUMBER.fullmatch(token.strip())
    if match is None:
        return None
    return Printed(float(token), 10.0 ** (int(match[2] or 0) - len(match[1] or "")))


def from_json(value: object) -> Printed | None:
    """A number of a JSON file, whether it stands there as a number or as text."""
    if isinstance(value, str):
        return parse_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST:  # NaN is not less
        return None
    return Printed(float(value), JSON_STEP)


def table(value: object) -> Mapping[str, Any]:
    """The table that a JSON value is, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def version_text(code: int) -> str:
    """`2.31.2` for 23102, `2.7.8` for 2708.

    nccl.h: NCCL_VERSION(X,Y,Z) is X*1000 + Y*100 + Z up to 2.8 and X*10000 + Y*100 + Z from 2.9 on; RCCL's is the same.
    """
    thousands = 10_000 if code >= 10_000 else 1_000
    major, rest = divmod(code, thousands)
    return f"{major}.{rest // 100}.{rest % 100}"


OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send_recv",
    "send_recv": "send_recv",
}
"""Cost classes by the names of the tests of nccl-tests, without `_perf`, and by their own."""

_NETWORK = re.compile(r"\s*(?:(\d+)\s*[xX×]\s*)?(.+)")
_EXAMPLE = 'expected a rate per node such as "8 x 400 Gb/s" or "3.2 Tb/s"'


@dataclass(frozen=True)
class Network:
    """The NICs of a node: their line rate together, and that of one where the user says how many there are; bytes/s."""

    node_bytes_per_s: float
    nic_bytes_per_s: float | None

    def used_bytes_per_s(self, ranks: int, gpus: int) -> float:
        """What so many ranks of a node can use of its NICs: a GPU those beside it, as predictions have it.

        All of a node's where the user does not say how many there are.
        """
        if self.nic_bytes_per_s is None:
            return self.node_bytes_per_s
        nics = round(self.node_bytes_per_s / self.nic_bytes_per_s)
        return self.nic_bytes_per_s * min(nics, ranks * max(nics // gpus, 1))

    @classmethod
    def parse(cls, text: str) -> "Network":
        """`8 x 400 Gb/s` is eight NICs, `3.2 Tb/s` all that a node has; a UserError if it is no such text."""
        match = _NETWORK.fullmatch(text)
        try:
            rate = parse(match[2], "bytes_per_s") if match else 0.0
        except (ValueError, OverflowError):
            rate = 0.0
        count = int(match[1]) if match and match[1] else None
        if not 1e7 <= rate <= 1e15 or count == 0 or (count or 0) > 1024:
            raise UserError(fault("--network", "", text, _EXAMPLE))
        return cls(rate * (count or 1), rate if count else None)


@dataclass(frozen=True)
class Options:
    """Flags of `runcast calibrate import`; what is None is taken from the log.

    `gpus`, `nodes` and `op` are those of tables that do not say them. `column` is which of the two times of nccl-tests
    is used, `buffer_bytes` the size of a copy of nvbandwidth, `algorithm` the NCCL_ALGO that was forced.
    """

    device: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    op: str | None = None
    network: Network | None = None
    library: str | None = None
    column: str = "out-of-place"
    buffer_bytes: float | None = None
    algorithm: str | None = None

    def __post_init__(self) -> None:
        for flag, value in (("--gpus", self.gpus), ("--nodes", self.nodes)):
            if value is not None and value < 1:
                raise UserError(fault(flag, "", value, "expected a whole number greater than zero"))
        if self.gpus and self.nodes and self.nodes > self.gpus:
            raise UserError(fault("--nodes", "", self.nodes, f"expected at most --gpus = {self.gpus}"))
        if self.op is not None and self.op not in OPS:
            raise unknown("--op", "", self.op, OPS)
        if self.algorithm is not None and not re.fullmatch(r"[\w^:;,]+", self.algorithm):
            raise UserError(fault("--algorithm", "", self.algorithm, "expected what NCCL_ALGO was, as Ring"))
        if self.device is not None:
            device(self.device, "--device")


Place = int | str
"""A line of a text, or the path of a value in a JSON file."""

_Said = TypeVar("_Said", int, str)


@dataclass
class Found:
    """Samples of one file, and why the other rows are none; `options` are what the user says of it.

    `faults` are those of its tables, `used` the flags that a table needed, `denied` where tables contradict a flag.
    `spread` has the ranks that --nodes spreads over nodes, with the first table of so many.
    """

    file: str
    options: Options
    rows: list[dict[str, object]] = field(default_factory=list)
    left: dict[str, list[Place]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    denied: dict[str, list[tuple[Place, Fault]]] = field(default_factory=dict)
    spread: dict[int, Place] = field(default_factory=dict)

    def add_table(self, add_to: Callable[["Found"], None]) -> None:
        """Let a table add its samples; what is wrong with it is raised with the faults of all other tables."""
        try:
            add_to(self)
        except UserError as error:
            self.faults += error.faults

    def settle(self, place: Place, flag: str, asked: _Said | None, said: _Said | None) -> _Said | None:
        """What the table at a place says, else what the user says in a flag.

        A flag that contradicts a table is a fault, unless another table of the file needs it.
        """
        if said is None:
            self.used |= {flag} if asked is not None else set()
            return asked
        if asked not in (None, said):
            line = fault(f"{self.file}:{place}", flag, asked, f"this table says {said}")
            self.denied.setdefault(flag, []).append((place, line))
        return said

    def add(self, place: Place, cost_class: str, seconds: float, device: str, library: str, group: str,
            features: dict[str, float], algorithm: str = "") -> None:  # fmt: skip
        """One sample; `seconds` of one call, by an `algorithm` that was forced."""
        keys = {"cost_class": cost_class, "device": device, "library": library, "group": group, "seconds": seconds}
        forced = {"algorithm": algorithm} if algorithm else {}
        self.rows.append({**keys, "source": f"{self.file}:{place}", **forced, **features})

    def device(self, names: Collection[str], place: Place | None = None) -> str:
        """The catalogue's name of the GPU: of --device, else of a log's names, such as `NVIDIA H100 80GB HBM3`.

        A UserError, with the place of the table if it is known, where neither names one GPU of the catalogue.
        """
        where = self.file if place is None else f"{self.file}:{place}"
        if self.options.device is not None:
            return device(self.options.device, "--device").name
        if not names:
            raise UserError(f"{where}: does not name the GPU; give --device")
        found = {self._catalogue_name(name, where) for name in names}
        if len(found) > 1:
            raise UserError(f"{where}: holds several kinds of GPUs, {' and '.join(sorted(found))}; give --device")
        return found.pop()

    @staticmethod
    def _catalogue_name(name: str, where: str) -> str:
        short = re.sub(r"^(NVIDIA|Tesla)\s+", "", re.sub(r"\s*\([0-9A-Fa-f:.]+\)\s*$", "", name).strip())
        try:
            return device(short).name
        except UserError:
            text = f"{short[:60]!r} is not in the catalogue of devices; give --device"
            raise UserError(f"{where}: {text}") from None

    def leave(self, place: Place, reason: str) -> None:
        """One row that is no sample."""
        self.left.setdefault(reason, []).append(place)

    def note(self, text: str) -> None:
        """A line about the whole file, once."""
        if text not in self.notes:
            self.notes.append(text)

    def samples(self) -> Samples:
        """The samples, with one line for each reason of what was left out.

        A UserError if there are none, or with what is wrong with each table.
        """
        denied = [line for flag, lines in self.denied.items() if flag not in self.used for _, line in lines]
        if self.faults or denied:
            raise UserError(*self.faults, *denied)
        for flag, lines in self.denied.items():
            others = places_text([place for place, _ in lines])
            self.note(f"{flag} is for tables that do not say it; others do ({others})")
        if not self.rows and not self.left:
            raise UserError(f"{self.file}: holds no results")
        if not self.rows:
            reason, places = next(iter(self.left.items()))
            count = sum(map(len, self.left.values()))
            none_of = f"; none of {count} rows can be used" if count > 1 else ""
            raise UserError(f"{self.file}:{places[0]}: {reason}{none_of}")
        dropped = [f"{self.file}: {len(places)} left out: {reason} ({places_text(places)})"
                   for reason, places in self.left.items()]  # fmt: skip
        return sound_samples(pd.DataFrame(self.rows), self.file, [*dropped, *(f"{self.file}: {n}" for n in self.notes)])


def places_text(places: list[Place]) -> str:
    """`line 3, 7`, or `at results[1]`; five places at most."""
    word = "line" if isinstance(places[0], int) else "at"
    return f"{word} {', '.join(map(str, places[:5]))}{', ...' if len(places) > 5 else ''}"
