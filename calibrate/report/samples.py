"""Tables of samples beside a Profile: which files they are from, and errors by class and size."""

from pathlib import Path

import numpy as np
import pandas as pd

from ...simulator.figures import Table
from ...simulator.formats.samples import Samples
from ...simulator.profile import Profile
from ..check import check_profile


def tables(profile: Profile, samples: Samples, points: pd.DataFrame) -> list[Table]:
    """Which files were drawn, and errors by class and size band."""
    files = [
        [Path(str(file)).name, len(rows), rows["seen"].iloc[0], *_errors(rows)]
        for file, rows in points.groupby("file", sort=True)
    ]
    headers = ["file", "rows scored", "seen by the fit?", "median %", "p90 %", "bias %"]
    checked, _ = check_profile(profile, samples)
    cells = [list(row) for row in checked.itertuples(index=False)]
    return [
        Table("Files of these samples", headers, files),
        Table("Errors on these samples by class and size", list(checked.columns), cells),
    ]


def _errors(rows: pd.DataFrame) -> list[float]:
    error = (rows["predicted_s"] / rows["measured_s"] - 1).to_numpy()
    values = (np.median(np.abs(error)), np.quantile(np.abs(error), 0.9), np.median(error))
    return [round(100 * float(value), 1) for value in values]
