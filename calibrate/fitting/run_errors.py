"""What published runs are off beyond what repeats and the step explain: the content of data/validation/run_errors.json.

A row's error is ln(predicted / measured), and `width` of the ledger what its repeats, drawn failure rates and the step
leave open. The model's own width s is the one for which the median over sources of |error| / hypot(s, width) is that of
a standard normal; within a source the median counts, so that many rows do not outvote other sources. It is widened by
Student's t for the number of sources. A quantity with few sources has none: what is left of two runs tells nothing.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import t as student

from ...simulator.answers.validate.runs import RunLedger, read_run_ledger
from ...simulator.base.files import digest
from ...simulator.profile import Z90
from ...simulator.systems.run.intervals import quantity_of

LEAST_SOURCES = 4
"""Sources from which a width is learned, also with one of them left out."""

_MEDIAN = 0.6745  # of the absolute value of a standard normal
_MOST = 10.0


def model_width(rows: pd.DataFrame) -> float:
    """The width of the model's error by rows with `source`, `error` (predicted / measured - 1) and `width`."""
    size, own = np.abs(np.log1p(rows["error"].to_numpy())), rows["width"].to_numpy()
    sources = [np.asarray(at) for at in rows.groupby("source").indices.values()]

    def excess(width: float) -> float:
        ratio = size / np.hypot(own, width)
        return float(np.median([np.median(ratio[at]) for at in sources])) - _MEDIAN

    least = 1e-6
    found = float(brentq(excess, least, _MOST)) if excess(least) > 0 else 0.0
    return found * float(student.ppf(0.95, len(sources) - 1)) / Z90


def widths(rows: pd.DataFrame) -> dict[str, float]:
    """The width of each quantity that has enough sources, of scored rows of a ledger."""
    parts = rows.groupby(rows["metric"].map(quantity_of))
    return {str(name): _round(model_width(part)) for name, part in parts if name and _is_enough(part)}


def _is_enough(rows: pd.DataFrame) -> bool:
    return bool(rows["source"].nunique() >= LEAST_SOURCES)


def fit_run_errors(path: Path, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """The content of data/validation/run_errors.json for a table of runs; a UserError if it cannot be read."""
    ledger = read_run_ledger(path)
    found = errors_of(ledger)
    tell(f"{len(ledger.scored)} scored rows of {len(found['without'])} sources")
    return found


def errors_of(ledger: RunLedger) -> dict[str, Any]:
    """The same for a ledger that was read."""
    rows = ledger.scored
    by = {str(name): part for name, part in rows.groupby(rows["metric"].map(quantity_of)) if name}
    shipped = widths(rows)
    return {
        "about": {"command": "runcast calibrate run-errors", "file": ledger.path.name, "sha256": digest(ledger.path)},
        "modes": sorted(set(rows["mode"])),
        "widths": {name: {"value": shipped.get(name, 0.0), "source": _why(part)} for name, part in by.items()},
        "without": {str(source): widths(rows[rows["source"] != source]) for source in rows["source"].unique()},
    }


def _why(rows: pd.DataFrame) -> str:
    many = f"{len(rows)} rows of {rows['source'].nunique()} sources"
    return f"{many}: median error over sources" if _is_enough(rows) else f"{many}, fewer than {LEAST_SOURCES}: none"


def _round(value: float) -> float:
    return float(f"{value:.3g}")
