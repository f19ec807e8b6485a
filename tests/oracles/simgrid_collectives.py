"""Finish times of ops that put different amounts on several links at once. For Debian's Python (fixture `simgrid`).

A link is a pair of hosts joined by it, an op a parallel task that sends so many bytes over each pair; the solver is
that of bottleneck max fairness. Cases run one after another, as the solver takes all ops that run as one system.
"""

import json
import sys

from simgrid import Actor, Engine, LinkInRoute, NetZone, this_actor

BOTTLENECK_FAIR = [
    "--cfg=host/model:ptask_L07",
    "--cfg=host/solver:bmf",
    "--cfg=surf/precision:1e-12",
    "--cfg=bmf/precision:1e-12",
    "--cfg=bmf/max-iterations:100000",
]

cases = json.load(sys.stdin)
engine = Engine(["oracle", "--log=root.thres:error", *BOTTLENECK_FAIR])
zone = NetZone.create_full_zone("zone")
finish = [[0.0] * len(case["ops"]) for case in cases]


def pair(case, number, rate):
    """Two hosts and the link between them."""
    source, target = (zone.create_host(f"{end}{case}.{number}", 1e9).seal() for end in ("source", "target"))
    link = zone.create_link(f"l{case}.{number}", rate).set_latency(0).seal()
    zone.add_route(source.netpoint, target.netpoint, None, None, [LinkInRoute(link)], True)
    return source, target


def run(case, number, op, pairs):
    """One op: amounts on the pairs that it crosses, nothing between others."""
    begin = Engine.clock
    this_actor.sleep_for(op["start"])
    hosts = [host for link in op["amounts"] for host in pairs[int(link)]]
    amounts = [0.0] * len(hosts) ** 2
    for i, amount in enumerate(op["amounts"].values()):
        amounts[2 * i * len(hosts) + 2 * i + 1] = amount
    this_actor.parallel_execute(hosts, [0.0] * len(hosts), amounts)
    finish[case][number] = Engine.clock - begin


def run_all(pairs):
    """Every case, once the one before it has ended."""
    for c, case in enumerate(cases):
        host = pairs[c][0][0]
        actors = [Actor.create(f"op{c}.{n}", host, run, c, n, op, pairs[c]) for n, op in enumerate(case["ops"])]
        for actor in actors:
            actor.join()


pairs = [[pair(c, i, rate) for i, rate in enumerate(case["capacity"])] for c, case in enumerate(cases)]
zone.seal()
Actor.create("cases", pairs[0][0][0], run_all, pairs)
engine.run()
json.dump(finish, sys.stdout)
