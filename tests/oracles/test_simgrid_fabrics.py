"""Flows on random fabrics share links as in SimGrid: every kind, of random sizes, with hashed flows and slow links."""

import random
from math import prod
from pathlib import Path
from typing import Any

import pytest
from runcast.simulator.hardware import Cluster, cluster

from .test_simgrid import flows_as_ops, simulated

SCRIPT = Path(__file__).with_name("simgrid_flows.py")
NODE = {"base": "dgx-h100", "gpus_per_node": 2, "nics": 2, "pcie_switches": 1, "sockets": 1}
Keys = dict[str, Any]


def uplinks(rng: random.Random) -> tuple[Keys, int]:
    kind = {"fabric": rng.choice(["rail", "leaf"]), "oversubscription": rng.choice([1, 2, 3])}
    return {**kind, "leaf_radix": 8}, rng.randint(2, 16)


def leaf_spine(rng: random.Random) -> tuple[Keys, int]:
    keys = {
        "fabric": "leaf_spine",
        "leaf_radix": 8,
        "oversubscription": rng.choice([1, 3]),
        "planes": rng.choice([1, 2]),
    }
    return {
        **keys,
        "cabling": rng.choice(["rail", "leaf"]),
        "routing": rng.choice(["hash", "adaptive"]),
    }, 2 * rng.randint(1, 8)


def sites(rng: random.Random) -> tuple[Keys, int]:
    keys, nodes = leaf_spine(rng)
    return {**keys, "sites": 2, "site_bandwidth": f"{rng.randint(1, 8) * 100} Gb/s"}, nodes


def fat_tree(rng: random.Random) -> tuple[Keys, int]:
    radix = rng.choice([4, 6, 8])
    keys = {"fabric": "fat_tree", "leaf_radix": radix, "core_oversubscription": rng.choice([1, 2])}
    return {**keys, "routing": rng.choice(["hash", "adaptive"])}, rng.randint(2, radix**3 // 16)


def grid(rng: random.Random) -> tuple[Keys, int]:
    sizes = [rng.randint(2, 4) for _ in range(rng.randint(1, 3))]
    return {"fabric": rng.choice(["torus", "mesh"]), "sizes": sizes}, prod(sizes)


def dragonfly(rng: random.Random) -> tuple[Keys, int]:
    groups, routers = rng.randint(2, 5), rng.randint(1, 3)
    links = -(-(groups - 1) // routers) * rng.randint(1, 2)
    keys = {"fabric": "dragonfly", "groups": groups, "group_routers": routers, "global_links": links}
    return keys, groups * routers * rng.randint(1, 2)


KINDS = [uplinks, leaf_spine, sites, fat_tree, grid, dragonfly]


def fabric(rng: random.Random) -> Cluster:
    """Of a random kind and size; half of them have a slow link."""
    keys, nodes = rng.choice(KINDS)(rng)
    machine = cluster({**NODE, **keys, "hash_seed": rng.randint(0, 99)}, nodes)
    between = [hop.name for hop in machine.network.links]
    if between and rng.random() < 0.5:
        slow = {"link": rng.choice(between), "factor": rng.choice([0.1, 0.5])}
        return cluster({**NODE, **keys, "hash_seed": rng.randint(0, 99), "degraded": [slow]}, nodes)
    return machine


def flows_on(seed: int) -> dict[str, Any]:
    """Up to 20 flows between NICs on a random fabric; rates in units that SimGrid's precision suits."""
    rng = random.Random(seed)
    machine = fabric(rng)
    pairs = [rng.sample(range(machine.n_nodes), 2) for _ in range(rng.randint(2, 20))]
    shares = machine.spread([(f"n{a}.nic{seed % 2}", f"n{b}.nic{seed % 2}") for a, b in pairs])
    used = sorted({link for share in shares for link in share})
    flows = [
        {"route": [used.index(link) for link in share], "size": rng.randint(1, 60) * 1_000_000, "start": 0.0}
        for share in shares
    ]
    return {"capacity": [float(machine.capacity[link]) / 1e5 for link in used], "flows": flows}


@pytest.mark.parametrize("fabrics", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_completion_times_on_fabrics(simgrid, fabrics):
    networks = [flows_on(seed) for seed in range(fabrics)]
    expected = simgrid(SCRIPT, networks)
    assert [simulated(flows_as_ops(one)) for one in networks] == [pytest.approx(times, rel=1e-6) for times in expected]
