"""What a few measured training steps of one's own say of a software stack: how much longer each phase takes there.

A step is the sum of its critical path by phase, as predicted with a base stack. On one's own machine and software each
phase has a factor; if the runs compute in several data types, the GEMMs of each type have one more.
The prior of ln(factor) is what the shipped fit does not know of the base stack and the device (its covariance between
phases), and how far software is from its like (`Fit.apart`): one's own site is another than those of the fit.
Between two simulations of all runs a step is taken as the sum of its phases; the next simulation corrects what is wrong
with that.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import exp
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...simulator.answers.validate.steps import Answer, predict_step
from ...simulator.base.arrays import Floats
from ...simulator.base.errors import UserError
from ...simulator.base.files import name_beside
from ...simulator.base.units import format_count, format_seconds
from ...simulator.costs import PHASES
from ...simulator.profile import ATTENTION, ATTENTION_OF, FACTORS, SCHEMA, Z90, Profile, load_stack
from ...simulator.systems.train_step.errors import SITE, errors_of_phases, moved_phases, site_of
from ...simulator.systems.train_step.resolve import ResolvedTrain
from ...simulator.systems.train_step.terms import terms_of
from ...simulator.systems.train_step.text import MEANING
from ...simulator.uncertainty import DOUBLING, Fit, shipped_fit
from .learning import Parts, Posterior, learn, leave_one_out, scatter_of
from .next_run import after, choose_runs, open_part
from .owners import entry
from .run_files import Measured, Plan, Run, read_runs
from .steps import SIGMA

LEAST_SHARE = 0.01
"""A phase that takes less of every run is not told of."""

MOST_OFF = 4.0
"""A run this many times as long or short as predicted is a slip of the table, not a matter of calibration.

Of the 1,157 rows of the ledger, each predicted with its source left out of the fit, one is farther off (4.2 times).
"""

TYPES_APART = 0.14
"""Standard deviation of ln(time of products) between data types at one site, beside what factors of phases say.

Most likely by the 15 groups of source, stack and GPU of the ledger with several types, each source left out of the fit:
ln(likelihood) is 100 more than without, 67 of it from one source (nvidia_dgxc on H100), 99 for 0.1 and 98 for 0.2
(tests/bench/own_runs.py). Runs in one type alone do not need it: they say what that type takes.
"""

ALONE = 1.4
"""Standard deviation by which the runs of one configuration alone are off.

Nothing tells what a configuration takes for itself from what its site takes: the others of 13 groups are predicted no
better by one run. With 1.4 one run, drawn or asked for, makes the median error of the others worse by a tenth in no
group; with 1.0 the one that is asked for does in one (nanotron's, by 15 %), with 0.15 a drawn one did in three, and
with `SIGMA` in nine (tests/bench/own_runs.py).
"""

ODD = 0.15
"""How far off a single run may be by what is learned from it, and not be named as odd."""
_ONE_ODD = "one run so far from what is known counts little; a second one that agrees is believed"

_MOST_NAMES = 3
SIMULATIONS = 2
STRANGE = 2.5
"""Standard deviations from what the other runs predict, from which a run is said to disagree with them."""
_CONTRARY = 1.5
"""Times the usual scatter from which runs are said to contradict each other."""


@dataclass(frozen=True, eq=False)
class Learned:
    """What the runs of some files say beyond a base stack. Errors are signed and relative, one per run.

    Times of a run are a sum over causes: what a subclass says. `whole` is what one run is. `memory` are errors of peak
    memory, of the runs that state one; no stack that is learned from times changes them. `scatter` is how far runs are
    off for reasons of their own, `usual` how far they are elsewhere; standard deviations of ln(seconds).
    """

    whole: ClassVar[str]
    usual: ClassVar[float]
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
    scatter: float

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
            "base": name_beside(self.runs[0].stack, out),
            "source": f"runcast calibrate runs {names}{command} --base {self.base}",
            "date": date.today().isoformat(),
        }

    @property
    def _is_several(self) -> bool:
        """Whether there are several configurations, which predict each other."""
        return len({run.configuration for run in self.runs}) > 1

    @property
    def _source(self) -> str:
        """Where the parameters are from, and how far off each run was."""
        error, names = np.median(np.abs(self.without)), [path.name for path in self.paths]
        scored = f", each predicted to {error:.1%} (median) by the others" if self._is_several else ""
        return f"{_count(self.runs)} of {_listed(names)}{scored}"

    def lines(self) -> Iterator[str]:
        """What was learned, in words."""
        yield f"{_count(self.runs)} of {_listed(list(map(str, self.paths)))}, from the stack {self.base}"
        yield from (f"  {run.log}" for run in self.runs if run.log)
        size = {"before": self.before, "with what they say": self.after}
        size |= {"each by the others": self.without} if self._is_several else {}
        size |= {"peak memory": self.memory} if len(self.memory) else {}
        for what, errors in size.items():
            yield f"  {what:<19} median error {np.median(np.abs(errors)):.1%}, bias {np.median(errors):+.1%}"
        yield from self._factors()
        for run, error, strange in zip(self.runs, self.without, self.strange, strict=True):
            if strange and self._is_several:
                took, by_others = (format_seconds(seconds) for seconds in (run.seconds, run.seconds * (1 + error)))
                yield f"disagrees: {run.where} took {took}; by the others it would take {by_others}"
        if self._is_several and self.scatter > _CONTRARY * self.usual:
            said = f"{self.scatter:.0%} about what they say, where {self.usual:.0%} is usual"
            yield f"contradictory: the runs scatter by {said}; each is believed less"
        if len(self.runs) == 1 and abs(self.after[0]) > ODD:
            yield f"odd: {self.runs[0].where} is off by {self.after[0]:+.0%} all the same: {_ONE_ODD}"
        yield self._least_known()

    def _factors(self) -> Iterator[str]:
        before, width = np.sqrt(np.diag(self.prior)), max((len(self.describe(c)[0]) for c in self.causes), default=0)
        moved = np.abs(self.posterior.u) * self.shares.mean(axis=0)
        # rounded, so that equal ones keep their order whatever the machine rounds
        for c in sorted(self.causes, key=lambda c: -round(float(moved[c]), 9)):
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
    """What training steps say: the causes are factors of phases and of data types, as `factors_of` names them."""

    whole, usual = "step", SIGMA
    runs: Sequence[Run]
    factors: Sequence[str]

    @property
    def causes(self) -> Sequence[int]:
        """The factors that take a share of some run."""
        return np.flatnonzero(self.shares.max(axis=0) > LEAST_SHARE).tolist()

    def describe(self, cause: int) -> tuple[str, str]:
        """A factor and its meaning."""
        name = self.factors[cause]
        meaning = MEANING.get(name) or f"GEMMs in {name.removeprefix('gemm.')}, one factor more"
        return name, meaning

    def stack(self, out: Path) -> dict[str, Any]:
        """The content of the stack file `out`: factors with what is left of their spreads."""
        head, values = self._head(out), values_of(load_stack(self.base), self.factors, self.posterior.u)
        entries = {
            name: entry(values[name], spread, "fitted", self._source)
            for factor, spread in zip(self.factors, self.deviation.tolist(), strict=True)
            for name in _names_of(factor)
        }
        return head | {"parameters": entries, "covariance": self._covariance(head["base"])}

    def _covariance(self, base: str) -> dict[str, Any]:
        """The posterior as a stack file has it, which names its base as `base`.

        What these runs scatter beyond what any prediction has (`Fit.floor`), other steps do as a whole.
        """
        whole = np.array([float(name in FACTORS) for name in self.factors])
        more = max(self.scatter**2 - shipped_fit().floor ** 2, 0.0) if self._is_several else 0.0
        values, vectors = np.linalg.eigh(self.posterior.covariance + more * np.outer(whole, whole))
        root = vectors * np.sqrt(np.maximum(values, 0.0))  # rounding leaves eigenvalues a little below zero
        rows = [[float(f"{x:.4g}") for x in row] for row in root.tolist()]
        every = {(term.of, term.name): None for run in self.runs for term in terms_of(run.resolved)}
        own, sites = self.runs[0].stack, dict.fromkeys(site_of(run.resolved) for run in self.runs)
        # of more GPUs than these runs had no run tells
        known = [[base if of == own else of, name] for of, name in every if name != DOUBLING]
        known += [[site, SITE] for site in sites]
        return {"of": list(self.factors), "root": rows, "terms": known}

    def ask(self, plans: Sequence[Plan]) -> Iterator[str]:
        """Which of these steps to measure next, and what that leaves open of all of them."""
        values = values_of(load_stack(self.runs[0].stack), self.factors, self.posterior.u)
        steps = [plan.resolved.restate(values) for plan in plans]
        yield from ask(plans, predict_parts(steps, self.factors), self.posterior.covariance)


_ASKED = 3


def ask_first(plans: Sequence[Plan], fit: Fit | None = None) -> Iterator[str]:
    """Which of these steps to measure before there is any run."""
    steps = [plan.resolved for plan in plans]
    yield from ask(plans, predict_parts(steps, FACTORS), prior_of(steps, FACTORS, fit or shipped_fit()))


def ask(plans: Sequence[Plan], parts: Parts, covariance: Floats) -> Iterator[str]:
    """The plans to measure next, one after the other, and what of all plans' times each leaves open (90 %)."""
    _, shares = parts.predict(np.zeros(len(covariance)))
    before = Z90 * open_part(shares, covariance)
    for place, at in enumerate(choose_runs(shares, covariance, SIGMA, _ASKED)):
        covariance = after(shares[at], covariance, SIGMA)
        left = Z90 * open_part(shares, covariance)
        next_one = "then" if place else "measure next"
        yield f"{next_one}: {plans[at].where} ({plans[at].said}); leaves {left:.1%} of a step open, now {before:.1%}"
        before = left


def _count(runs: Sequence[Measured]) -> str:
    """How many runs, and of how many configurations where some are repeated."""
    several, of = format_count(len(runs), "run"), len({run.configuration for run in runs})
    return several if of == len(runs) else f"{several} ({format_count(of, 'configuration')})"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MOST_NAMES else f"{names[0]} and {len(names) - 1} other files"


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
    steps, own = [run.resolved for run in runs], load_stack(runs[0].stack)
    alike = [run.configuration for run in runs]
    factors = factors_of(steps)
    prior, parts = prior_of(steps, factors, fit), parts_of(steps, answers, factors)
    for _ in range(SIMULATIONS):
        sigma = scatter_of(parts, measured_s, prior, usual_scatter(len(set(alike))), alike)
        posterior = learn(parts, measured_s, prior, sigma, alike)
        answers = [run.answer(values_of(own, factors, posterior.u)) for run in runs]
        parts = parts_of(steps, answers, factors, posterior.u)
    after = np.array([answer.seconds for answer in answers])
    error, deviation = leave_one_out(parts, measured_s, prior, sigma, alike)
    return LearnedSteps(
        paths, base, runs, prior, posterior, parts.predict(posterior.u)[1], before / measured_s - 1,
        after / measured_s - 1, np.expm1(error), np.abs(error) > STRANGE * deviation, memory, sigma,
        factors,
    )  # fmt: skip


def usual_scatter(configurations: int) -> float:
    """The standard deviation of ln(measured) about the right factors that runs of so many configurations have."""
    return SIGMA if configurations > 1 else ALONE


def factors_of(steps: Sequence[ResolvedTrain]) -> tuple[str, ...]:
    """The factors that runs of these steps tell of: of phases, and of products by data type if there are several."""
    types = sorted({step.gemm_type for step in steps})
    return (*FACTORS, *(f"gemm.{dtype}" for dtype in types if len(types) > 1))


def parts_of(
    steps: Sequence[ResolvedTrain], answers: Sequence[Answer], factors: Sequence[str], u: Floats | None = None
) -> Parts:
    """The phases of predicted steps and the factors that move them; `u` is what the factors were when predicted."""
    moved = np.array([moved_phases(step, factors) for step in steps])
    seconds = np.array([answer.phase_s for answer in answers])
    return Parts(seconds if u is None else seconds / np.exp(moved @ u), moved)


def predict_parts(steps: Sequence[ResolvedTrain], factors: Sequence[str]) -> Parts:
    """The phases of steps as they are predicted, which are factors of 1."""
    return parts_of(steps, [predict_step(step, memory=False) for step in steps], factors)


def prior_of(steps: Sequence[ResolvedTrain], factors: Sequence[str], fit: Fit) -> Floats:
    """The covariance of ln(factor) before any run: what the fit does not know, and what sites are apart.

    Where a prediction has one error of the site for all phases, a site here differs phase by phase as software does:
    runs tell phases apart, and learn more so. A base that was learned from runs of the same site is not another one.
    """
    elsewhere = replace(fit, site=0.0)
    known = np.mean([errors_of_phases(step, elsewhere).covariance for step in steps], axis=0)
    here = load_stack(steps[0].scenario.stack).about.get("covariance", {}).get("of", ())
    usual = {f"time_factor.{phase}": 0.0 for phase in PHASES} | dict(fit.apart)
    apart = [usual.get(f"time_factor.{name}", TYPES_APART) * (name not in here) for name in factors]
    at = [PHASES.index(phase) for phase in FACTORS]
    found = np.diag(np.square(apart))
    found[: len(at), : len(at)] += known[np.ix_(at, at)]
    return found


def values_of(base: Profile, factors: Sequence[str], u: Floats) -> dict[str, float]:
    """The parameters of a stack for ln(factor) `u` beside a base."""
    by = dict(zip(factors, u.tolist(), strict=True))
    return {name: base.value_or(name, 1.0) * exp(by[factor]) for factor in factors for name in _names_of(factor)}


def _names_of(factor: str) -> Iterable[str]:
    """The parameters that a factor moves: of attention, those of all kernels."""
    name = f"time_factor.{factor}"
    return ATTENTION_OF.values() if name == ATTENTION else (name,)


def refuse_other_units(runs: Sequence[Measured], ratio: Floats, most: float, whole: str) -> None:
    """Raise UserError for runs whose prediction is `most` times what was measured, or as little; `ratio` is that."""
    wrong = []
    for run, times in zip(runs, ratio.tolist(), strict=True):
        if not 1 / most < times < most:
            predicted = format_seconds(times * run.seconds)
            wrong.append(f"{run.where}: {run.said}: predicted is {predicted}; expected seconds of one {whole}")
    if wrong:
        raise UserError(*wrong)
