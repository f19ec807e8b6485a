"""What NCCL chooses by backend nccl against rows of the ledger whose log forces no algorithm: docs/collectives.md."""

from importlib.resources import files

import pandas as pd
import pytest
from runcast.simulator.answers.validate.forced import _question, op_of
from runcast.simulator.base.errors import UserError
from runcast.simulator.scenario import check_question, resolve


def errors(device, op):
    """Signed errors of healthy rows of a device."""
    with (files("runcast.data") / "validation/collectives.csv").open() as file:
        ledger = pd.read_csv(file, dtype=str)
    ledger["line"] = ledger.index + 2
    asked = (ledger["gpu"] == device) & ledger["op"].map(op_of).eq(op) & ledger["algorithm"].isin(["default", "?"])
    healthy = ~ledger["network"].str.contains("degraded") & ~ledger["column"].str.startswith("peak")
    return pd.Series([error(row, op) for row in ledger[asked & healthy].to_dict("records")]).dropna()


def error(row, op):
    """Of one row; NaN where ranks lie on islands of unequal size."""
    question = _question(row, op)
    question["collective"] |= {"backend": "nccl", "algorithm": "all"}
    try:
        return resolve(check_question(question)).best.seconds / (float(row["time_us"]) * 1e-6) - 1
    except UserError:
        return float("nan")


@pytest.mark.slow
@pytest.mark.parametrize(("device", "op", "rows", "median", "p90"), [
    ("H100 SXM", "all_reduce", 83, 0.147, 0.377), ("B200 SXM", "all_reduce", 35, 0.117, 0.263),
    ("B200 SXM", "all_gather", 32, 0.164, 0.451), ("B200 SXM", "reduce_scatter", 20, 0.212, 0.485),
    ("GB300", "all_reduce", 25, 0.374, 0.497),
])  # fmt: skip
def test_errors_are_those_of_the_page(device, op, rows, median, p90):
    found = errors(device, op)
    assert (len(found), found.abs().median(), found.abs().quantile(0.9)) == (
        rows, pytest.approx(median, abs=6e-4), pytest.approx(p90, abs=6e-4),
    )  # fmt: skip
