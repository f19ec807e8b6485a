"""The drawing of a fabric: a dot for each vertex, a line for each cable, or one for each level where there are many."""

from collections import Counter

import numpy as np
import pytest
from runcast.simulator.figures import draw_fabric
from runcast.simulator.hardware import cluster

SMALL = {"base": "dgx-h100", "gpus_per_node": 1, "nics": 1, "pcie_switches": 1, "sockets": 1}


def traces(figure) -> dict[str, int]:
    """How many dots each level has, and how many cables there are, of any rate."""
    shown = [trace for trace in figure.data if trace.showlegend is not False]
    names = ["cables" if "B/s" in trace.name else trace.name for trace in shown]
    counts = Counter[str]()
    for name, trace in zip(names, shown, strict=True):
        counts[name] += trace.x.count(None) or len(trace.x)
    return dict(counts)


@pytest.mark.parametrize(
    ("keys", "nodes", "drawn"),
    [
        ({"fabric": "fat_tree", "leaf_radix": 4}, 16,
         {"cables": 48, "nodes": 16, "leaves": 8, "aggregation switches": 8, "cores": 4}),
        ({"fabric": "torus", "sizes": [4, 4]}, 16, {"cables": 16 + 32, "nodes": 16, "routers": 16}),
        ({"fabric": "mesh", "sizes": [2, 3, 2]}, 12, {"cables": 12 + 20, "nodes": 12, "routers": 12}),
        ({"fabric": "dragonfly", "groups": 9, "group_routers": 4, "global_links": 2}, 36,
         {"cables": 36 + 9 * 6 + 36, "nodes": 36, "routers": 36}),
        ({"fabric": "leaf_spine", "leaf_radix": 16, "cabling": "leaf", "sites": 2, "site_bandwidth": "1 Tb/s"}, 32,
         {"cables": 32 + 2 * 16 + 4 + 1, "nodes": 32, "leaves": 4, "spines": 16, "borders": 2}),
        ({"fabric": "torus", "sizes": [2, 2], "sites": 2, "site_bandwidth": "1 Tb/s"}, 8,
         {"cables": 8 + 8 + 8 + 1, "nodes": 8, "routers": 8, "borders": 2}),
        ({}, 1, {"cables": 1, "nodes": 1, "leaves": 1}),
    ],
)  # fmt: skip
def test_every_vertex_is_a_dot_and_every_pair_of_them_a_line(keys, nodes, drawn):
    assert traces(draw_fabric(cluster({**SMALL, **keys}, nodes))) == drawn


def test_many_vertices_are_drawn_by_level():
    assert traces(draw_fabric(cluster({**SMALL, "fabric": "fat_tree", "leaf_radix": 16}, 1024))) == {
        "cables": 3, "nodes": 1, "leaves": 1, "aggregation switches": 1, "cores": 1,
    }  # fmt: skip


def test_broken_links_are_drawn_apart():
    degraded = [{"link": "leaf0<>agg1", "factor": 0}, {"link": "leaf1>agg0", "factor": 0.5}]
    figure = draw_fabric(cluster({**SMALL, "fabric": "fat_tree", "leaf_radix": 4, "degraded": degraded}, 16))
    assert traces(figure)["degraded or down"] == 2


def test_busy_cables_are_drawn_on_top_of_idle_ones():
    machine = cluster({**SMALL, "fabric": "fat_tree", "leaf_radix": 4}, 16)
    load = np.zeros(len(machine.links))
    load[machine.nic_tx("n3.nic0")] = 0.7
    lines = [trace for trace in draw_fabric(machine, load=load).data if trace.mode == "lines"]

    assert {trace.name: trace.x.count(None) for trace in lines} == {"idle": 47, "over 60 %": 1}


@pytest.mark.parametrize("name", ["<b>"])
def test_a_title_is_text(name):
    assert draw_fabric(cluster(SMALL, 1), name).layout.title.text == "&lt;b&gt;"
