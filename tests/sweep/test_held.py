"""What `--set` says holds at every point of a sweep, whatever an axis replaces."""

import pandas as pd
import pytest
from runcast.simulator import UserError
from runcast.simulator.answers.sweep import load_sweep, run_sweep
from runcast.simulator.runner import InProcess

CLUSTERS = {"key": "cluster", "values": ["dgx-h100", "dgx-b200"]}
DAYS = {"name": "days", "base": "run-llama3-70b-512xh100", "axes": [CLUSTERS]}
PRICE = "cluster.device.price_usd_per_hour"


def costs(folder, **changes):
    run_sweep(load_sweep(DAYS, changes), folder, InProcess())
    return pd.read_csv(folder / "report.csv")["cost_usd"].tolist()


def test_a_price_holds_for_every_cluster_of_an_axis(tmp_path):
    dear, cheap = (costs(tmp_path / str(usd), **{PRICE: usd}) for usd in (4, 2))

    assert [a / b for a, b in zip(dear, cheap, strict=True)] == pytest.approx([2, 2])


def test_a_key_that_an_axis_varies_is_refused():
    with pytest.raises(UserError, match=r"^--set cluster: the sweep varies it; leave it out, or change the sweep$"):
        load_sweep(DAYS, {"cluster": "dgx-h200"})


def test_a_key_of_a_plan_that_an_axis_varies_is_refused():
    sizes = {**DAYS, "axes": [{"key": "batch.micro", "values": [1, 2]}]}

    with pytest.raises(UserError, match=r"^--set batch.micro: the sweep varies it"):
        load_sweep(sizes, ["plan=train-llama3-70b-64xh100"])
