"""What k runs of one's own are worth: the table of docs/own-runs.md. Takes 8 minutes on two cores.

Each source is left out of the fit of training steps; its rows are predicted with what the others gave. Then k rows of
a group (source, stack, GPU) with 15 rows or more are one's own runs, and the other rows of the group are predicted by
what these say. `python tests/bench/own_runs.py [CACHE.npz]`; the cache keeps what takes long.
"""

import sys
from pathlib import Path

import numpy as np
from runcast.calibrate.fitting.runs import learn, prior_of
from runcast.calibrate.fitting.step_ledger import Crew, _simulated, _watch, usable
from runcast.calibrate.fitting.steps import SIGMA, Design
from runcast.simulator.answers.validate.steps import shipped_table
from runcast.simulator.uncertainty import shipped_fit

FEWEST = 15
DRAWS = 30
RUNS = (0, 1, 3, 5, 10)


def predict_without_sources(path):
    """(rows that can be predicted, their seconds by phase with their source out of the fit)."""
    cases = usable(path)
    design = Design(cases)
    sources = np.array([case.cells.text("source") for case in cases])
    with Crew(path, [case.key for case in cases]) as crew:
        rows = _simulated(design, crew, np.zeros(len(design.free)))
        _watch(design, crew, rows)
        for _ in range(3):
            change = design.solve(rows, np.ones(len(cases), bool), rows.u) - rows.u
            rows = _simulated(design, crew, rows.u + np.clip(change, -1, 1))
        _watch(design, crew, rows)
        values = {}
        for source in dict.fromkeys(sources.tolist()):
            u = design.solve(rows, sources != source, rows.u)
            values |= {row: design.values(row, u) for row in np.flatnonzero(sources == source).tolist()}
        answers = crew.predict(values)
    return cases, np.array([answers[row].phase_s for row in range(len(cases))])


def errors_of(phase_s, measured, prior, own):
    """Errors of the rows of a group that are not one's own."""
    others = np.setdiff1d(np.arange(len(measured)), own)
    if not len(own):
        return phase_s[others].sum(axis=1) / measured[others] - 1
    found = learn(phase_s[own], measured[own], prior, SIGMA)
    return found.share(phase_s[others])[0] / measured[others] - 1


def main(cache=None):
    """Print the table."""
    if cache and Path(cache).exists():
        cases, phase_s = usable(shipped_table()), np.load(cache)["phase_s"]
    else:
        cases, phase_s = predict_without_sources(shipped_table())
        if cache:
            np.savez(cache, phase_s=phase_s)
    measured = np.array([case.seconds for case in cases])
    keys = [(case.cells.text("source"), case.stack, case.cells.text("gpu")) for case in cases]
    table = []
    for key in dict.fromkeys(keys):
        rows = np.array([row for row, of in enumerate(keys) if of == key])
        if len(rows) < FEWEST:
            continue
        prior, draw = prior_of([cases[row].resolved for row in rows[:8]], shipped_fit()), np.random.default_rng(0)
        cells = []
        for k in RUNS:
            found = [
                errors_of(phase_s[rows], measured[rows], prior, draw.choice(len(rows), k, replace=False))
                for _ in range(DRAWS if k else 1)
            ]
            size = [np.abs(error) for error in found]
            cells.append((np.mean([np.median(s) for s in size]), np.mean([np.quantile(s, 0.9) for s in size])))
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


if __name__ == "__main__":
    main(*sys.argv[1:])
