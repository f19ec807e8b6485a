"""Parameters of software stacks and devices, fitted to the ledger of training steps.

What is free is how much longer than its profile says a phase takes with some software (`time_factor.<phase>`), host
work per layer, how fast a device's GEMMs are in training, and what a kind of network adds to an exchange. A stack rests
on another one: its factor is its base's times its own, and each has a prior, ln(factor / stated) ~ N(0, spread). So a
stack with few rows stays near its base, one without rows is its base, and leaving a stack out needs no rule of its own.
A base has factors of its own where rows of two others move them, or its own do: what rows of one stack say is said of
that stack. Devices rest on each other as their profiles do, in the same way.

The fit minimises sum w (ln(predicted / measured) / SIGMA)^2 + sum (u / spread)^2 with weights w of Student's t and of
the source, so that large sources do not drown small ones; u >= 0 for rates of which `is_no_slower` holds. A step is the
sum of its critical path, so between two simulations of all rows it is taken as sum_phase seconds x factor: exact to
first order for factors of phases. Rates of GEMMs, `layer.tp_s`, `exchange.s`, `network.message_s` and factors of
exchanges, which cannot shorten what their wires take, move a part of phases: how large that is, a simulation with a
small change of each says (`weigh`), before the first pass and again half-way: a slope at the start says little of where
a rate ends up far from it. What is wrong with slopes the next simulation corrects: exchanges behind kernels slow these,
a far pipeline's host waits for exchanges too, and at the coarser level the host's seconds are only those that it takes
longer than its device. Rows that are left out are simulated with what the others gave.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...simulator.answers.validate.steps import StepCase
from ...simulator.base.arrays import Floats
from ...simulator.costs import PHASES
from ...simulator.hardware import device
from ...simulator.systems.train_step.flash_attention import FLASH1, FLASH2
from ...simulator.systems.train_step.terms import (
    BLOCKED,
    CLOCK,
    EXCHANGE,
    FAR,
    GROUPED,
    MESSAGE,
    RATE,
    STEP,
    fit_terms,
)
from ...simulator.uncertainty import kin_of
from .ledger import deviations, least_squares, student_weights
from .owners import DEVICE, OWNERS, SOFTWARE, owner_of

Bools = NDArray[np.bool_]
RowTerm = tuple[int, int, int, float]
"""(row, phase, parameter, power): a row's seconds of a phase go with this power of a parameter."""

SIGMA = 0.05
SOURCE_POWER = -0.35
"""Of the number of rows of a source, its rows' weight."""

_OF_EXCHANGES = (EXCHANGE, FAR, *(f"time_factor.{phase}" for phase in ("tp", "cp", "ep", "dp", "fsdp", "pipeline")))

SPREADS = {
    "gemm": 0.07, "attention": 0.2, "experts": 0.2, "memory": 0.2, "loss": 0.25, "optimizer": 0.35, "tp": 0.2,
    "cp": 0.25, "ep": 0.25, "dp": 0.3, "fsdp": 0.3, "pipeline": 0.25, "host": 0.6,
    BLOCKED: 0.6, FAR: 0.4, EXCHANGE: 0.6, MESSAGE: 0.35, STEP: 0.35, GROUPED: 0.05, FLASH2: 0.05, FLASH1: 0.05,
}  # fmt: skip
"""How far software is from its base, by phase or parameter: of three floors, 1.7 times as far from what is stated.

A device's rate of experts' GEMMs is near that of dense ones: it and software's factor of experts make one product, and
what all rows have in common is software's. So it is with FlashAttention's kernels, which were measured apart.
"""

OTHER_SPREAD = 0.15
"""How far a device of another generation is from the one that it rests on, and an architecture from its parts."""

SMALL = 0.02
"""Change of ln(parameter) that shows what it moves."""

_MOVES = 0.01
"""The least slope with which a row counts as one that a parameter moves."""


class Free(NamedTuple):
    """A free parameter: of which stack, profile, network or architecture."""

    of: str
    name: str


@dataclass(frozen=True, eq=False)
class Rows:
    """What all rows gave in one simulation with parameters `u`: seconds by row and phase of the critical path."""

    u: Floats
    seconds: Floats
    phase_s: Floats


class Design:
    """Which free parameters stand behind which phase of which row."""

    def __init__(self, cases: Sequence[StepCase]):
        self.cases = cases
        self.measured = np.array([case.cells.number("iter_time_s") for case in cases])
        self._index: dict[tuple[str, str], int] = {}
        self.weight = source_weights(cases)
        self._of = {owner: np.array([owner.of_case(case) for case in cases]) for owner in OWNERS}
        terms = [term for row, case in enumerate(cases) for term in self._terms(row, case)]
        self.row, self.phase, self.at = np.array([term[:3] for term in terms], np.int64).T
        self.power = np.array([term[3] for term in terms])  # of parts of a phase, until they are weighed
        self.free = [Free(*key) for key in self._index]
        self.spread = np.array([spread_of(of, name) for of, name in self.free])
        self._lowest = np.array([0.0 if is_no_slower(of, name) else -np.inf for of, name in self.free])
        self._differs = np.array([  # devices without FlashAttention-2 have no factor for it
            name != FLASH2 or DEVICE.base_profile(of).value_or(FLASH2, 1.0) != 1.0 for of, name in self.free
        ])  # fmt: skip
        self._moves = np.ones((len(cases), len(self.free)), bool)  # until a simulation says which rows move what

    def _terms(self, row: int, case: StepCase) -> Iterator[RowTerm]:
        """Those of the row; of 16-bit GEMMs too where its own are of another type, whose share `weigh` tells."""
        names = set()
        for term in fit_terms(case.resolved):
            yield row, term.phase, self._at(term.of, term.name), term.power
            names.add(term.name)
        if RATE not in names:
            for device in DEVICE.chain(case.resolved.profile_name, RATE):
                yield row, PHASES.index("gemm"), self._at(device, RATE), 0.0

    def _at(self, of: str, name: str) -> int:
        return self._index.setdefault((of, name), len(self._index))

    def values(self, row: int, u: Floats) -> dict[str, float]:
        """The parameters of a row's profile, stack and network."""
        names = dict.fromkeys(self.free[at].name for at in self.at[self.row == row].tolist())
        names.pop(CLOCK, None)
        return {name: self.value(str(self._of[owner_of(name)][row]), name, u) for name in names}

    def value(self, of: str, name: str, u: Floats) -> float:
        """A parameter as the file of its owner would have it: with all that it rests on."""
        owner = owner_of(name)
        places = self._places(owner.chain(of, name), name)
        if name.startswith(f"{RATE}.") and name not in owner.base_profile(of).parameters and not u[places].any():
            return self.value(of, RATE, u)  # a type of which nothing is known trains as 16-bit GEMMs do
        clocks = self._places(_siblings(of), CLOCK) if name.startswith(RATE) else []
        return owner.base_profile(of).value_or(name, 1.0) * float(np.exp(u[places].sum() + u[clocks].sum()))

    def _places(self, owners: Sequence[str], name: str) -> list[int]:
        return [self._index[of, name] for of in owners if (of, name) in self._index]

    def adds(self, at: int, u: Floats) -> bool:
        """Whether a file must tell a parameter: it moved, or its own file's number hides what moved below it."""
        of, name = self.free[at]
        if name == CLOCK or name.startswith(RATE):
            return name != CLOCK and bool(u[[at, *self._places(_siblings(of), CLOCK)]].any())
        if u[at] or owner_of(name) is not SOFTWARE or name not in SOFTWARE.links(of)[0].own:
            return bool(u[at])
        return self.value(of, name, u) != SOFTWARE.base_profile(of).value(name)

    def predict(self, rows: Rows, u: Floats) -> tuple[Floats, Floats]:
        """Seconds of each row and phase, and by phase, with other parameters than those of the simulation."""
        shift = np.zeros_like(rows.phase_s)
        np.add.at(shift, (self.row, self.phase), self.power * (u - rows.u)[self.at])
        by_phase = rows.phase_s * np.exp(shift)
        return by_phase.sum(axis=1), by_phase

    def partial(self, rows: Rows) -> dict[str, list[int]]:
        """Parameters that move a part of a phase, and the rows where those phases take time."""
        every = dict.fromkeys(free.name for free in self.free)
        names = [name for name in every if name in (BLOCKED, MESSAGE, STEP, *_OF_EXCHANGES) or "training_rate" in name]
        share = {name: self._share(name, rows) for name in names}
        return {name: np.flatnonzero(share[name] > _MOVES).tolist() for name in names}

    def weigh(self, name: str, rows: Rows, seconds: Mapping[int, float]) -> None:
        """Take the powers of a parameter from the seconds of rows where it alone is e**SMALL times as large."""
        mine, share = self._terms_of(name), self._share(name, rows)
        for row, changed in seconds.items():
            self.power[mine & (self.row == row)] = np.log(changed / rows.seconds[row]) / SMALL / share[row]

    def _terms_of(self, name: str) -> Bools:
        return np.array([free.name == name for free in self.free])[self.at]

    def _share(self, name: str, rows: Rows) -> Floats:
        """The share of each row's seconds in the phases that a parameter moves."""
        terms, moved = self._terms_of(name), np.zeros(rows.phase_s.shape, bool)
        moved[self.row[terms], self.phase[terms]] = True
        share: Floats = (rows.phase_s * moved).sum(axis=1) / rows.seconds
        return share

    def watch(self, rows: Rows) -> None:
        """Take from a simulation which rows each parameter moves: what is free rests on that."""
        self._moves = np.abs(self.slopes(rows, rows.u)) > _MOVES

    def tell_about(self, kept: Bools) -> Bools:
        """Which parameters these rows tell about: what a row of its own moves, or rows of two that rest on it."""
        owners = np.array([OWNERS.index(owner_of(name)) for _, name in self.free])
        of = np.array([of for of, _ in self.free])
        found = np.zeros(len(self.free), bool)
        for place, owner in enumerate(OWNERS):
            mine, names = owners == place, self._of[owner]
            there = list(dict.fromkeys(names[kept].tolist()))
            moved = np.array([self._moves[kept & (names == name)].any(axis=0) for name in there], bool)
            moved = moved.reshape(len(there), len(of))  # where no row is kept, too
            own = moved & (np.array(there, of.dtype)[:, None] == of)
            found |= mine & ((moved.sum(axis=0) > 1) | own.any(axis=0))
        return found & self._differs

    def solve(self, rows: Rows, kept: Bools, start: Floats) -> Floats:
        """The parameters that fit the rows that are kept; what those do not tell about is as stated."""
        known = self.tell_about(kept)
        u = np.where(known, start, 0.0)
        for _ in range(20):
            error, slopes, weight = self._linear(rows, u)
            target = least_squares(error, slopes * known, weight * kept, u, self.spread, self._lowest)
            change = np.where(known, target, 0.0) - u
            u = u + np.clip(change, -0.5, 0.5)
            if np.abs(change).max() < 1e-3:
                break
        return u

    def effects(self, rows: Rows) -> list[tuple[int, float, float]]:
        """For each parameter: (rows that it moves, its standard deviation, the median error of those rows)."""
        error, slopes, weight = self._linear(rows, rows.u)
        slopes = slopes * self.tell_about(np.ones(len(error), bool))
        deviation = deviations(slopes, weight, self.spread)
        size, mine = np.abs(np.expm1(error)), np.abs(slopes) > _MOVES
        median = [float(np.median(size[rows])) if rows.any() else 0.0 for rows in mine.T]
        return list(zip(mine.sum(axis=0).tolist(), deviation.tolist(), median, strict=True))

    def slopes(self, rows: Rows, u: Floats) -> Floats:
        """Derivatives of ln(seconds) by each parameter, shape [rows, parameters]."""
        seconds, by_phase = self.predict(rows, u)
        found = np.zeros((len(seconds), len(self.free)))
        np.add.at(found, (self.row, self.at), self.power * (by_phase / seconds[:, None])[self.row, self.phase])
        return found

    def _linear(self, rows: Rows, u: Floats) -> tuple[Floats, Floats, Floats]:
        """Log error of each row, its slope by each parameter, and the weight of the row."""
        error = np.log(self.predict(rows, u)[0] / self.measured)
        return error, self.slopes(rows, u), student_weights(error, SIGMA, self.weight)


def source_weights(cases: Sequence[StepCase], power: float = SOURCE_POWER) -> Floats:
    """The weight of each row: a power of the number of rows of its source, 1 for the median."""
    sources = [case.cells.text("source") for case in cases]
    many = np.array([sources.count(source) for source in sources], np.float64)
    return np.asarray((many / np.median(many)) ** power, np.float64)


def spread_of(of: str, name: str) -> float:
    """How far a parameter of a stack, device, network or architecture is from what it rests on.

    Siblings of a device are no farther from it than its models are when they are carried over (`wider`).
    """
    name = kin_of(name)
    spread = SPREADS.get(name, SPREADS.get(name.removeprefix("time_factor.")))
    if spread is not None:
        return spread
    wider = DEVICE.base_profile(of).about.get("wider", OTHER_SPREAD) if owner_of(name) is DEVICE else OTHER_SPREAD
    return min(float(wider), OTHER_SPREAD)


def is_no_slower(of: str, name: str) -> bool:
    """Whether a parameter is the rate of dense GEMMs of a sibling that draws no less power than its base, at its peak.

    The few rows of B300 would make its GEMMs slower than those of B200, although both have the same multiprocessors.
    """
    types = {CLOCK: ("bf16", "fp8"), RATE: ("bf16",), f"{RATE}.fp8": ("fp8",), f"{RATE}.fp4": ("fp4",)}.get(name, ())
    links = DEVICE.links(of)[:2] if types else ()
    if len(links) < 2 or not (links[0].sibling and links[0].shipped):
        return False
    own, base = (device(DEVICE.base_profile(link.of).devices[0]) for link in links)
    peaks = [(own.peak_flop_per_s.get(dtype), base.peak_flop_per_s.get(dtype)) for dtype in types]
    no_less_power = (own.power_w or 0.0) >= (base.power_w or np.inf)
    return no_less_power and all(one is not None and one == other for one, other in peaks)


def _siblings(of: str) -> list[str]:
    """The devices in a device's chain that are of the same generation as their base."""
    return [link.of for link in DEVICE.links(of) if link.sibling]
