"""What k runs of one's own are worth: the table of docs/own-runs.md. Takes 10 minutes on two cores.

Each source is left out of the fit of training steps; its rows are predicted with what the others gave, and the prior of
its factors is what the others leave open. Then k rows of a group (source, stack, GPU) with 15 rows or more are runs of
one's own, drawn at random or as `calibrate runs --plans` asks, and the other rows of the group are predicted by
what these say. The last lines say how likely widths of data types are by all groups with several.
`python tests/bench/own_runs.py [CACHE.npz]`; the cache keeps the predictions.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from runcast.calibrate.fitting.learning import Parts, learn
from runcast.calibrate.fitting.next_run import choose_runs
from runcast.calibrate.fitting.runs import TYPES_APART, factors_of, prior_of, usual_scatter
from runcast.calibrate.fitting.step_ledger import Crew, simulate_all, watch
from runcast.calibrate.fitting.step_slopes import Slopes, apart_of, fit_of, slopes_of
from runcast.calibrate.fitting.steps import SIGMA, Design
from runcast.simulator.answers.validate.steps import shipped_table
from runcast.simulator.profile import FACTORS
from runcast.simulator.systems.train_step.errors import moved_phases
from runcast.simulator.systems.train_step.resolve import ResolvedTrain
from runcast.simulator.uncertainty import Fit, shipped_fit

Floats = NDArray[np.float64]

FEWEST = 15
DRAWS = 20
RUNS = (1, 3, 5, 10)
WIDTHS = (0.05, 0.1, 0.14, 0.2, 0.3)
FEWEST_OF_TYPES = 8


@dataclass(frozen=True, eq=False)
class Group:
    """The rows of a source, stack and GPU, predicted without their source, and the fit without it."""

    key: tuple[str, ...]
    steps: Sequence[ResolvedTrain]
    phase_s: Floats
    measured: Floats
    fit: Fit

    @cached_property
    def every_factor(self) -> tuple[str, ...]:
        """The factors that all rows together tell of."""
        return factors_of(self.steps)

    @cached_property
    def every_prior(self) -> Floats:
        """The prior of all these factors."""
        return prior_of(self.steps, self.every_factor, self.fit)

    @cached_property
    def every_part(self) -> Parts:
        """What the rows consist of."""
        return Parts(self.phase_s, np.array([moved_phases(step, self.every_factor) for step in self.steps]))

    def restrict(self, factors: Sequence[str]) -> tuple[Parts, Floats]:
        """The parts of all rows, and the prior, with some factors alone."""
        at = [self.every_factor.index(name) for name in factors]
        return Parts(self.phase_s, self.every_part.moved[:, :, at]), self.every_prior[np.ix_(at, at)]

    def errors(self, own: Sequence[int]) -> Floats:
        """Errors of the rows that are not one's own."""
        others = np.setdiff1d(np.arange(len(self.measured)), own)
        if not len(own):
            return np.asarray(self.phase_s.sum(axis=1) / self.measured - 1)
        parts, prior = self.restrict(factors_of([self.steps[row] for row in own]))
        found = learn(parts.choose(own), self.measured[own], prior, usual_scatter(len(own)))
        return np.asarray(parts.choose(others).predict(found.u)[0] / self.measured[others] - 1)


def main(cache: str = "") -> None:
    """Print the table."""
    slopes = slopes_of(shipped_table())
    phase_s = np.load(cache)["phase_s"] if cache and Path(cache).exists() else _without_sources(slopes)
    if cache:
        np.savez(cache, phase_s=phase_s)
    groups = [_group(slopes, key, rows, phase_s) for key, rows in _rows_of_groups(slopes).items()]
    table = []
    for group in (group for group in groups if len(group.steps) >= FEWEST):
        table.append([*_cells(group)])
        cells = " | ".join(f"{m:.1%} / {p:.0%}" for m, p in table[-1])
        print("|", ", ".join(group.key), "|", len(group.steps), "|", cells, "|", flush=True)
    middle = np.median(np.array(table), axis=0)
    print("| **median over groups** | |", " | ".join(f"**{m:.1%} / {p:.1%}**" for m, p in middle), "|")
    worst = max(_alone(group) for group in groups if len(group.steps) >= FEWEST)
    print(f"one that is asked for makes no group's median more than {worst:.3f} times as large, on the rows beside it")
    several = [group for group in groups if len(group.every_factor) > len(FACTORS)]
    for width in WIDTHS:
        more = [_likelihood(group, width) - _likelihood(group, 0.0) for group in several]
        print(f"data types {width} apart: ln(likelihood) {sum(more):+.1f} in {len(more)} groups, most {max(more):+.1f}")


def _without_sources(slopes: Slopes) -> Floats:
    """Seconds of each row by phase with its source out of the fit."""
    design, keys = Design(slopes.cases), [case.key for case in slopes.cases]
    sources = np.array([case.cells.text("source") for case in slopes.cases])
    with Crew(shipped_table(), keys) as crew:
        rows = simulate_all(design, crew, np.zeros(len(design.free)))
        watch(design, crew, rows)
        for _ in range(3):
            change = design.solve(rows, np.ones(len(keys), bool), rows.u) - rows.u
            rows = simulate_all(design, crew, rows.u + np.clip(change, -1, 1))
        watch(design, crew, rows)
        values: dict[int, Mapping[str, float]] = {}
        for source in dict.fromkeys(sources.tolist()):
            u = design.solve(rows, sources != source, rows.u)
            values |= {row: design.values(row, u) for row in np.flatnonzero(sources == source).tolist()}
        answers = crew.predict(values)
    return np.array([answers[row].phase_s for row in range(len(keys))])


def _rows_of_groups(slopes: Slopes) -> dict[tuple[str, ...], list[int]]:
    found: dict[tuple[str, ...], list[int]] = {}
    for row, case in enumerate(slopes.cases):
        found.setdefault((case.cells.text("source"), case.stack, case.cells.text("gpu")), []).append(row)
    return {key: rows for key, rows in found.items() if len(rows) >= FEWEST_OF_TYPES}


def _group(slopes: Slopes, key: tuple[str, ...], rows: Sequence[int], phase_s: Floats) -> Group:
    kept = np.array([case.cells.text("source") != key[0] for case in slopes.cases])
    ours = shipped_fit()
    fit = replace(fit_of(slopes, kept, apart_of(slopes)), novelty=ours.novelty, routing=ours.routing)
    steps = [slopes.cases[row].resolved for row in rows]
    return Group(key, steps, phase_s[rows], np.array([slopes.cases[row].seconds or 0.0 for row in rows]), fit)


def _cells(group: Group) -> Iterator[tuple[float, float]]:
    """(median, p90) of errors without runs, with k drawn ones, and with the k that are asked for."""
    yield _score(group.errors([]))
    draw = np.random.default_rng(0)
    for k in RUNS:
        drawn = [draw.choice(len(group.steps), k, replace=False).tolist() for _ in range(DRAWS)]
        yield tuple(np.mean([_score(group.errors(own)) for own in drawn], axis=0))  # type: ignore[misc]
    parts, prior = group.restrict(FACTORS)
    asked = choose_runs(parts.predict(np.zeros(len(prior)))[1], prior, SIGMA, max(RUNS))
    for k in RUNS:
        yield _score(group.errors(asked[:k]))


def _alone(group: Group) -> float:
    """The median error of the other rows with the run that is asked for first, over that without any."""
    parts, prior = group.restrict(FACTORS)
    asked = choose_runs(parts.predict(np.zeros(len(prior)))[1], prior, SIGMA, 1)
    without = np.delete(group.errors([]), asked)
    return _score(group.errors(asked))[0] / _score(without)[0]


def _likelihood(group: Group, width: float) -> float:
    """ln(likelihood) of the errors of a group if products of its data types are `width` apart."""
    seconds, shares = group.every_part.predict(np.zeros(len(group.every_factor)))
    prior, types = group.every_prior.copy(), np.arange(len(FACTORS), len(group.every_factor))
    prior[types, types] *= (width / TYPES_APART) ** 2
    covariance = shares @ prior @ shares.T + SIGMA**2 * np.eye(len(seconds))
    error = np.log(seconds / group.measured)
    return float(-(np.linalg.slogdet(covariance)[1] + error @ np.linalg.solve(covariance, error)) / 2)


def _score(errors: Floats) -> tuple[float, float]:
    size = np.abs(errors)
    return float(np.median(size)), float(np.quantile(size, 0.9))


if __name__ == "__main__":
    main(*sys.argv[1:])
