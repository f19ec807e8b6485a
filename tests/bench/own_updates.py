"""What k weight updates of one's own are worth: the table of docs/own-runs.md. Takes two minutes on two cores.

The base is the stack `generic`, which no fit to the ledger has moved: the rows are a stranger's. k rows of a group
(system, stack, GPU) are one's own, all choices of one and 30 random ones of more; the other rows of the group are
predicted by what these say. `python tests/bench/own_updates.py [BASE]`.
"""

import sys

import numpy as np
from runcast.calibrate.fitting.learning import learn
from runcast.calibrate.fitting.ledger import SIGMA
from runcast.calibrate.fitting.update_runs import UpdateRun, free_parameters, learn_parameters
from runcast.simulator.answers.validate.updates import read_cases, shipped_table

FEWEST = 4
DRAWS = 30
RUNS = (0, 1, 3)


def groups_of(base):
    """The rows of each system with enough that can be predicted, as runs on the base, by (system, stack, GPU)."""
    found = {}
    for named, case in zip(read_cases(shipped_table()), read_cases(shipped_table(), base), strict=True):
        if named.scenario is None:
            continue
        system, gpu = case.cells["system"], case.cells["gpu"]
        stack = named.stack if system == "checkpoint-engine" else system  # revisions are software of their own
        run = UpdateRun(case.where, case.resolved, case.seconds, "", system, gpu, case=case)
        found.setdefault((stack, gpu), []).append(run)
    return {key: runs for key, runs in found.items() if len(runs) >= FEWEST}


def errors_of(parts, measured, prior, own):
    """Errors of the rows of a group that are not one's own."""
    others = np.setdiff1d(np.arange(len(measured)), own)
    found = learn(parts.choose(own), measured[own], prior, SIGMA, by=learn_parameters)
    return parts.choose(others).predict(found.u)[0] / measured[others] - 1


def choices(rows, k):
    """Which rows are one's own, once for each try."""
    draw = np.random.default_rng(0)
    if k == 0:
        return [np.zeros(0, int)]
    return [np.array([row]) for row in range(rows)] if k == 1 else [draw.choice(rows, k, False) for _ in range(DRAWS)]


def scores(parts, measured, prior):
    """(median, 90th percentile) of absolute errors on the other rows, by the number of one's own."""
    found = []
    for k in RUNS:
        size = [np.abs(errors_of(parts, measured, prior, own)) for own in choices(len(measured), k)]
        found.append((np.mean([np.median(s) for s in size]), np.mean([np.quantile(s, 0.9) for s in size])))
    return found


def main(base="generic"):
    """Print the table."""
    table = []
    for (stack, gpu), runs in groups_of(base).items():
        measured = np.array([run.seconds for run in runs])
        free = free_parameters(runs)
        parts = free.split(runs, np.zeros(len(free.names) + 1))
        table.append(scores(parts, measured, free.prior))
        cells = " | ".join(f"{m:.1%} / {p:.0%}" for m, p in table[-1])
        print(f"| {stack}, {gpu} | {len(runs)} | {cells} |", flush=True)
        farthest = np.exp(np.abs(np.log(parts.seconds.sum(axis=1) / measured)).max())
        print(f"farthest off {farthest:.1f} times; free: {', '.join(free.names)}", file=sys.stderr)
    middle = np.median(np.array(table), axis=0)
    print("| **median over groups** | |", " | ".join(f"**{m:.1%} / {p:.1%}**" for m, p in middle), "|")


if __name__ == "__main__":
    main(*sys.argv[1:])
