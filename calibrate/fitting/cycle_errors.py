"""What published RL cycles are off beyond their parts' errors: the content of data/validation/cycle_errors.json.

A row's error is ln(predicted / measured), and its `width` the deviation that its phases leave open. The width of what a
cycle leaves out is the most likely one of normal errors, where each source counts as one, however many rows it has.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

from ...simulator.answers.validate.cycles import CycleLedger, read_cycle_ledger
from ...simulator.base.files import digest
from ...simulator.systems.rl_cycle.errors import WHOLE

_LEAST, _MOST = 1e-3, 2.0  # widths to look between


def fit_cycle_errors(path: Path | None, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """The content of data/validation/cycle_errors.json for a table of cycles; a UserError if it cannot be read."""
    ledger = read_cycle_ledger(path)
    found = errors_of(ledger)
    tell(found["widths"]["cycle"]["source"])
    return found


def errors_of(ledger: CycleLedger) -> dict[str, Any]:
    """The same for a ledger that was read."""
    rows = ledger.scored[ledger.scored["metric"] == WHOLE]
    sources = list(map(str, rows["source"].unique()))
    why = f"{len(rows)} whole steps of {len(sources)} sources: the most likely width, each source counts as one"
    return {
        "about": {"command": "runcast calibrate cycle-errors", "file": ledger.path.name, "sha256": digest(ledger.path)},
        "widths": {"cycle": {"value": _width(rows), "source": why}},
        "without": {source: _width(rows[rows["source"] != source]) for source in sources},
    }


def likely_width(rows: pd.DataFrame) -> float:
    """The width by rows with `source`, `error` (predicted / measured - 1) and `width`."""
    size, own = np.log1p(rows["error"].to_numpy()), rows["width"].to_numpy()
    sources = [np.asarray(at) for at in rows.groupby("source").indices.values()]

    def unlikeliness(width: float) -> float:
        spread = np.hypot(own, width)
        each = np.log(spread) + (size / spread) ** 2 / 2
        return sum(float(each[at].mean()) for at in sources)

    return float(minimize_scalar(unlikeliness, bounds=(_LEAST, _MOST), method="bounded").x)


def _width(rows: pd.DataFrame) -> float:
    return float(f"{likely_width(rows):.2g}")
