"""Whether a machine has changed between two runs of the suite: which cases moved further than their own noise explains.

For each case, x is the log of the median in B over that in A, medians over the samples of all rounds.

1. *The noise of a case*, per file: e^2 = ((1.25 w)^2 / n + b^2) / R. w is the scatter of its samples about the median
   of their round, n how many a round has (1.25: standard error of a median over that of a mean); b is what the medians
   of its R rounds scatter besides. Rounds differ by more than repeats within one do, so R counts, however many samples
   there are. Scatter is the 5-95 % range over that of a normal law for as many values. The noise of x is that of both
   files in squares, and at least the median of its family: a case may look quiet by chance.
2. *What all cases share* is the median of x (from 20 cases on): a machine that is slower as a whole is one line.
3. *What runs differ by*: two runs differ by more than the rounds of one (memory layout, temperature). Where the median
   of |x - shared| over its noise is larger than that of a normal law, all noise is scaled up by so much. That works as
   long as most cases have not moved.
4. *A case has moved* if |x - shared| exceeds the floor plus z times its noise. With z a normal law has one false alarm
   in twenty comparisons, however many cases each has (Bonferroni: 4.1 for 1000 cases, 3.0 at least). The floor is 2 %,
   or 5 % where nothing says how rounds or runs differ: a single round in a file, fewer than 20 cases in common.

Simulated with nothing changed (noise of 2 to 18 %: normal, skewed, Student t of 2, or one repeat in ten far out;
rounds that drift by 3 %; 1 to 300 cases of 1 to 3 rounds with 5 to 100 samples), a comparison had 0.05 false alarms at
most, and 0.15 where runs besides differ by 3 % from case to case. Of cases that became 1.5 times slower with noise of
10 %, among 300, 68 % were found from one round of 5 samples, 85 % from two, and all from two rounds of 10.

The criterion is blind to what a run and all its rounds share by accident: a case with two speeds, one picked anew by
every process, moves whenever the pick does.
"""

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist, median, quantiles
from typing import Any

from .records import Record, read_records, record_key
from .show import format_seconds

Rounds = Mapping[Any, Sequence[float]]
"""Logarithms of the samples of one case in one file, by round."""

FALSE_ALARMS = 0.05  # expected cases of a comparison that are called moved though nothing has changed
FLOOR, BLIND_FLOOR = 0.02, 0.05  # relative change below which nothing moved; where rounds or other cases say nothing
MANY = 20  # cases from which on what they share, and how noisy they are together, is read off them
_SAME_FAMILY = 5  # cases from which on a family's noise is its own, not that of all
_NORMAL = NormalDist()
_MEDIAN_OF_NORMAL = _NORMAL.inv_cdf(0.75)
_OF_MEDIANS = math.sqrt(math.pi / 2)
_LISTED = 10  # cases of one file only
_SOFTWARE = ("gpu", "cpu", "driver", "cuda", "torch", "collectives", "nodes", "threads", "suite", "runcast")


@dataclass(frozen=True)
class Change:
    """A case whose ratio of medians, B over A, lies outside `low` to `high`; seconds of one act."""

    case: str
    before_s: float
    after_s: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """Above 1: slower in B."""
        return self.after_s / self.before_s

    @property
    def own_ratio(self) -> float:
        """The case's ratio over the ratio that all cases share."""
        return self.ratio / math.sqrt(self.low * self.high)


@dataclass(frozen=True)
class Drift:
    """What two files differ by; `shared` is the ratio of all cases and `shared_band` what it may be by chance."""

    changes: tuple[Change, ...]
    compared: int
    shared: float
    shared_band: float
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    software: tuple[str, ...]

    @property
    def machine_changed(self) -> bool:
        """Whether the machine as a whole is slower or faster."""
        return abs(math.log(self.shared)) > math.log1p(self.shared_band)


def compare(a: Sequence[Record], b: Sequence[Record]) -> Drift:
    """All that two files differ by; the order of their records does not matter, failed and wrong ones do not count.

    Changes are sorted, the furthest first.
    """
    before, after = _cases(a), _cases(b)
    both = sorted(before.keys() & after.keys())
    few = len(both) < MANY
    x = {case: _middle(after[case]) - _middle(before[case]) for case in both}
    noise = _raise_to_family({case: math.hypot(_noise(before[case]), _noise(after[case])) for case in both})
    blind = {case: few or min(len(before[case]), len(after[case])) < 2 for case in both}
    floor = {case: math.log1p(BLIND_FLOOR if blind[case] else FLOOR) for case in both}
    shared = 0.0 if few else median(x.values())
    far = [abs(x[case] - shared) / noise[case] for case in both if noise[case]]
    wider = max(median(far) / _MEDIAN_OF_NORMAL, 1.0) if len(far) >= MANY else 1.0  # than noise explains, most cases

    z = _NORMAL.inv_cdf(1 - FALSE_ALARMS / (2 * max(len(both), MANY)))
    changes = []
    for case in both:
        half = floor[case] + z * wider * noise[case]
        if abs(x[case] - shared) > half:
            before_s, after_s = (math.exp(_middle(file[case])) * 1e-6 for file in (before, after))
            changes.append(Change(case, before_s, after_s, math.exp(shared - half), math.exp(shared + half)))

    band = FLOOR
    if both:  # the floor and three standard errors: of a median over cases, and of what all cases of a round share
        own = _OF_MEDIANS * wider * median(noise.values()) / math.sqrt(len(both))
        together = [_shared_noise([file[case] for case in both]) for file in (before, after)]
        band = math.expm1(max(floor.values()) + 3 * math.hypot(own, *together))
    return Drift(
        changes=tuple(sorted(changes, key=lambda one: (-abs(math.log(one.own_ratio)), one.case))),
        compared=len(both),
        shared=math.exp(shared),
        shared_band=band,
        only_a=tuple(sorted(before.keys() - after.keys())),
        only_b=tuple(sorted(after.keys() - before.keys())),
        software=_software_changes(a, b),
    )


def _cases(records: Iterable[Record]) -> dict[str, Rounds]:
    """Cases with their rounds; samples that are no times are skipped."""
    cases: dict[str, dict[Any, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record.get("samples") and "error" not in record and not record.get("wrong"):
            times = [math.log(us) for us in record["samples"] if 0 < us < math.inf]
            if times:
                cases[record_key(record)][record.get("round", 0)] += times
    return dict(cases)


def _middle(rounds: Rounds) -> float:
    return median(x for samples in rounds.values() for x in samples)


def _noise(rounds: Rounds) -> float:
    """Standard error of the median over all samples."""
    within = _OF_MEDIANS * _scatter([x - median(samples) for samples in rounds.values() for x in samples])
    medians = _scatter([median(samples) for samples in rounds.values()])
    per_round = sum(map(len, rounds.values())) / len(rounds)
    between = max(medians**2 - within**2 / per_round, 0.0)  # medians of rounds scatter by their samples too
    return math.sqrt((within**2 / per_round + between) / len(rounds))


def _scatter(values: Sequence[float]) -> float:
    """Standard deviation of a normal law with the same 5-95 % range of so many values; 0 for a single one."""
    if len(values) < 2:
        return 0.0
    n = len(values)
    expected = [_NORMAL.inv_cdf((i + 0.625) / (n + 0.25)) for i in range(n)]  # Blom's normal scores
    low, *_, high = quantiles(values, n=20, method="inclusive")
    return (high - low) / (2 * quantiles(expected, n=20, method="inclusive")[-1])


def _raise_to_family(noise: Mapping[str, float]) -> dict[str, float]:
    """The noise of each case, or what is typical of its family where that is more."""
    families = defaultdict(list)
    for case, own in noise.items():
        families[case.partition("/")[0]].append(own)
    typical = {name: median(own if len(own) >= _SAME_FAMILY else noise.values()) for name, own in families.items()}
    return {case: max(own, typical[case.partition("/")[0]]) for case, own in noise.items()}


def _shared_noise(cases: Iterable[Rounds]) -> float:
    """Standard error of what all cases share, from how their rounds differ together."""
    shifts: dict[Any, list[float]] = defaultdict(list)
    for rounds in cases:
        middle = _middle(rounds)
        for number, samples in rounds.items():
            shifts[number].append(median(samples) - middle)
    return _scatter([median(shift) for shift in shifts.values()]) / math.sqrt(max(len(shifts), 1))


def _software_changes(a: Sequence[Record], b: Sequence[Record]) -> tuple[str, ...]:
    """What differs between the machines and their software, as far as both tell."""
    before, after = ({**next((r for r in file if r.get("group") == "environment"), {})} for file in (a, b))
    both = [key for key in _SOFTWARE if key in before and key in after and before[key] != after[key]]
    return tuple(f"{key}: {before[key]} in A, {after[key]} in B" for key in both)


def report(drift: Drift) -> str:
    """What `compare` finds, as text: the machine as a whole first, then the cases that moved, the furthest first."""
    chance = f"within {drift.shared_band:.1%}, which chance explains"
    together = f"B takes {drift.shared:.3f} times as long as A ({'moved' if drift.machine_changed else chance})"
    few = f"fewer than {MANY} cases: too few to tell what they share from what each did"
    moved = f"{len(drift.changes)} of {drift.compared} cases moved beyond that"
    lines = [
        *drift.software,
        f"all cases together: {together}" if drift.compared >= MANY else few,
        f"{moved} (of noise alone: {FALSE_ALARMS:g} per comparison)",
    ]
    if drift.changes:
        lines += ["", "      A          B        B/A  explained    case"]
    for one in drift.changes:
        times = f"{format_seconds(one.before_s):>9}  {format_seconds(one.after_s):>9}"
        lines.append(f"{times}  {one.ratio:7.3f}  {one.low:.2f} to {one.high:.2f}  {one.case}")
    for name, cases in (("A", drift.only_a), ("B", drift.only_b)):
        more = [f"  and {len(cases) - _LISTED} more"] if len(cases) > _LISTED else []
        if cases:
            lines += ["", f"only in {name}: {len(cases)}", *(f"  {case}" for case in cases[:_LISTED]), *more]
    return "\n".join(lines)


def run(arguments: Sequence[str]) -> int:
    """`python -m runcast.calibrate drift A B`: prints what moved; 0 if nothing, 1 if something, 2 for a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m runcast.calibrate drift",
        description="Compare two files of records, case by case. Exit code 1 if a case or the whole machine has moved.",
    )
    parser.add_argument("a", type=Path, metavar="A.jsonl", help="measured before")
    parser.add_argument("b", type=Path, metavar="B.jsonl", help="measured after")
    flags = parser.parse_args(arguments)
    try:
        before, after = read_records(flags.a), read_records(flags.b)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    drift = compare(before, after)
    if not drift.compared:
        print(f"error: {flags.a} and {flags.b} have no measured case in common", file=sys.stderr)
        return 2
    print(report(drift))
    return 1 if drift.changes or drift.machine_changed else 0
