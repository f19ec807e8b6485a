"""What k runs of one's own are worth: the table of docs/own-runs.md. Takes 10 minutes on two cores.

Each source is left out of the fit of training steps; its rows are predicted with what the others gave, and the prior of
its factors is what the others leave open. Then k rows of a group (source, stack, GPU) with 15 rows or more are runs of
one's own, drawn at random or as `calibrate runs --plans` asks, and the other rows of the group are predicted by
what these say. `python tests/bench/own_runs.py [CACHE.npz]`; the cache keeps the predictions.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from runcast.calibrate.fitting.next_run import choose_runs
from runcast.calibrate.fitting.runs import learn, prior_of
from runcast.calibrate.fitting.step_ledger import Crew, simulate_all, watch
from runcast.calibrate.fitting.step_slopes import Slopes, apart_of, fit_of, slopes_of
from runcast.calibrate.fitting.steps import SIGMA, Design
from runcast.simulator.answers.validate.steps import shipped_table
from runcast.simulator.uncertainty import shipped_fit

Floats = NDArray[np.float64]

FEWEST = 15
DRAWS = 20
RUNS = (1, 3, 5, 10)


def main(cache: str = "") -> None:
    """Print the table."""
    slopes = slopes_of(shipped_table())
    phase_s = np.load(cache)["phase_s"] if cache and Path(cache).exists() else _without_sources(slopes)
    if cache:
        np.savez(cache, phase_s=phase_s)
    table = []
    for key, rows in _groups(slopes).items():
        cells = [*_cells(slopes, rows, phase_s[rows])]
        table.append(cells)
        print(
            "|",
            ", ".join(key),
            "|",
            len(rows),
            "|",
            " | ".join(f"{m:.1%} / {p:.0%}" for m, p in cells),
            "|",
            flush=True,
        )
    middle = np.median(np.array(table), axis=0)
    print("| **median over groups** | |", " | ".join(f"**{m:.1%} / {p:.1%}**" for m, p in middle), "|")


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


def _groups(slopes: Slopes) -> dict[tuple[str, ...], list[int]]:
    found: dict[tuple[str, ...], list[int]] = {}
    for row, case in enumerate(slopes.cases):
        found.setdefault((case.cells.text("source"), case.stack, case.cells.text("gpu")), []).append(row)
    return {key: rows for key, rows in found.items() if len(rows) >= FEWEST}


def _cells(slopes: Slopes, rows: Sequence[int], phase_s: Floats) -> Iterator[tuple[float, float]]:
    """(median, p90) of errors without runs, with k drawn ones, and with the k that are asked for."""
    source = slopes.cases[rows[0]].cells.text("source")
    kept = np.array([case.cells.text("source") != source for case in slopes.cases])
    ours = shipped_fit()
    fit = replace(fit_of(slopes, kept, apart_of(slopes)), novelty=ours.novelty, routing=ours.routing)
    prior = prior_of([slopes.cases[row].resolved for row in rows], fit)
    measured = np.array([slopes.cases[row].seconds or 0.0 for row in rows])
    yield _score(_errors(phase_s, measured, prior, []))
    draw = np.random.default_rng(0)
    for k in RUNS:
        drawn = [draw.choice(len(rows), k, replace=False).tolist() for _ in range(DRAWS)]
        scores = [_score(_errors(phase_s, measured, prior, own)) for own in drawn]
        yield tuple(np.mean(scores, axis=0))  # type: ignore[misc]
    asked = choose_runs(phase_s / phase_s.sum(axis=1, keepdims=True), prior, SIGMA, max(RUNS))
    for k in RUNS:
        yield _score(_errors(phase_s, measured, prior, asked[:k]))


def _errors(phase_s: Floats, measured: Floats, prior: Floats, own: Sequence[int]) -> Floats:
    """Errors of the rows of a group that are not one's own."""
    others = np.setdiff1d(np.arange(len(measured)), own)
    if not own:
        return np.asarray(phase_s.sum(axis=1) / measured - 1)
    found = learn(phase_s[own], measured[own], prior, SIGMA)
    return np.asarray(found.share(phase_s[others])[0] / measured[others] - 1)


def _score(errors: Floats) -> tuple[float, float]:
    size = np.abs(errors)
    return float(np.median(size)), float(np.quantile(size, 0.9))


if __name__ == "__main__":
    main(*sys.argv[1:])
