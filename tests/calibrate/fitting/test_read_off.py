"""Parameters that are read off models, from samples made by the formulas: what went in comes out."""

import numpy as np
import pandas as pd
import pytest
from runcast.calibrate.fitting.observed import entries_of
from runcast.calibrate.fitting.read_off import experts_rate, read_off
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import Profile, load_profile

SIZES = 2.0 ** np.arange(10, 30, 2)
NODE = cluster("dgx-h100", 1)


@pytest.fixture
def read(made, fit, limits):
    """`read(kind=table, ..., on=NODE)`: the values of parameters, by name, from samples of these classes."""

    def values(tables, on=NODE):
        models = {kind: {"made": fit(kind, table)} for kind, table in tables.items()}
        samples = pd.concat([table.assign(cost_class=kind, library="made") for kind, table in tables.items()])
        return {name: entry["value"] for name, entry in read_off(models, samples, limits, on).items()}

    return values


def copies(made, way, a_s, e):
    return made(f"copy.{way}", {"a_s": a_s, "e": e}, bytes=SIZES)


def ring(made, kind, h_s, gpus, nodes=None, sizes=SIZES, **more):
    """Messages of every size on so many ranks."""
    size, ranks = (grid.ravel() for grid in np.meshgrid(sizes, gpus))
    of = {} if nodes is None else {"nodes": np.repeat(nodes, len(sizes))}
    return made(kind, {"h_s": h_s} | more, bytes=size, gpus=ranks, **of)


def test_the_rate_of_a_copy_is_that_of_the_longest(made, read):
    """Caches hold the small ones, so that a formula of all sizes is too fast."""
    table = copies(made, "d2d", 1e-6, 0.5)
    table.loc[table["bytes"] < 2**26, "seconds"] /= 2
    longest = table.iloc[-1]
    assert read({"copy.d2d": table})["copy.hbm_fraction"] == pytest.approx(
        longest["bytes"] / longest["seconds"] / 1.5e12, rel=0.02
    )


def test_copies_to_the_host_are_told_beside_those_from_it(made, read):
    tables = {"copy.h2d": copies(made, "h2d", 1e-5, 0.9), "copy.d2h": copies(made, "d2h", 1e-5, 0.6)}
    assert read(tables)["copy.d2h_fraction"] == pytest.approx(0.6 / 0.9, rel=0.02)


def test_a_copy_starts_and_is_waited_for(made, read):
    wait = made("host.synchronize", {"item_s": 5e-6}, count=np.ones(3))
    tables = {"copy.h2d": copies(made, "h2d", 1e-5, 0.9), "host.synchronize": wait}
    assert read(tables)["h2d.latency_s"] == pytest.approx(1.5e-5, rel=0.05)


def test_a_broadcast_speaks_for_itself_and_a_gather_where_there_is_none(made, read):
    gather = ring(made, "all_gather", 3e-6, [4, 8], a_s=4e-5)
    cast = ring(made, "broadcast", 2e-6, [4, 8], a_s=1e-5)
    found = [
        read(tables)["broadcast.latency_s"]
        for tables in ({"all_gather": gather}, {"all_gather": gather, "broadcast": cast})
    ]
    assert found == pytest.approx([4e-5, 1e-5], rel=0.3)


def test_a_host_without_nvlink_has_a_rate_of_its_rings(made, read):
    cast = {"broadcast": ring(made, "broadcast", 1e-6, [2, 4, 8])}
    names = [{name for name in read(cast, on) if name.endswith("link_fraction") or "nvlink" in name}
             for on in (NODE, cluster("cpu-host", 1))]  # fmt: skip
    assert names == [{"link_fraction.nvlink"}, {"broadcast.link_fraction"}]


def test_a_hop_between_nodes_is_what_hops_inside_leave(made, read):
    """Rings of 8 GPUs on N nodes, whose mean step is that of their N (8 - 1) and N - 1 steps."""
    hop, node_hop, nodes = 1e-6, 2e-5, np.array([2, 4, 8])
    steps = nodes * 8 - 1
    network = pd.concat(
        ring(made, "broadcast.network", (n * 7 * hop + (n - 1) * node_hop) / step, [8 * n], [n])
        for n, step in zip(nodes, steps, strict=True)
    )
    found = read({"broadcast": ring(made, "broadcast", hop, [4, 8]), "broadcast.network": network})
    assert found["broadcast.node_hop_s"] == pytest.approx(node_hop, rel=0.2)


@pytest.mark.parametrize(("nodes", "fraction"), [(2, 0.36), (4, 0.44)])
def test_the_rate_of_nics_over_more_nodes_is_told_by_two(nodes, fraction, made, read):
    network = ring(made, "all_reduce.network", 5e-6, [8 * nodes], [nodes], e=0.44, e2=0.44, c=0.01)
    assert read({"all_reduce.network": network})["link_fraction.nic"] == pytest.approx(fraction, rel=0.02)


def test_agreement_is_the_smallest_all_reduce(made, read):
    table = ring(made, "all_reduce", 1e-6, [4, 8])
    smallest = table[(table["bytes"] == SIZES[0]) & (table["gpus"] == 8)]["seconds"].item()
    assert read({"all_reduce": table})["agree.latency_s"] == pytest.approx(smallest, rel=0.05)


def test_a_doubling_of_nodes_compares_messages_of_one_size(made, read):
    """16 KiB in a node and 1 KiB between nodes: the formula says what 16 KiB take between them."""
    inside, a_s, h_s = ring(made, "all_reduce", 1e-6, [8], sizes=SIZES[2:]), 2e-5, 5e-6
    network = ring(made, "all_reduce.network", h_s, [16], [2], a_s=a_s)
    took = [table[table["bytes"] == SIZES[2]]["seconds"].item() for table in (network, inside)]
    wire = sum(NODE.links[link].latency_s for link in (NODE.nic_tx("n0.nic0"), NODE.nic_rx("n0.nic0")))
    found = read({"all_reduce": inside, "all_reduce.network": network})["agree.doubling_s"]
    assert found == pytest.approx(took[0] - took[1] - 2 * wire, rel=0.1)


def test_long_messages_do_not_tell_a_latency_and_short_ones_no_rate(made, read):
    sizes = np.array([2.0**17, 2.0**18, 2.0**20, 2.0**22, 2.0**23])
    inside = {kind: ring(made, kind, 1e-6, [8], sizes=sizes) for kind in ("broadcast", "all_reduce")}
    tables = inside | {"all_reduce.network": ring(made, "all_reduce.network", 1e-6, [16], [2], sizes=sizes)}
    assert {"agree.latency_s", "agree.doubling_s", "link_fraction.nvlink"}.isdisjoint(read(tables))


def test_a_reload_moves_the_bytes_of_its_largest_tensors(limits):
    def copy(tensors, size, seconds):
        params = {"tensors": tensors, "bytes": size}
        case = {"group": "reload", "case": "copy_per_tensor", "params": params, "samples": [seconds * 1e6] * 3}
        return case | {"source": "s.jsonl:2"}

    records = [copy(1000, 1000, 1.0), copy(100, 3_000_000, 4e-4)]
    entry = entries_of(records, limits)["reload.hbm_fraction"]
    assert (entry["value"], entry["provenance"]) == (0.5, "measured")  # 600 MB of 3 TB/s


def test_experts_that_take_twice_as_long_have_half_the_rate():
    h100 = load_profile("h100-sxm")
    rows = pd.DataFrame(
        {"cost_class": "grouped_gemm.bf16", "library": "torch grouped_mm", "tokens": [4096.0, 8192.0], "hidden": 4096.0,
         "inter": 1536.0, "topk": 1.0, "experts": 16.0, "matrices": 3.0, "skew": 0.0, "seconds": [1.0, 1.0]}
    )  # fmt: skip
    slow = [rate(h100, rows.assign(seconds=seconds)) for seconds in (0.1, 0.2)]
    assert slow[0] / slow[1] == pytest.approx(2, rel=0.01)


def rate(profile: Profile, rows: pd.DataFrame) -> float:
    (entry,) = experts_rate(rows, profile, profile.limits).values()
    return entry["value"]


def test_tables_of_serving_say_nothing_of_training():
    h100 = load_profile("h100-sxm")
    rows = pd.DataFrame({"cost_class": ["grouped_gemm.bf16"], "library": ["vllm/0.24.0"], "skew": [0.0]})
    assert experts_rate(rows, h100, h100.limits) == {}
