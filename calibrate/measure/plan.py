"""Which cases a run measures, how often, in which order, and how long that takes: pure functions of facts and options.

All ranks compute the same plan, so that a visit can be named by its position.
"""

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .case import Case, Facts
from .records import matches

_CALLS = 8  # of the act in a visit, at the least: warm-up and repeats
_FIXED_S = 0.02  # of a visit: allocation, agreement among ranks
_LONGEST_CALL_S, _LONGEST_WIRE_S, _LONGEST_QUICK_S = 1.0, 5.0, 0.1
"""What takes longer is left out: kernels and copies; messages between ranks, 1 GiB say; anything where it is quick."""

_RATES = {
    "cuda": {"flop": 3e14, "memory": 1e12, "host": 2e10, "wire": 3e10},
    "cpu": {"flop": 3e10, "memory": 2e9, "host": 2e9, "wire": 3e8},
}
"""FLOP/s, and bytes/s of device memory, of the way to the host and of a collective; rough, for estimates only."""

CALL_S, WIRE_CALL_S = {"cuda": 1e-5, "cpu": 3e-5}, {"cuda": 3e-5, "cpu": 5e-4}
"""Seconds of one small operation, and of one small collective; rough too."""


@dataclass(frozen=True)
class Options:
    """What the user asked for; times in seconds. `only` are patterns such as `gemm` or `collectives/all_*`."""

    only: tuple[str, ...] = ()
    quick: bool = False
    budget_s: float = 0.04
    rounds: int = 2
    seed: int = 0
    timeout_s: float = 120.0
    limit_s: float = 0.0


@dataclass(frozen=True)
class Visit:
    """A case, the how-many-th time it is measured, how long that is expected to take, and how long a call may take."""

    case: Case
    round: int
    expected_s: float
    longest_s: float


@dataclass(frozen=True)
class Plan:
    """All visits in order, and how many cases are left out for which reason."""

    visits: tuple[Visit, ...]
    left_out: Mapping[str, int]

    @property
    def expected_s(self) -> float:
        """Seconds of all visits together."""
        return sum(visit.expected_s for visit in self.visits)


def plan(facts: Facts, options: Options, cases: Iterable[Case]) -> Plan:
    """The visits of a run, of all cases that there are.

    Raises:
        ValueError: a pattern names no case, or two cases have one name; one line.
    """
    every = list(cases)
    _check_patterns(options.only, every)
    twice = [key for key, count in Counter(case.key for case in every).items() if count > 1]
    if twice:  # a file of records tells cases apart by their keys
        raise ValueError(f"two cases are called {twice[0]!r}: expected another name or other params")
    if options.quick:
        every = [case for case in every if case.quick]
        _check_patterns(options.only, every, " of --quick")
    chosen = [case for case in every if not options.only or any(matches(case.key, p) for p in options.only)]
    reasons = [_unfit(case, facts, options) for case in chosen]
    fit = [case for case, reason in zip(chosen, reasons, strict=True) if not reason]
    return Plan(_visits(fit, facts, options), Counter(reason for reason in reasons if reason))


def _check_patterns(patterns: Sequence[str], cases: Sequence[Case], of: str = "") -> None:
    for pattern in patterns:
        if not any(matches(case.key, pattern) for case in cases):
            known = ", ".join(sorted({case.family for case in cases}))
            alone = "" if len({case.team for case in cases}) > 1 else "; collectives and messages need several ranks"
            raise ValueError(f"--only = {pattern!r}: names no case{of}; families here: {known}{alone}")


def _unfit(case: Case, facts: Facts, options: Options) -> str:
    """Why this case is not for this machine; empty if it is."""
    longest = longest_call_s(case, options)
    if call_s(case, facts) > longest:
        return f"one call is expected to take more than {longest:g} s"
    if case.footprint_bytes > facts.memory_bytes:
        return f"needs more than the {facts.memory_bytes / 2**30:.3g} GiB of memory that a rank may use"
    return ""


def longest_call_s(case: Case, options: Options) -> float:
    """Seconds of a call, above which a case is left out."""
    if case.lasts_s:
        return math.inf
    return _LONGEST_QUICK_S if options.quick else _LONGEST_WIRE_S if len(case.team) > 1 else _LONGEST_CALL_S


def call_s(case: Case, facts: Facts) -> float:
    """About how long one act takes, in seconds."""
    rates, each = _RATES[facts.kind], (WIRE_CALL_S if len(case.team) > 1 else CALL_S)[facts.kind]
    return case.flop / rates["flop"] + case.bytes / rates[case.over] + case.calls * each


def _visits(cases: Sequence[Case], facts: Facts, options: Options) -> tuple[Visit, ...]:
    """Every round in an order of its own, so that drifts of the machine spread over all cases.

    A visit writes its memory once; then it takes the budget, or a few calls if they take longer.
    """
    visits = []
    for visit_round in range(options.rounds):
        order = list(cases)
        random.Random(f"{options.seed}/{visit_round}").shuffle(order)
        for case in order:
            fill_s = case.footprint_bytes / _RATES[facts.kind]["memory"] + _FIXED_S
            work_s = case.lasts_s or max(1.25 * options.budget_s, _CALLS * call_s(case, facts))
            visits.append(Visit(case, visit_round, fill_s + work_s, longest_call_s(case, options)))
    return tuple(visits)
