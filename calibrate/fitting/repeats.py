"""How far a training step is from itself when it is run again: rows of the ledger that say the same configuration."""

from collections.abc import Sequence

import numpy as np

from ...simulator.answers.validate.steps import Case
from ...simulator.answers.validate.steps.pairs import OUTCOMES


def run_to_run(cases: Sequence[Case]) -> tuple[float, int]:
    """Standard deviation of ln(seconds) among rows of equal configuration, and how many rows those are.

    All that rows say is compared, source and release included, but for what came out. Pooled over configurations, each
    with its own mean.
    """
    alike: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for case in cases:
        said = tuple((name, value) for name, value in case.cells.values.items() if name not in OUTCOMES)
        alike.setdefault(said, []).append(float(np.log(case.cells.number("iter_time_s"))))
    repeated = [np.array(logs) for logs in alike.values() if len(logs) > 1]
    freedom = sum(len(logs) - 1 for logs in repeated)
    squares = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in repeated)
    return (squares / freedom) ** 0.5 if freedom else 0.0, sum(map(len, repeated))
