"""Shares of algorithms: data/algorithms.toml is what the ledger's forced rows of a device say."""

from dataclasses import replace
from importlib.resources import files
from math import log

import pandas as pd
import pytest
from runcast.simulator.base.files import read_toml
from runcast.simulator.collectives import Machines
from runcast.simulator.collectives.algorithms import algorithms
from runcast.simulator.collectives.algorithms.hops import ClusterNet
from runcast.simulator.collectives.algorithms.shares import Share, share_of
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import Parameter, load_network, load_profile, load_stack

DATA = files("runcast.data")
TABLE = read_toml(DATA / "algorithms.toml")
NAMED = [(op, name) for op, named in TABLE.items() for name in named]
DEVICE, PROFILE, NODE = "B200 SXM", "b200-sxm", "dgx-b200"
LARGE = 8 << 30


def rows(op, nccl, *, quoted=False):
    with (DATA / "validation/collectives.csv").open() as file:
        ledger = pd.read_csv(file)
    healthy = ~ledger["network"].str.contains("degraded") & (ledger["column"].str.startswith("peak") == quoted)
    return ledger[(ledger["op"] == op) & ledger["algorithm"].isin(nccl) & healthy]


def formula_s(device, algorithm, row, given):
    """A closed form as its bytes allow it."""
    profile = load_profile(device).join(load_network("infiniband")).join(load_stack("generic"))
    net = ClusterNet(Machines(cluster(given, row.n_nodes), profile), range(row.n_gpus), algorithm.op)
    return net.formula(algorithm, row.bytes).seconds


@pytest.mark.parametrize(("op", "name"), NAMED)
def test_shares_are_what_forced_rows_say(op, name, monkeypatch):
    monkeypatch.setattr("runcast.simulator.collectives.algorithms.hops.share_of", lambda *_: Share())
    entry, algorithm = TABLE[op][name][DEVICE], algorithms(op)[name]
    fitted = [row for row in rows(op, entry["nccl"]).itertuples() if row.bytes >= LARGE and row.gpu == DEVICE]

    found = pd.Series([formula_s(PROFILE, algorithm, row, NODE) / (row.time_us / 1e6) for row in fitted])

    assert (len(found), found.median(), found.map(log).std()) == pytest.approx(
        (entry["rows"], entry["share"], entry["spread"]), abs=5e-4
    )


def test_a_tree_takes_its_share_on_the_device_that_it_was_fitted_to():
    """The largest row of Tree, on 64 nodes."""
    row = max(rows("all_reduce", ["Tree"]).itertuples(), key=lambda row: row.n_gpus)

    found = formula_s(PROFILE, algorithms("all_reduce")["tree"], row, NODE)

    assert found == pytest.approx(row.time_us / 1e6, rel=0.03)


def test_a_tree_on_another_device_reaches_what_its_bytes_allow():
    """NCCL issue 1368: the one row of H100, on 5 nodes of 4 x 400 Gb/s."""
    (row,) = (row for row in rows("all_reduce", ["Tree"], quoted=True).itertuples() if row.gpu == "H100 SXM")

    found = formula_s("h100-sxm", algorithms("all_reduce")["tree"], row, {"base": "dgx-h100", "nics": 4})

    assert found == pytest.approx(row.time_us / 1e6, rel=0.1)


def test_what_nobody_measured_reaches_what_its_bytes_allow():
    assert share_of(algorithms("all_reduce")["ring"], DEVICE, load_profile(PROFILE)) == Share()


def test_a_profile_knows_better_than_what_is_shipped():
    tree, mine = algorithms("all_reduce")["tree"], load_profile(PROFILE)
    own = {
        "algorithm.all_reduce.tree.share": Parameter(0.7, 0.1, "measured", "-"),
        "algorithm.all_reduce.tree.steps": Parameter(2.0, 0.2, "measured", "-"),
    }

    found = share_of(tree, DEVICE, replace(mine, parameters={**mine.parameters, **own}))

    assert (share_of(tree, DEVICE, mine).value, found) == (0.564, Share(0.7, 0.1, 2.0, 0.2))
