"""Finish times of flows that start together on one link. For Debian's Python (fixture `simgrid`), not for pytest.

CM02 without cross traffic and without the TCP window is plain max-min sharing; the defaults take 3 % of every link off.
"""

import json
import sys

from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone

MAX_MIN = ["--cfg=network/model:CM02", "--cfg=network/crosstraffic:0", "--cfg=network/TCP-gamma:0"]

given = json.load(sys.stdin)
engine = Engine(["oracle", "--log=root.thres:error", *MAX_MIN])
zone = NetZone.create_full_zone("zone")
link = zone.create_link("link", given["bandwidth"]).set_latency(0).seal()
finish = [0.0] * len(given["sizes"])


def send(flow, size):
    Mailbox.by_name(f"flow{flow}").put(flow, int(size))


def receive(flow):
    Mailbox.by_name(f"flow{flow}").get()
    finish[flow] = Engine.clock


for flow, size in enumerate(given["sizes"]):
    source, target = (zone.create_host(f"{end}{flow}", 1e9).seal() for end in ("source", "target"))
    zone.add_route(source.netpoint, target.netpoint, None, None, [LinkInRoute(link)], True)
    Actor.create(f"send{flow}", source, send, flow, size)
    Actor.create(f"receive{flow}", target, receive, flow)
zone.seal()
engine.run()
json.dump(finish, sys.stdout)
