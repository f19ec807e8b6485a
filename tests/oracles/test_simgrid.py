"""Flows and collectives share links as in SimGrid: whole sequences of completion times on random networks.

Every flow may run as fast as its slowest link; sizes and starts differ, so that a network goes through many sets of
active flows, and a wrong rate in any of them shows in a time. Single flows are max-min fair, ops that put different
amounts on their links are bottleneck max fair.
"""

import random
from pathlib import Path

import numpy as np
import pytest
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import fair_speeds, simulate
from runcast.simulator.program import ProgramBuilder

SCRIPT = Path(__file__).with_name("simgrid_flows.py")
COLLECTIVES = Path(__file__).with_name("simgrid_collectives.py")
NETWORKS = 250
SETS = 1200


def network(seed: int) -> dict:
    """Up to 8 links and 14 flows; half of the networks start all flows together."""
    rng = random.Random(seed)
    capacity = [float(rng.randint(1, 40) * 100_000) for _ in range(rng.randint(1, 8))]
    flows = [
        {
            "route": rng.sample(range(len(capacity)), rng.randint(1, min(4, len(capacity)))),
            "size": rng.randint(1, 60) * 1_000_000,
            "start": rng.choice([0.0, 0.5, 2.0, 7.25]) if seed % 2 else 0.0,
        }
        for _ in range(rng.randint(1, 14))
    ]
    return {"capacity": capacity, "flows": flows}


def flows_as_ops(network: dict) -> dict:
    """Flows as ops that put the same amount on each of their links."""
    ops = [{"start": flow["start"], "amounts": dict.fromkeys(flow["route"], flow["size"])} for flow in network["flows"]]
    return {"capacity": network["capacity"], "ops": ops}


def collectives(seed: int) -> dict:
    """Up to 8 ops, each with unequal amounts on some of up to 8 links; half of the sets start together."""
    rng = random.Random(seed)
    capacity = [float(rng.randint(1, 40) * 100_000) for _ in range(rng.randint(1, 8))]
    ops = [
        {
            "amounts": {link: rng.uniform(0.02, 1) * 1e7 for link in rng.sample(range(len(capacity)), n_links)},
            "start": rng.choice([0.0, 0.5, 2.0, 7.25]) if seed % 2 else 0.0,
        }
        for n_links in [rng.randint(1, len(capacity)) for _ in range(rng.randint(1, 8))]
    ]
    return {"capacity": capacity, "ops": ops}


def simulated(case: dict) -> list[float]:
    """The ends of ops, each on a lane of its own behind one that waits until its start."""
    capacity = case["capacity"]
    b = ProgramBuilder()
    place = b.place("r0", [0])
    seconds, demand, ops = dict[str, float](), dict[int, dict[int, float]](), list[int]()
    for n, op in enumerate(case["ops"]):
        lane = b.lane(place, f"op{n}")
        b.op(f"wait{n}", [lane])
        ops.append(b.op(f"op{n}", [lane]))
        alone = max(amount / capacity[link] for link, amount in op["amounts"].items())
        seconds |= {f"wait{n}": op["start"], f"op{n}": alone}
        demand[ops[-1]] = {link: amount / alone for link, amount in op["amounts"].items()}
    program = b.build()
    costs = kind_costs(program, seconds, demand=demand, capacity_bytes_per_s=tuple(capacity))
    return simulate(program, costs).end_s[ops].tolist()


@pytest.fixture(scope="module")
def networks() -> list[dict]:
    return [network(seed) for seed in range(NETWORKS)]


def test_completion_times(simgrid, networks):
    expected = simgrid(SCRIPT, networks)
    assert [simulated(flows_as_ops(one)) for one in networks] == [pytest.approx(times, rel=1e-6) for times in expected]


@pytest.mark.slow
def test_completion_times_of_collectives(simgrid):
    sets = [collectives(seed) for seed in range(SETS)]
    expected = simgrid(COLLECTIVES, sets)
    assert [simulated(one) for one in sets] == [pytest.approx(times, rel=1e-6) for times in expected]


@pytest.mark.slow
def test_rates(simgrid, networks):
    """A flow so short beside the others that they all still run when it ends shows its rate: size over time."""
    probes = [probe for one in networks for probe in _probes(one)]
    times = simgrid(SCRIPT, [probe for _, probe in probes])
    rates = [probe["flows"][f]["size"] / finish[f] for (f, probe), finish in zip(probes, times, strict=True)]
    ours = []
    for f, probe in probes:
        routes = [flow["route"] for flow in probe["flows"]]
        demands = [dict.fromkeys(route, min(probe["capacity"][link] for link in route)) for route in routes]
        speed = fair_speeds(demands, probe["capacity"])[f]
        ours.append(speed * max(demands[f].values()))
    assert len(rates) > NETWORKS
    np.testing.assert_allclose(ours, rates, rtol=1e-5)


def _probes(one: dict) -> list[tuple[int, dict]]:
    """The network with all flows together and long, except one; for up to three choices of that one."""
    long_, short = 10**12, 10**6
    return [
        (
            f,
            one
            | {
                "flows": [
                    flow | {"size": short if i == f else long_, "start": 0.0} for i, flow in enumerate(one["flows"])
                ]
            },
        )
        for f in range(min(3, len(one["flows"])))
    ]
