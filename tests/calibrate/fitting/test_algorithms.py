"""`runcast calibrate fit` on rows whose log forces an algorithm: what it reaches between nodes, what its steps wait."""

import json
from functools import cache
from importlib.resources import files

import pandas as pd
import pytest
from runcast.calibrate.fitting.algorithms import algorithm_entries
from runcast.simulator import cli
from runcast.simulator.collectives import Machines
from runcast.simulator.collectives.algorithms import algorithms
from runcast.simulator.collectives.algorithms.hops import ClusterNet
from runcast.simulator.formats.samples import read_samples
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import Parameter, Profile, load_network, load_profile, load_stack

HEADER = "cost_class,device,library,seconds,bytes,gpus,nodes,network_bytes_per_s,algorithm\n"
LARGE, SMALL = [float(8 << 30), float(16 << 30)], [1024.0, 4096.0]


@cache
def base() -> Profile:
    return load_profile("b200-sxm").join(load_network("infiniband")).join(load_stack("generic"))


def seconds(name, size, nodes, share=1.0, steps=1.0):
    """What a closed form says on B200 where an algorithm reaches a share, and its steps wait so many times as long."""
    own = {f"algorithm.all_reduce.{name}.{which}": Parameter(value, 0.0, "exact", "-")
           for which, value in (("share", share), ("steps", steps))}  # fmt: skip
    mine = base().join(Profile("mine", parameters=own))
    net = ClusterNet(Machines(cluster("dgx-b200", nodes), mine), range(8 * nodes), "all_reduce")
    return net.formula(algorithms("all_reduce")[name], size).seconds


def row(theirs, time, size, nodes, gpus=None, rate=400e9):
    ranks = gpus or 8 * nodes
    return f"all_reduce,B200 SXM,nccl,{time!r},{size:.0f},{ranks},{nodes},{rate},{theirs}\n"


def fitted(path, *rows, machine="dgx-b200"):
    path.write_text(HEADER + "".join(rows))
    return algorithm_entries(read_samples([path]).forced, load_profile("b200-sxm"), machine)


@pytest.mark.parametrize(("theirs", "name"), [("Tree", "tree"), ("RING", "ring")])
def test_what_rows_were_made_from_is_found(theirs, name, tmp_path):
    rows = [row(theirs, seconds(name, size, nodes, 0.6, 2.5), size, nodes)
            for size in (*LARGE, *SMALL) for nodes in (4, 8)]  # fmt: skip

    found, said = fitted(tmp_path / "s.csv", *rows)

    values = {key: entry["value"] for key, entry in found.items()}
    assert values == pytest.approx(
        {f"algorithm.all_reduce.{name}.share": 0.6, f"algorithm.all_reduce.{name}.steps": 2.5}, rel=0.03
    )
    assert [line.split(" = ")[0] for line in said] == list(found)


def test_what_rows_do_not_tell_is_said(tmp_path):
    large = [row("Tree", seconds("tree", size, 4, 0.6), size, 4) for size in LARGE]

    found, said = fitted(tmp_path / "s.csv", *large)

    assert (list(found), said[1]) == (
        ["algorithm.all_reduce.tree.share"], "algorithm.all_reduce.tree.steps: not told: no row is mostly latency",
    )  # fmt: skip


def test_a_share_is_not_told_where_links_inside_nodes_set_the_pace(tmp_path):
    faster = [row("Ring", seconds("ring", size, 4) / 20, size, 4) for size in LARGE]

    found, said = fitted(tmp_path / "s.csv", *faster)

    assert (found, said[0]) == (
        {}, "algorithm.all_reduce.ring.share: not told: links inside nodes set the pace, or rows are out of reach",
    )  # fmt: skip


@pytest.mark.parametrize(("odd", "said"), [
    (row("PAT", 1.0, 1e9, 2), "all_reduce by PAT: no closed form is known (1 rows)"),
    (row("Tree", 1.0, 1e9, 1, gpus=8), "all_reduce by Tree: inside one node, where no rate between nodes is (1 rows)"),
    (row("Tree", 1.0, 1e9, 2, gpus=8), "all_reduce by Tree: not on whole nodes of 8 GPUs (1 rows)"),
    (row("Tree", 1.0, 1e9, 2, rate=2e11), "all_reduce by Tree: NICs of other rates than those of dgx-b200 (1 rows)"),
])  # fmt: skip
def test_rows_that_no_closed_form_explains_are_said(odd, said, tmp_path):
    assert fitted(tmp_path / "s.csv", odd) == ({}, [said])


def test_an_algorithm_that_the_cluster_cannot_run_is_said(tmp_path):
    file = tmp_path / "plain.toml"
    file.write_text('base = "dgx-b200"\nsharp = false\n')

    found, (line,) = fitted(tmp_path / "s.csv", row("CollNet", 1.0, 1e9, 2), machine=str(file))

    assert (found, line.startswith("all_reduce by CollNet: ")) == ({}, True)


def runcast(capsys, *arguments):
    with pytest.raises(SystemExit) as leave:
        cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return leave.value.code or 0, out, err


def test_the_verb_writes_what_predictions_then_take(tmp_path, capsys):
    table, mine = tmp_path / "s.csv", tmp_path / "mine.json"
    table.write_text(HEADER + "".join(row("Tree", seconds("tree", size, 4, 0.6), size, 4) for size in LARGE))
    ask = ["collective", "all_reduce", "--cluster", "dgx-b200", "--nodes", 8, "--sizes", "16GiB", "--algorithm", "tree"]

    _, out, _ = runcast(capsys, "calibrate", "fit", table, "-o", mine, "--base", "b200-sxm")
    levels = [
        json.loads(runcast(capsys, *ask, "--set", f"profile={mine}", "--level", level, "--json", "-")[1])["seconds"]
        for level in ("formula", "chunks")
    ]

    assert "algorithm.all_reduce.tree.share = 0.6 (2 rows, ±2%)" in out.splitlines()
    assert levels == pytest.approx([seconds("tree", float(16 << 30), 8, 0.6)] * 2, rel=0.01)


def test_forced_rows_alone_are_no_rows_to_validate(tmp_path, capsys):
    table = tmp_path / "s.csv"
    table.write_text(HEADER + row("Tree", 1.0, 1e9, 2) * 2)

    code, _, err = runcast(capsys, "validate", "--kind", "collective", "--rows", table)

    assert (code, err.splitlines()) == (
        2, [f"error: {table}:2: of a forced algorithm: fits that alone (2 rows)"],
    )  # fmt: skip


def test_forced_rows_do_not_move_a_curve(tmp_path):
    table = tmp_path / "s.csv"
    table.write_text(HEADER + row("", 0.1, 1e9, 2) + row("default", 0.2, 2e9, 2) + row("Tree", 9.0, 1e9, 2))

    samples = read_samples([table])

    assert (list(samples.table["seconds"]), list(samples.forced["seconds"])) == ([0.1, 0.2], [9.0])


def test_counts_below_128_gpus_tell_those_misses(tmp_path):
    """The ledger's forced rows of each cluster of B200, as docs/collectives.md has them."""
    errors = pd.concat(_misses(system, tmp_path / f"{system}.csv") for system in ("b200x8_slinky", "b200x8_use3a"))

    found = errors.groupby("algorithm")["error"].agg(
        rows="size", median=lambda e: e.abs().median(), p90=lambda e: e.abs().quantile(0.9)
    )
    assert found.round(3).to_dict("index") == {
        "ring": {"rows": 13, "median": 0.022, "p90": 0.076},
        "sharp": {"rows": 12, "median": 0.049, "p90": 0.068},
        "tree": {"rows": 6, "median": 0.0, "p90": 0.004},
    }


def _misses(system, path):
    """Errors on rows of 128 GPUs and more of large messages, by what the cluster's own smaller runs say."""
    with (files("runcast.data") / "validation/collectives.csv").open() as file:
        ledger = pd.read_csv(file)
    names = {"Ring": "ring", "Tree": "tree", "CollNet": "sharp", "CollnetChain": "sharp", "CollnetDirect": "sharp"}
    mine = ledger[(ledger["system"] == system) & (ledger["op"] == "all_reduce") & ledger["algorithm"].isin(names)
                  & ~ledger["network"].str.contains("degraded") & (ledger["bytes"] >= LARGE[0])]  # fmt: skip
    small, large = mine[mine["n_gpus"] < 128], mine[mine["n_gpus"] >= 128]
    entries, _ = fitted(path, *(row(r.algorithm, r.time_us / 1e6, r.bytes, r.n_nodes) for r in small.itertuples()))
    share = {name: entries[f"algorithm.all_reduce.{name}.share"]["value"] for name in set(names.values())}
    errors = [
        (names[r.algorithm], seconds(names[r.algorithm], float(r.bytes), r.n_nodes, share[names[r.algorithm]])
         / (r.time_us / 1e6) - 1) for r in large.itertuples()
    ]  # fmt: skip
    return pd.DataFrame(errors, columns=["algorithm", "error"])
