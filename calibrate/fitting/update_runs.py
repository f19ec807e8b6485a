"""What a few measured weight updates of one's own say of a software stack: its times per call, per tensor, per byte.

An update is taken as a sum: the seconds that grow with each parameter of the stack, and a rest that none of them moves.
Seconds of a parameter come from two simulations with a little more of it. So parameters are to updates what phases are
to training steps, and are learned in the same way (`runs`): one takes exp(u) as long as the base stack says; a rate is
exp(-u) as high. The prior of u is the spread that the stack states without the ledger, the scatter of updates is that
of the fit of the ledger. Between two simulations the sum stands for the update; the next simulation corrects what is
wrong with that. What the next sum says may be worse, so those parameters are kept whose simulation is nearest to the
runs, and what the others say of a run is simulated, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...simulator.answers.validate.ledger import CellError
from ...simulator.answers.validate.steps import training_stacks
from ...simulator.answers.validate.updates import UpdateCase, read_cases, row_columns, update_stacks
from ...simulator.base.arrays import Floats
from ...simulator.base.errors import UserError
from ...simulator.base.files import check_once
from ...simulator.profile import Parameter, bounds, load_stack, meaning_of
from .learning import Parts, Posterior, learn, learn_products, learn_sums, leave_one_out, scatter_of
from .ledger import SIGMA
from .owners import entry
from .run_files import (
    Measured,
    check_columns,
    check_software,
    check_together,
    read_each,
    read_rows,
)
from .run_logs import is_log
from .runs import SIMULATIONS, STRANGE, Learned, refuse_other_units

MOST_OFF = 10.0
"""An update this many times as long or short as predicted is a slip of the table; milliseconds are 1,000 times.

With the stack `generic` the ledger's rows are off by 1.9 times at most (tests/bench/own_updates.py).
"""

LEAST_MOVE = 0.01
"""A parameter is free if its spread moves some run by this share."""

_STEP = 0.05


@dataclass(frozen=True, eq=False)
class UpdateRun(Measured):
    """A measured weight update: the row that states it."""

    case: UpdateCase = field(kw_only=True)

    @property
    def configuration(self) -> str:
        """A key of the run's scenario and of the part of the update that was timed."""
        return f"{self.resolved.hash} {self.case.cells.text('phase')}"

    def predict(self, values: Mapping[str, float]) -> float:
        """Predicted seconds with parameters of the stack changed."""
        return self.case.answer_s(values)


def read_update_runs(paths: Sequence[Path], base: str) -> list[UpdateRun]:
    """The rows of all tables on one base stack, by name or file.

    Raises:
        UserError: a file cannot be read, lacks a column, or holds what is no update; rows contradict each other, or are
            of several kinds of GPU or software; the base is no stack of weight updates. One line each.
    """
    known = ", ".join(sorted({*update_stacks(), "generic"}))
    check_software(base, training_stacks(), f"training steps; expected one of weight updates: {known}")
    check_once(paths)
    runs = read_each(paths, lambda path: _read_table(path, base))
    check_together(runs, "system")
    return runs


def _read_table(path: Path, base: str) -> list[UpdateRun]:
    """The rows of a table; a UserError with a line for each that is no update."""
    if is_log(path):
        raise UserError(f"{path}: logs are read of training steps only; expected a table of weight updates")
    check_columns(path, row_columns())
    return read_rows(read_cases(path, base), _run_of)


def _run_of(case: UpdateCase) -> UpdateRun:
    """The run that a row states; a UserError or CellError if it states none."""
    if case.scenario is None:
        raise CellError(case.reason)
    said = f"seconds = {case.cells.text('seconds')}"
    _ = case.resolved.program
    gpu = case.cells.text("gpu") or case.resolved.devices[0].name
    return UpdateRun(case.where, case.resolved, case.seconds, said, case.cells.text("system"), gpu, case=case)


@dataclass(frozen=True, eq=False)
class Parameters:
    """The parameters of a stack that runs may move, with what is known of them before."""

    known: Mapping[str, Parameter]

    @property
    def names(self) -> list[str]:
        """The names of the parameters, in the order of u."""
        return list(self.known)

    @cached_property
    def prior(self) -> Floats:
        """The covariance of ln(times as long); of the rest, which stands last, it is zero."""
        spread = np.array([*(parameter.spread for parameter in self.known.values()), 0.0])
        found: Floats = np.diag(spread**2)
        return found

    def values(self, u: Floats) -> dict[str, float]:
        """The parameters that take exp(u) as long, within what is allowed."""
        return {name: self._value(name, by) for name, by in zip(self.names, u.tolist(), strict=False)}

    def _value(self, name: str, by: float) -> float:
        low, high, _ = bounds(name) or (0.0, 1.0, "")
        value = self.known[name].value * exp(-by if is_rate(name) else by)
        return min(max(value, low), high)

    def split(self, runs: Sequence[UpdateRun], u: Floats) -> Parts:
        """Runs by parameter and the rest, simulated about u; each part is its own cause."""
        found = np.array([self._split_one(run, u) for run in runs])
        return Parts.one_cause_each(found / np.exp(u))

    def _split_one(self, run: UpdateRun, u: Floats) -> Floats:
        seconds = run.predict(self.values(u))
        more = u + _STEP * np.eye(len(u))[:-1]
        grown = np.array([run.predict(self.values(moved)) for moved in more])
        parts = (grown - seconds) / np.expm1(_STEP)
        return np.append(parts, seconds - parts.sum())


def is_rate(name: str) -> bool:
    """Whether more of a parameter makes an update shorter."""
    return name.endswith("_fraction") or name.startswith("interference.")


def free_parameters(runs: Sequence[UpdateRun]) -> Parameters:
    """Those parameters of the runs' stack that some run tells of: their spread moves it by `LEAST_MOVE`."""
    known = {name: one for name, one in parameters_at_site(runs[0]).items() if one.spread > 0 and one.value > 0}
    every = Parameters({name: one for name, one in known.items() if any(_prices(run, name) for run in runs)})
    start = np.zeros(len(every.names) + 1)
    _, shares = every.split(runs, start).predict(start)
    moves = np.abs(shares).max(axis=0) * np.sqrt(np.diag(every.prior))
    return Parameters({name: known[name] for name, move in zip(every.names, moves, strict=False) if move > LEAST_MOVE})


def parameters_at_site(run: UpdateRun) -> dict[str, Parameter]:
    """The parameters of a run's stack, as sure as they are on machines that no fit has seen.

    What the shipped fit knows of a stack it knows of the sites of the ledger. Elsewhere a parameter has the spread that
    the stack stated before that fit. What the device's profile has measured is as sure as there.
    """
    stated, unfitted, here = load_stack(run.stack), load_stack(run.stack, fitted=False), run.case.resolved.profile
    measured = {name: here[name] for name in unfitted.parameters if here[name] != stated[name]}
    elsewhere = {
        name: replace(stated[name], spread=max(before.spread, stated[name].spread))
        for name, before in unfitted.parameters.items()
    }
    return elsewhere | measured


def _prices(run: UpdateRun, name: str) -> bool:
    """Whether the time of some op depends on a parameter; cheaper than a simulation."""
    resolved = run.case.resolved
    other = resolved.restate({name: resolved.profile.value(name) * (1 - _STEP)})
    return not np.array_equal(other.costs.uncontended_s, resolved.costs.uncontended_s)


@dataclass(frozen=True, eq=False)
class LearnedUpdates(Learned):
    """What weight updates say: the causes are the free parameters, and a rest that nothing moves."""

    whole, usual = "weight update", SIGMA
    parameters: Parameters

    @property
    def causes(self) -> Sequence[int]:
        """The free parameters."""
        return range(len(self.parameters.names))

    def describe(self, cause: int) -> tuple[str, str]:
        """A parameter and its meaning."""
        name = self.parameters.names[cause]
        return name, f"work at the {meaning_of(name)}" if is_rate(name) else meaning_of(name)

    def stack(self, out: Path) -> dict[str, Any]:
        """The content of the stack file `out`: the free parameters with what is left of their spreads."""
        values = self.parameters.values(self.posterior.u)
        entries = {
            name: entry(value, spread, "fitted", self._source)
            for (name, value), spread in zip(values.items(), self.deviation.tolist(), strict=False)
        }
        return self._head(out, " --kind weight_update") | {"parameters": entries}


def learn_updates(paths: Sequence[Path], base: str) -> LearnedUpdates:
    """What the weight updates of some tables say beyond a stack, by name or file.

    Raises:
        UserError: as `read_update_runs`; an update takes `MOST_OFF` times as long or short as predicted; or no
            parameter of the stack has a part in any.
    """
    runs = read_update_runs(paths, base)
    measured_s = np.array([run.seconds for run in runs])
    before = np.array([run.predict({}) for run in runs])
    refuse_other_units(runs, before / measured_s, MOST_OFF, "weight update")
    free = free_parameters(runs)
    if not free.names:
        raise UserError(
            f"{runs[0].where}: no parameter of {base} moves this update by {LEAST_MOVE:.0%}; nothing to learn"
        )
    known, alike = settle(free, runs, measured_s), [run.configuration for run in runs]
    error, deviation = leave_one_out(
        known.parts, measured_s, free.prior, known.scatter, alike, learn_parameters,
        lambda run, u: runs[run].predict(free.values(u)),
    )  # fmt: skip
    after, shares = known.about.predict(known.posterior.u)
    return LearnedUpdates(
        paths, base, runs, free.prior, known.posterior, shares, before / measured_s - 1, after / measured_s - 1,
        np.expm1(error), np.abs(error) > STRANGE * deviation, np.zeros(0), known.scatter, free,
    )  # fmt: skip


def learn_parameters(parts: Parts, measured_s: Floats, prior: Floats, sigma: float) -> Posterior:
    """What runs say of parameters; one run alone does not tell them apart, and the least known would get all."""
    by = learn_sums if len(measured_s) == 1 else learn_products
    return by(parts, measured_s, prior, sigma)


class Settled(NamedTuple):
    """What runs say by `parts`, the parts about it, and the scatter of the runs (`scatter_of`)."""

    posterior: Posterior
    scatter: float
    parts: Parts
    about: Parts


def settle(free: Parameters, runs: Sequence[UpdateRun], measured_s: Floats) -> Settled:
    """What the runs say, of two simulations that which is nearer to them.

    Beyond a rate's bound, or where other work takes longer, a parameter has no seconds: the next sum leaves it open.
    """
    about, alike = free.split(runs, np.zeros(len(free.names) + 1)), [run.configuration for run in runs]
    found = list[Settled]()
    for _ in range(SIMULATIONS):
        parts = about
        sigma = scatter_of(parts, measured_s, free.prior, SIGMA, alike, learn_parameters)
        posterior = learn(parts, measured_s, free.prior, sigma, alike, learn_parameters)
        about = free.split(runs, posterior.u)
        found.append(Settled(posterior, sigma, parts, about))
    return min(found, key=lambda one: np.abs(np.log(one.about.predict(one.posterior.u)[0] / measured_s)).sum())
