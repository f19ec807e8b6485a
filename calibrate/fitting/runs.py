"""What a few measured training steps of one's own say of a software stack: how much longer each phase takes there.

A step is the sum of its critical path by phase, s_p seconds as predicted with a base stack. On one's own machine and
software each phase takes exp(u_p) as long. The prior of u is what the shipped fit does not know of the base stack and
the device (its covariance between phases), and how far software is from its like (`Fit.apart`): one's own site is
another than those of the fit. A measured step is off by `SIGMA` about the right factors, as in the fit of the ledger,
with the tails of Student's t, so that a run which contradicts the others counts little. The maximum a posteriori comes
from Gauss-Newton steps: first with equal weights, so that runs which agree are believed however far from the base.
Between two simulations of all runs a step is taken as the sum of its phases; the next simulation corrects what is wrong
with that.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import exp, hypot, log
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...simulator.answers.validate.steps import Answer, predict_step
from ...simulator.base.errors import UserError
from ...simulator.base.units import format_seconds
from ...simulator.costs import PHASES
from ...simulator.profile import FACTORS, SCHEMA, Z90, Profile, load_stack
from ...simulator.systems.train_step.errors import SITE, errors_of_phases, site_of
from ...simulator.systems.train_step.resolve import ResolvedTrain
from ...simulator.systems.train_step.terms import terms_of
from ...simulator.systems.train_step.text import MEANING
from ...simulator.uncertainty import DOUBLING, Fit, shipped_fit
from .ledger import student_weights
from .next_run import after, choose_runs, open_part
from .owners import entry
from .run_files import Measured, Plan, Run, read_runs
from .steps import SIGMA

Floats = NDArray[np.float64]

LEAST_SHARE = 0.01
"""A phase that takes less of every run is not told of."""

MOST_OFF = 4.0
"""A run this many times as long or short as predicted is a slip of the table, not a matter of calibration.

Of the 1,128 rows of the ledger, each predicted with its source left out of the fit, one is farther off (4.3 times).
"""

_MOST_NAMES = 3
_TURNS = 100
_MOST_CHANGE = 0.5
SIMULATIONS = 2
STRANGE = 2.5
"""Standard deviations from what the other runs predict, from which a run is said to disagree with them."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """What runs say of ln(factor) by phase: the most likely values, and their covariance, both over PHASES."""

    u: Floats
    covariance: Floats

    def share(self, phase_s: Floats) -> tuple[Floats, Floats]:
        """Of steps with these seconds by phase at u = 0: (seconds, shares of phases), shapes [runs], [runs, phases]."""
        seconds = phase_s * np.exp(self.u)
        return seconds.sum(axis=1), seconds / seconds.sum(axis=1, keepdims=True)


def learn(phase_s: Floats, measured_s: Floats, prior: Floats, sigma: float) -> Posterior:
    """The factors of phases by runs of `phase_s` seconds at factor 1, shape [runs, phases].

    `prior` is the covariance of ln(factor), `sigma` the standard deviation of ln(measured) about the right factors.
    """
    start = Posterior(np.zeros(phase_s.shape[1]), prior)
    even = _settle(start, phase_s, measured_s, prior, lambda error: np.full(len(error), 1 / sigma))
    return _settle(even, phase_s, measured_s, prior, lambda error: student_weights(error, sigma))


def _settle(
    found: Posterior, phase_s: Floats, measured_s: Floats, prior: Floats, weights: Callable[[Floats], Floats]
) -> Posterior:
    """Gauss-Newton steps until nothing moves; `weights` gives 1 / standard deviation of each run by its log error."""
    for _ in range(_TURNS):
        seconds, slopes = found.share(phase_s)
        error = np.log(seconds / measured_s)
        noise = np.diag(1 / weights(error) ** 2)
        gain = prior @ slopes.T @ np.linalg.inv(slopes @ prior @ slopes.T + noise)
        change = np.clip(gain @ (slopes @ found.u - error) - found.u, -_MOST_CHANGE, _MOST_CHANGE)
        found = Posterior(found.u + change, prior - gain @ slopes @ prior)
        if np.abs(change).max(initial=0.0) < 1e-6:
            break
    return found


def left_out(phase_s: Floats, measured_s: Floats, prior: Floats, sigma: float) -> tuple[Floats, Floats]:
    """For each run by what the other runs say: (ln(predicted / measured), its standard deviation)."""
    found = []
    for run in range(len(measured_s)):
        others = np.arange(len(measured_s)) != run
        told = learn(phase_s[others], measured_s[others], prior, sigma)
        seconds, slopes = told.share(phase_s[[run]])
        deviation = hypot(sigma, float(np.sqrt(slopes[0] @ told.covariance @ slopes[0])))
        found.append((log(seconds[0] / measured_s[run]), deviation))
    error, deviation_of = np.array(found).T
    return error, deviation_of


@dataclass(frozen=True, eq=False)
class Learned:
    """What the runs of some files say beyond a base stack. Errors are signed and relative, one per run.

    Times of a run are a sum over causes: what a subclass says. `whole` is what one run is. `memory` are errors of peak
    memory, of the runs that state one; no stack that is learned from times changes them.
    """

    whole: ClassVar[str]
    paths: Sequence[Path]
    base: str
    runs: Sequence[Measured]
    prior: Floats
    posterior: Posterior
    shares: Floats
    before: Floats
    after: Floats
    without: Floats
    strange: NDArray[np.bool_]
    memory: Floats

    @property
    def causes(self) -> Sequence[int]:
        """The causes that the runs say something of, by their numbers."""
        raise NotImplementedError

    def describe(self, cause: int) -> tuple[str, str]:
        """The name of a cause, and its meaning."""
        raise NotImplementedError

    def stack(self, out: Path) -> dict[str, Any]:
        """The content of the stack file `out`: parameters with what is left of their spreads."""
        raise NotImplementedError

    @property
    def deviation(self) -> Floats:
        """Standard deviation that the runs leave of ln(factor) of each cause."""
        found: Floats = np.sqrt(np.diag(self.posterior.covariance))
        return found

    def _head(self, out: Path, command: str = "") -> dict[str, Any]:
        """What a stack file begins with."""
        names = " ".join(path.name for path in self.paths)
        return {
            "schema": SCHEMA,
            "name": out.stem,
            "base": _relative_name(self.runs[0].stack, out),
            "source": f"runcast calibrate runs {names}{command} --base {self.base}",
            "date": date.today().isoformat(),
        }

    @property
    def _source(self) -> str:
        """Where the parameters are from, and how far off each run was."""
        error, names = np.median(np.abs(self.without)), [path.name for path in self.paths]
        return f"{_count(self.runs)} of {_listed(names)}, each predicted to {error:.1%} (median) by the others"

    def lines(self) -> Iterator[str]:
        """What was learned, in words."""
        yield f"{_count(self.runs)} of {_listed(list(map(str, self.paths)))}, from the stack {self.base}"
        yield from (f"  {run.log}" for run in self.runs if run.log)
        size = {"before": self.before, "with what they say": self.after}
        size |= {"each by the others": self.without} if len(self.runs) > 1 else {}
        size |= {"peak memory": self.memory} if len(self.memory) else {}
        for what, errors in size.items():
            yield f"  {what:<19} median error {np.median(np.abs(errors)):.1%}, bias {np.median(errors):+.1%}"
        yield from self._factors()
        for run, error, strange in zip(self.runs, self.without, self.strange, strict=True):
            if strange and len(self.runs) > 1:
                took, by_others = (format_seconds(seconds) for seconds in (run.seconds, run.seconds * (1 + error)))
                yield f"disagrees: {run.where} took {took}; by the others it would take {by_others}"
        yield self._least_known()

    def _factors(self) -> Iterator[str]:
        before, width = np.sqrt(np.diag(self.prior)), max((len(self.describe(c)[0]) for c in self.causes), default=0)
        for c in sorted(self.causes, key=lambda c: -abs(self.posterior.u[c]) * self.shares[:, c].mean()):
            factor, reach = exp(self.posterior.u[c]), Z90 * self.deviation[c]
            known = f"90 %: {factor * exp(-reach):.2f} to {factor * exp(reach):.2f}"
            little = "" if self.deviation[c] < 0.9 * before[c] else "; the runs say little of it"
            name, meaning = self.describe(c)
            yield f"  {name:<{max(width, 10)}} {factor:.2f} times as long ({known}{little}): {meaning}"

    def _least_known(self) -> str:
        """The cause whose factor leaves most of a run open."""
        open_share = self.shares.mean(axis=0) * Z90 * self.deviation
        most = max(self.causes, key=lambda c: open_share[c])
        name, meaning = self.describe(most)
        said = f"{name} ({meaning}), which leaves {open_share[most]:.0%} of a {self.whole} open"
        return f"least known: {said}; a run in which it takes more or less of the {self.whole} teaches most"


@dataclass(frozen=True, eq=False)
class LearnedSteps(Learned):
    """What training steps say: the causes are the phases, by their numbers in PHASES."""

    whole = "step"
    runs: Sequence[Run]

    @property
    def causes(self) -> Sequence[int]:
        """The phases with a factor that take a share of some run."""
        largest = self.shares.max(axis=0)
        return [p for p, phase in enumerate(PHASES) if phase in FACTORS and largest[p] > LEAST_SHARE]

    def describe(self, cause: int) -> tuple[str, str]:
        """A phase and its meaning."""
        return PHASES[cause], MEANING[PHASES[cause]]

    def stack(self, out: Path) -> dict[str, Any]:
        """The content of the stack file `out`: factors of phases with what is left of their spreads."""
        base, head, at = load_stack(self.base), self._head(out), {phase: PHASES.index(phase) for phase in FACTORS}
        factors = {f"time_factor.{phase}": (self.posterior.u[p], self.deviation[p]) for phase, p in at.items()}
        entries = {
            key: entry(base.value_or(key, 1.0) * exp(u), spread, "fitted", self._source)
            for key, (u, spread) in factors.items()
        }
        return head | {"parameters": entries, "covariance": self._covariance(head["base"])}

    def _covariance(self, base: str) -> dict[str, Any]:
        """The posterior as a stack file has it, which names its base as `base`."""
        at = [PHASES.index(phase) for phase in FACTORS]
        values, vectors = np.linalg.eigh(self.posterior.covariance[np.ix_(at, at)])
        root = vectors * np.sqrt(np.maximum(values, 0.0))  # rounding leaves eigenvalues a little below zero
        rows = [[float(f"{x:.4g}") for x in row] for row in root.tolist()]
        every = {(term.of, term.name): None for run in self.runs for term in terms_of(run.resolved)}
        own, sites = self.runs[0].stack, dict.fromkeys(site_of(run.resolved) for run in self.runs)
        # of more GPUs than these runs had no run tells
        known = [[base if of == own else of, name] for of, name in every if name != DOUBLING]
        known += [[site, SITE] for site in sites]
        return {"of": list(FACTORS), "root": rows, "terms": known}

    def ask(self, plans: Sequence[Plan]) -> Iterator[str]:
        """Which of these steps to measure next, and what that leaves open of all of them."""
        own = load_stack(self.runs[0].stack)
        found = [predict_step(plan.resolved.restate(_values(own, self.posterior.u)), memory=False) for plan in plans]
        yield from ask(plans, np.array([answer.phase_s for answer in found]), self.posterior.covariance)


_ASKED = 3


def ask_first(plans: Sequence[Plan], fit: Fit | None = None) -> Iterator[str]:
    """Which of these steps to measure before there is any run."""
    phase_s = np.array([predict_step(plan.resolved, memory=False).phase_s for plan in plans])
    yield from ask(plans, phase_s, prior_of([plan.resolved for plan in plans], fit or shipped_fit()))


def ask(plans: Sequence[Plan], phase_s: Floats, covariance: Floats) -> Iterator[str]:
    """The plans to measure next, one after the other, and what of all plans' times each leaves open (90 %)."""
    shares = phase_s / phase_s.sum(axis=1, keepdims=True)
    before = Z90 * open_part(shares, covariance)
    for place, at in enumerate(choose_runs(shares, covariance, SIGMA, _ASKED)):
        covariance = after(shares[at], covariance, SIGMA)
        left = Z90 * open_part(shares, covariance)
        next_one = "then" if place else "measure next"
        yield f"{next_one}: {plans[at].where} ({plans[at].said}); leaves {left:.1%} of a step open, now {before:.1%}"
        before = left


def _count(runs: Sequence[Measured]) -> str:
    return f"{len(runs)} run{'s' * (len(runs) != 1)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MOST_NAMES else f"{names[0]} and {len(names) - 1} other files"


def _relative_name(stack: str, out: Path) -> str:
    """A shipped stack by its name, a file by its path from the folder of `out`."""
    return os.path.relpath(stack, out.resolve().parent) if Path(stack).is_absolute() else stack


def learn_runs(paths: Sequence[Path], base: str, cluster: str | None = None, fit: Fit | None = None) -> LearnedSteps:
    """What the training steps of some files say beyond a stack, by name or file; `cluster` is where recipes ran.

    Raises:
        UserError: as `read_runs`; or a run takes `MOST_OFF` times as long or short as predicted.
    """
    fit = fit or shipped_fit()
    runs = read_runs(paths, base, cluster)
    measured_s = np.array([run.seconds for run in runs], np.float64)
    answers = [run.answer(memory=run.memory_bytes is not None) for run in runs]
    stating = [pair for pair in zip(runs, answers, strict=True) if pair[0].memory_bytes is not None]
    memory = np.array([run.memory_error(answer) for run, answer in stating])
    before = np.array([answer.seconds for answer in answers])
    refuse_other_units(runs, before / measured_s, MOST_OFF, "step")
    prior = prior_of([run.resolved for run in runs], fit)
    own = load_stack(runs[0].stack)
    phase_s = np.array([answer.phase_s for answer in answers])
    for _ in range(SIMULATIONS):
        posterior = learn(phase_s, measured_s, prior, SIGMA)
        answers = [run.answer(_values(own, posterior.u)) for run in runs]
        phase_s = _at_factor_1(answers, posterior.u)
    after = np.array([answer.seconds for answer in answers])
    error, deviation = left_out(phase_s, measured_s, prior, SIGMA)
    return LearnedSteps(
        paths, base, runs, prior, posterior, posterior.share(phase_s)[1], before / measured_s - 1,
        after / measured_s - 1, np.expm1(error), np.abs(error) > STRANGE * deviation, memory,
    )  # fmt: skip


def prior_of(steps: Sequence[ResolvedTrain], fit: Fit) -> Floats:
    """The covariance of ln(factor) by phase before any run: what the fit does not know, and what sites are apart.

    Where a prediction has one error of the site for all phases, a site here differs phase by phase as software does:
    runs tell phases apart, and learn more so. A base that was learned from runs of the same site is not another one.
    """
    elsewhere = replace(fit, site=0.0)
    known = np.mean([errors_of_phases(step, elsewhere).covariance for step in steps], axis=0)
    here = "covariance" in load_stack(steps[0].scenario.stack).about
    apart = [0.0 if here else fit.apart.get(f"time_factor.{phase}", 0.0) for phase in PHASES]
    free = np.array([phase in FACTORS for phase in PHASES], np.float64)
    found: Floats = (known + np.diag(np.square(apart))) * np.outer(free, free)
    return found


def _values(base: Profile, u: Floats) -> Mapping[str, float]:
    names = {f"time_factor.{phase}": u[PHASES.index(phase)] for phase in FACTORS}
    return {name: base.value_or(name, 1.0) * exp(by) for name, by in names.items()}


def _at_factor_1(answers: Sequence[Answer], u: Floats) -> Floats:
    return np.array([answer.phase_s for answer in answers]) / np.exp(u)


def refuse_other_units(runs: Sequence[Measured], ratio: Floats, most: float, whole: str) -> None:
    """Raise UserError for runs whose prediction is `most` times what was measured, or as little; `ratio` is that."""
    wrong = []
    for run, times in zip(runs, ratio.tolist(), strict=True):
        if not 1 / most < times < most:
            predicted = format_seconds(times * run.seconds)
            wrong.append(f"{run.where}: {run.said}: predicted is {predicted}; expected seconds of one {whole}")
    if wrong:
        raise UserError(*wrong)
