"""Flows on random fabrics share links as in SimGrid: routes of every kind, of hashed and of placed flows."""

import random
from pathlib import Path

import pytest
from runcast.simulator.hardware import cluster

from .test_simgrid import flows_as_ops, simulated

SCRIPT = Path(__file__).with_name("simgrid_flows.py")
SMALL = {"base": "dgx-h100", "gpus_per_node": 1, "nics": 1, "pcie_switches": 1, "sockets": 1}
KINDS = [
    ({"fabric": "rail", "leaf_radix": 6, "oversubscription": 2}, 12),
    ({"fabric": "leaf_spine", "leaf_radix": 8}, 16),
    ({"fabric": "leaf_spine", "leaf_radix": 8, "routing": "adaptive"}, 16),
    ({"fabric": "fat_tree", "leaf_radix": 4}, 16),
    ({"fabric": "torus", "sizes": [3, 4]}, 12),
    ({"fabric": "mesh", "sizes": [2, 2, 3]}, 12),
    ({"fabric": "dragonfly", "groups": 5, "group_routers": 2, "global_links": 2}, 20),
    ({"fabric": "leaf_spine", "leaf_radix": 8, "sites": 2, "site_bandwidth": "800 Gb/s"}, 16),
]


def flows_on(seed: int) -> dict:
    """Up to 20 flows between NICs of one of the kinds; rates in units that SimGrid's precision suits."""
    rng = random.Random(seed)
    keys, nodes = KINDS[seed % len(KINDS)]
    machine = cluster({**SMALL, **keys, "hash_seed": seed}, nodes)
    pairs = [rng.sample(range(nodes), 2) for _ in range(rng.randint(2, 20))]
    shares = machine.spread([(f"n{a}.nic0", f"n{b}.nic0") for a, b in pairs])
    used = sorted({link for share in shares for link in share})
    flows = [
        {"route": [used.index(link) for link in share], "size": rng.randint(1, 60) * 1_000_000, "start": 0.0}
        for share in shares
    ]
    return {"capacity": [float(machine.capacity[link]) / 1e5 for link in used], "flows": flows}


def test_completion_times_on_fabrics(simgrid):
    networks = [flows_on(seed) for seed in range(96)]
    expected = simgrid(SCRIPT, networks)
    assert [simulated(flows_as_ops(one)) for one in networks] == [pytest.approx(times, rel=1e-6) for times in expected]
