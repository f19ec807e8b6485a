"""Finish times of flows over networks of links. For Debian's Python (fixture `simgrid`), not for pytest.

CM02 without cross traffic and without the TCP window is plain max-min sharing. All networks live in one engine: they
share no link, so none can slow another.
"""

import json
import sys

from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, this_actor

MAX_MIN = [
    "--cfg=network/model:CM02",
    "--cfg=network/crosstraffic:0",
    "--cfg=network/TCP-gamma:0",
    "--cfg=network/bandwidth-factor:1",
    "--cfg=network/latency-factor:0",
    "--cfg=surf/precision:1e-12",
    "--cfg=maxmin/precision:1e-9",
]

networks = json.load(sys.stdin)
engine = Engine(["oracle", "--log=root.thres:error", *MAX_MIN])
zone = NetZone.create_full_zone("zone")
finish = [[0.0] * len(network["flows"]) for network in networks]


def run(network, flows):
    """One network's flows, `(start, size, flow, source, target)` by start."""
    comms = []
    for start, size, flow, source, target in flows:
        this_actor.sleep_until(start)
        comms.append((flow, Comm.sendto_async(source, target, size)))
    for flow, comm in comms:
        comm.wait()
        finish[network][flow] = comm.finish_time


for n, network in enumerate(networks):
    links = [zone.create_link(f"l{n}.{i}", rate).set_latency(0).seal() for i, rate in enumerate(network["capacity"])]
    flows = []
    for f, flow in enumerate(network["flows"]):
        source, target = (zone.create_host(f"{end}{n}.{f}", 1e9).seal() for end in ("source", "target"))
        route = [LinkInRoute(links[i]) for i in flow["route"]]
        zone.add_route(source.netpoint, target.netpoint, None, None, route, True)
        flows.append((flow["start"], flow["size"], f, source, target))
    Actor.create(f"run{n}", flows[0][3], run, n, sorted(flows, key=lambda flow: flow[:3]))
zone.seal()
engine.run()
json.dump(finish, sys.stdout)
