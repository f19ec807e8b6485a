"""Sweep files: what they may say, and one line for what they may not."""

from pathlib import Path

import pytest
from runcast.simulator import UserError
from runcast.simulator.answers.sweep import load_sweep

SHIPPED = sorted((Path(__file__).parents[2] / "data/sweeps").glob("*.toml"))


def test_the_first_shipped_sweep_is_small_and_local():
    assert (SHIPPED[0].name, len(load_sweep(SHIPPED[0]))) == ("bucket-tiny.toml", 18)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_sweeps_load(path):
    assert 0 < len(load_sweep(path)) < 100


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_sweep_over_machines_says_what_each_costs(path):
    sweep = load_sweep(path)

    assert "cluster" not in sweep.grid.columns or "cost_usd" in sweep.table


def test_named_what_ifs_and_those_of_the_file_are_changes(sweep_file):
    text = '[[axes]]\nwhat_if = ["as is", "bucket x2", "mine"]\n[what_if.mine]\nchanges = { "nodes" = 2 }\n'
    grid = load_sweep(sweep_file(text)).grid

    assert [grid.tables(i) for i in range(3)] == [(), ({"update.bucket": {"times": 2}},), ({"nodes": 2},)]


def test_seeds_repeat_every_point(sweep_file):
    grid = load_sweep(sweep_file('points = [{ "nodes" = 1 }]\nrepeats = { seeds = [3, 4] }\n')).grid

    assert [grid.tables(i) for i in range(2)] == [({"nodes": 1}, {"seed": 3}), ({"nodes": 1}, {"seed": 4})]


def test_changes_are_made_to_the_base(sweep_file):
    assert load_sweep(sweep_file(), ["nodes=3"]).base["nodes"] == 3


def test_constraints_on_keys_and_on_columns_are_told_apart(sweep_file):
    text = 'constraints = ["nodes * update.bucket <= 4 MiB", "update_time_s < 2"]\npoints = [{ "nodes" = 1 }]\n'
    sweep = load_sweep(sweep_file(text))

    assert ([one.names for one in sweep.limits], [one.names for one in sweep.demands]) == (
        [("nodes", "update.bucket")],
        [("update_time_s",)],
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "sweep.toml: give either axes or points"),
        ("axes = []\n", "axes = []: expected at least 1"),
        ("[[axes]]\nkey = 'nodes'\n", "axes.0: expected key and values; key, from, to and one of"),
        ("[[axes]]\nkey = 'nodes'\nvalues = []\n", "axes.0.values = []: expected at least 1"),
        ("[[axes]]\nkey = 'nodes'\nvalue = [1]\n", "axes.0.value: unknown key; did you mean values?"),
        ("[[axes]]\nkey = 'update.buckett'\nvalues = [1]\n", "'update.buckett': unknown; did you mean update.bucket"),
        ("[[axes]]\nkey = 'nodes'\nfrom = 1\nto = 9\nstep = -1\n", "axes.0: steps of -1 never lead from 1 to 9"),
        ("[[axes]]\nkey = 'kind'\nvalues = [1]\n", "is the same for all points"),
        ("[[axes]]\nkey = 'nodes'\nvalues = [1]\n" * 2, "axes.1 = 'nodes': would replace nodes of axes.0"),
        ("[[axes]]\nkey = 'cluster.nic'\nvalues = ['100 Gb/s']\n[[axes]]\nkey = 'cluster'\nvalues = ['dgx-h100']\n",
         "axes.1 = 'cluster': would replace cluster.nic of axes.0; put it before that axis, or leave one out"),
        ("[[axes]]\nwhat_if = ['bucket x2']\n[[axes]]\nkey = 'update.bucket'\nvalues = [1]\n",
         "axes.1 = 'update.bucket': would replace update.bucket of axes.0"),
        ("[[axes]]\nzip = { 'nodes' = [1, 2], 'fold' = [true] }\n", "axes.0: keys of zip need lists of one length"),
        ("[[axes]]\nwhat_if = ['NDR 80']\n", "axes.0.what_if = 'NDR 80': unknown; did you mean NDR 800"),
        ("constraints = ['nodes <= many']\npoints = [{ 'nodes' = 1 }]\n", "constraints.0 = 'nodes <= many'"),
        ("constraints = ['update.bukket <= 3']\npoints = [{ 'nodes' = 1 }]\n", "did you mean update.bucket"),
        ("constraints = ['update_time <= 3']\npoints = [{ 'nodes' = 1 }]\n",
         "update_time is no key and no column; did you mean update_time_s"),
        ("constraints = ['exposed_brodcast_s <= 3']\npoints = [{ 'nodes' = 1 }]\n",
         "exposed_brodcast_s is no key and no column; did you mean exposed_broadcast_s"),
        ("constraints = ['provenance_guessed_share <= 3']\npoints = [{ 'nodes' = 1 }]\n", "is no key and no column"),
        ("constraints = ['bound_by <= 3']\npoints = [{ 'nodes' = 1 }]\n", "bound_by is text, no number"),
        ("constraints = ['update.bucket <= 5 ms']\npoints = [{ 'nodes' = 1 }]\n",
         "'update.bucket <= 5 ms': update.bucket: unknown unit 'ms'; expected a quantity such as"),
        ("constraints = ['update_time_s <= 5 GiB']\npoints = [{ 'nodes' = 1 }]\n",
         "update_time_s: unknown unit 'GiB'"),
        ("constraints = ['nodes <= 5 s']\npoints = [{ 'nodes' = 1 }]\n", "nodes: has no unit here; expected a number"),
        ("table = ['update_time']\npoints = [{ 'nodes' = 1 }]\n",
         "table = 'update_time': unknown; did you mean update_time_s"),
        ("constraints = ['nodes * update_time_s <= 3']\npoints = [{ 'nodes' = 1 }]\n", "a constraint is on either"),
        ("".join(f"[[axes]]\nkey = '{key}'\nfrom = 1\nto = 9e4\nstep = 1\n" for key in ("nodes", "seed")),
         "at most 10,000,000 points"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line(sweep_file, text, line):
    with pytest.raises(UserError) as refused:
        load_sweep(sweep_file(text))

    assert (len(refused.value.faults), line in str(refused.value)) == (1, True), str(refused.value)


def test_a_base_that_is_not_there_is_named_with_its_sweep(sweep_file):
    file = sweep_file("points = [{ 'nodes' = 1 }]\n", base="base = 'gone/winner.toml'\n")

    with pytest.raises(UserError, match=r"s.*\.toml: base = 'gone/winner.toml': no such file: /.*gone/winner.toml$"):
        load_sweep(file)


def test_a_kind_without_seed_has_no_repeats(sweep_file):
    text = 'points = [{ "nodes" = 1 }]\nrepeats = { seeds = [1] }\n[base]\nkind = "train_step"\n'

    with pytest.raises(UserError, match="'seed': unknown"):
        load_sweep(sweep_file(text, base=""))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("nonsense.key=3", "nonsense: unknown key; did you mean"),
        ("update.nokey=3", "update.nokey: unknown key; known: bucket"),
        ("nodes=two", "nodes = 'two': expected a whole number"),
        ("cluster.oversubscripton=2", "cluster.oversubscripton: unknown key"),
        ("cluster=dgx-h1", "cluster = 'dgx-h1': unknown; did you mean dgx-h100"),
    ],
)
def test_a_change_that_no_point_can_have_is_refused_at_once(sweep_file, change, line):
    with pytest.raises(UserError) as refused:
        load_sweep(sweep_file(), [change])

    assert (len(refused.value.faults), line in str(refused.value)) == (1, True), str(refused.value)


def test_a_base_may_lack_or_get_wrong_what_an_axis_replaces():
    axes = [{"key": "nodes", "values": [1]}, {"key": "cluster", "values": ["dgx-h100"]}]
    base = {"kind": "collective", "nodes": "many", "cluster": {"bse": "dgx-h100"}, "collective": {"op": "reduce"}}

    assert len(load_sweep({"base": base, "axes": axes})) == 1
