"""Samples made by the formulas themselves, on hardware of round numbers."""

import numpy as np
import pandas as pd
import pytest
from runcast.calibrate.fitting import fit_model
from runcast.simulator.hardware import Limits
from runcast.simulator.profile.forms import cost_class


@pytest.fixture
def limits():
    return Limits({"bf16": 1e15, "fp8": 2e15}, 3e12, 100, 50e6, 400e9, 60e9, 50e9, 8)


@pytest.fixture
def made(limits):
    """`made(kind, coefficients, noise=..., group=..., bytes=..., ...)`: a table of samples without any error but noise.

    Coefficients that are not given are those that a fit starts from.
    """

    def table(kind, coefficients, noise=1.0, group="g", **features):
        known = cost_class(kind)
        columns = known.columns(features, limits)
        all_of_them = {c.name: c.start for c in known.form.coefficients} | coefficients
        seconds = known.form.seconds(columns, limits, all_of_them) * noise
        return pd.DataFrame({**columns, "seconds": seconds, "group": group, "source": "made:1"})

    return table


@pytest.fixture
def fit(limits):
    """`fit(kind, table)`: the model of it."""
    return lambda kind, table: fit_model(kind, "made", table, limits, "this test")


@pytest.fixture
def off():
    """`off(model, table)`: log(predicted/measured) of each row."""

    def log_ratio(model, table):
        features = {name: table[name].to_numpy() for name in table.columns.drop(["seconds", "group", "source"])}
        return np.log(model.estimate(features).seconds / table["seconds"].to_numpy())

    return log_ratio
