"""A run explained: where its time goes, and what to change first.

Each lever (`levers`) is simulated with the random numbers of the run as it is, so that a difference is of the change
and not of chance. What runs differ by chance is said beside it. Rates of failures are as stated for both; the report's
interval has those that are drawn, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from statistics import fmean, stdev
from typing import Any, NamedTuple, cast

from ...base.errors import UserError
from ...base.memo import Memo
from ...profile import Z90
from ...report.spending import Rates, rates
from ...scenario import Changes, WhatIf, change, check_question, resolve
from ...systems.run.history import History
from ...systems.run.report import RunReport, make_run_report
from ...systems.run.resolve import ResolvedRun
from .by_levers import LEAST, ByLevers, LeverWords, check_memory, try_levers
from .case import ReadCase, Refused
from .levers import is_of_use, levers, share_step, spell_out
from .sensitivity import Progress

_SEEDS_OF_LEVERS = 2  # failures come at the same times, so one would do; the second shows whether both agree
_LEAST_SEEDS = 4  # of the run as it is: to know what chance does

QUEUE = "queue_mean_s"
"""The count of a History where jobs waited: the mean wait."""

Seconds = Callable[[Sequence[History]], float]


class Aim(NamedTuple):
    """What levers are compared by: seconds of Histories, in words; less is better. `is_paid`: they cost money."""

    name: str
    of: Seconds
    is_paid: bool = True


class Worth(NamedTuple):
    """What a lever saves of the cost of the run, in US dollars, and of the ends of its 90 % interval."""

    usd: float
    low_usd: float
    high_usd: float


class Means(NamedTuple):
    """What runs of several seeds take: means, the samples of all of them over their time, and the mean wait of jobs."""

    wall_s: float
    samples_per_s: float
    queue_s: float | None


@dataclass(frozen=True)
class Lever:
    """A lever that was simulated.

    `gain` is the share of the aim's seconds that it saves, `gains` the same for each seed. `means` are of the run with
    the change. `worth` is None where no price is known, or the aim's seconds are not paid for.
    """

    name: str
    about: str
    changes: Changes
    gain: float
    gains: tuple[float, ...]
    means: Means
    worth: Worth | None

    @property
    def has_effect(self) -> bool:
        """Whether anything is different that shows."""
        return abs(self.gain) >= LEAST or any(abs(gain) >= LEAST for gain in self.gains)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        usd, low_usd, high_usd = self.worth or (None, None, None)
        return {
            "name": self.name, "about": self.about, "changes": dict(self.changes), "gain": self.gain,
            "gains": list(self.gains), **self.means._asdict(),
            "worth_usd": usd, "worth_low_usd": low_usd, "worth_high_usd": high_usd,
        }  # fmt: skip


@dataclass(frozen=True)
class RunExplanation(ByLevers[Lever]):
    """Where the time of a run goes, and what to change first.

    `aim` says what levers are compared by. `chance` is by what share of it runs with other random numbers differ from
    each other (half the width of the 90 % interval, from `seeds` of them; None if that is unknown). `tried` is ordered
    by gain. `unchanged` is what the run takes without a lever, the mean of the seeds `lever_seeds` as of each lever.
    `quick` left the levers out.
    """

    report: RunReport
    aim: str
    chance: float | None
    seeds: int
    lever_seeds: tuple[int, ...]
    unchanged: Means
    tried: tuple[Lever, ...]
    refused: tuple[Refused, ...]
    quick: bool
    inputs: Mapping[str, Any]

    @property
    def largest_loss(self) -> str | None:
        """The cause that holds most of the time, computing left out; None if there is no other."""
        rest = {cause: seconds for cause, seconds in self.report.history.breakdown_s.items() if cause != "compute"}
        return max(rest, key=lambda cause: rest[cause], default=None)

    @property
    def size(self) -> int:
        """The number of spans that it holds."""
        return len(self.report.history.spans)

    def is_beyond_chance(self, one: Lever) -> bool | None:
        """Whether a lever changes more than chance does; None if that is unknown."""
        most = None if self.chance is None else 1 + self.chance
        return None if most is None else not 1 / most <= 1 - one.gain <= most

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain values: durations in seconds, shares as `gain`."""
        report = self.report
        low_s, high_s = report.wall_interval_s
        low_usd, high_usd = report.cost_interval_usd
        parts = {
            "total_s": report.wall_s,
            "interval_low_s": low_s,
            "interval_high_s": high_s,
            "cost_usd": report.spent.cost_usd,
            "cost_low_usd": low_usd,
            "cost_high_usd": high_usd,
            "breakdown_s": dict(report.history.breakdown_s),
            "largest_loss": self.largest_loss,
            "aim": self.aim,
            "chance": self.chance,
            "seeds": self.seeds,
            "lever_seeds": list(self.lever_seeds),
            "unchanged": self.unchanged._asdict(),
        }
        levers = [one.to_json() | {"beyond_chance": self.is_beyond_chance(one)} for one in self.tried]
        return self.content(("bound_by", "goodput", "tokens_per_s", "mode"), parts, levers)

    @property
    def words(self) -> LeverWords[Lever]:
        """The explanation in words."""
        from .run_text import run_words

        return run_words(self)


@dataclass(frozen=True)
class RunCase(ReadCase):
    """A run to be explained."""

    resolved: ResolvedRun

    def fit(self, lever: WhatIf) -> WhatIf:
        """The lever as it can be applied to the run; a UserError if it has no meaning there."""
        if not is_of_use(lever, self.table):
            raise UserError(f"goes with {' or '.join(lever.needs)}")
        return spell_out(lever, self.resolved, self.table, self.where)

    def pull(self, lever: WhatIf) -> ResolvedRun:
        """The run with a lever's changes; a UserError if they do not go with it, or change nothing."""
        other = _resolve(change(self.table, lever.changes, self.where), self.where, self.memo)
        if self.resolved.mode.has_workers:
            other = share_step(self.resolved, other)
        if other.hash == self.resolved.hash:
            raise UserError("it changes nothing here")
        return other


def _resolve(table: Mapping[str, Any], where: str, memo: Memo) -> ResolvedRun:
    return cast(ResolvedRun, resolve(check_question(table, where), where, memo))


def make_run_case(table: Mapping[str, Any], where: str, memo: Memo) -> RunCase:
    """A run from a table; a UserError if it says something that is not allowed."""
    return RunCase(table, where, memo, _resolve(table, where, memo))


def explain_run(run: RunCase, quick: bool, progress: Progress) -> RunExplanation:
    """Explain a run that is already read."""
    resolved = run.resolved
    progress("simulations", 0, 1, "")
    histories = _simulate(resolved.with_rate_spread(None), resolved.repeats if quick else _seeds(resolved))
    drawn = _simulate(resolved, resolved.repeats) if resolved.has_drawn_rates else histories[: resolved.repeats]
    report = make_run_report(resolved, drawn)
    aim = _aim(resolved, histories[0], report.unit)
    now = histories[:_SEEDS_OF_LEVERS]

    def simulate(named: WhatIf) -> Lever:
        lever = run.fit(named)
        other = run.pull(lever)
        check_memory("" if other.step is None else other.step.report.shortage)
        then = _simulate(other.with_rate_spread(None), len(now))
        return _compare(lever, now, then, aim, report, rates(other.cluster))

    tried, refused = try_levers([] if quick else list(levers(resolved)), simulate, progress)
    return RunExplanation(
        report=report,
        aim=aim.name,
        chance=_chance([aim.of([one]) for one in histories]),
        seeds=len(histories),
        lever_seeds=tuple(resolved.scenario.seed + i for i in range(len(now))),
        unchanged=_means(now),
        tried=tried,
        refused=refused,
        quick=quick,
        inputs=resolved.inputs,
    )


def _seeds(resolved: ResolvedRun) -> int:
    return resolved.scenario.run.repeats or max(resolved.repeats, _LEAST_SEEDS)


def _simulate(resolved: ResolvedRun, seeds: int) -> list[History]:
    return [resolved.simulate(resolved.scenario.seed + i) for i in range(seeds)]


def _aim(resolved: ResolvedRun, first: History, unit: str) -> Aim:
    """Time per sample, so that a step of fewer samples is no gain; but jobs wait, and a target is to be reached."""
    said = resolved.scenario
    if QUEUE in first.counts:
        return Aim("the mean wait in the queue", _queue_s, is_paid=False)
    if said.target is not None and said.run.wall is None:
        return Aim("the time to the target", _wall_s)
    return Aim(f"the time for as many {unit}", _sample_s)


def _wall_s(histories: Sequence[History]) -> float:
    return fmean(one.wall_s for one in histories)


def _queue_s(histories: Sequence[History]) -> float:
    return fmean(one.counts.get(QUEUE, 0.0) for one in histories)


def _sample_s(histories: Sequence[History]) -> float:
    samples = sum(one.samples for one in histories)
    return sum(one.wall_s for one in histories) / samples if samples else inf


def _means(histories: Sequence[History]) -> Means:
    sample_s, queue_s = _sample_s(histories), _queue_s(histories) if QUEUE in histories[0].counts else None
    return Means(_wall_s(histories), 1 / sample_s if sample_s else 0.0, queue_s)


def _chance(seconds: Sequence[float]) -> float | None:
    """Half the width of the 90 % interval that other random numbers give, as a share."""
    if len(seconds) < 2 or not all(0 < one < inf for one in seconds):
        return None
    return exp(Z90 * stdev(map(log, seconds))) - 1


def _compare(
    one: WhatIf, now: Sequence[History], then: Sequence[History], aim: Aim, report: RunReport, held: Rates
) -> Lever:
    """What a lever is worth, from runs before and after with the same seeds; `held` are GPUs after it."""
    gain = _gain(aim.of(now), aim.of(then))
    return Lever(
        one.name,
        one.about,
        one.changes,
        gain=gain,
        gains=tuple(_gain(aim.of([before]), aim.of([after])) for before, after in zip(now, then, strict=True)),
        means=_means(then),
        worth=_worth(gain, report, held) if aim.is_paid else None,
    )


def _worth(gain: float, report: RunReport, held: Rates) -> Worth | None:
    """What a share of the time is worth, where `held` are the GPUs after the change; None where no price is known."""
    usd, (low_usd, high_usd) = report.spent.cost_usd, report.cost_interval_usd
    if not report.rates.usd_per_hour or held.usd_per_hour is None or usd is None or low_usd is None or high_usd is None:
        return None
    saved = 1 - (1 - gain) * held.usd_per_hour / report.rates.usd_per_hour
    return Worth(saved * usd, *sorted((saved * low_usd, saved * high_usd)))


def _gain(before: float, after: float) -> float:
    return 1 - after / before if 0 < before < inf else 0.0
