"""The ideal three-stage pipeline: H2D, broadcast and reload on independent lanes, bounded only by their buffers.

An H2D of the next bucket of a rank starts when its H2D buffer is free: once the bucket is copied on to an IPC half
(`freed="start"`, the broadcast then starts), or, without that copy, when its broadcast has ended (`freed="end"`). With
N owners, R rounds and equal buckets:

    freed at the start, copies taking no time, H <= N beta:    T = H + R N beta + L
    freed at the end, H + beta >= N beta:                      T = H + (R - 1)(H + beta) + N beta + L

Nothing here knows whether H2D and broadcast collide on PCIe: the cluster's links decide.
"""

from typing import Literal

from ....program import Program
from .plan import UpdatePlan
from .writer import UpdateWriter


def three_stage(plan: UpdatePlan, freed: Literal["start", "end"] = "start") -> Program:
    """The three-stage update; needs the H2D buffer.

    Raises:
        ValueError: the plan has no room for an H2D buffer.
    """
    if plan.size.buffers != 3:
        raise ValueError("the three-stage pipeline needs an H2D buffer, but only two buffers of this bucket fit")
    writer = UpdateWriter(plan)
    ready = writer.prepare()
    loaded = writer.handle(ready)
    roots = sorted(set(plan.buckets.root.tolist()))
    h2d_slot = {root: [writer.h2d_pool(root)] for root in roots}
    halves = writer.ipc_pools()
    staged = [
        writer.h2d(bucket, [writer.of_root(bucket, ready)], blocks_host=False, acquires=h2d_slot[root])
        for bucket, root in enumerate(plan.buckets.root.tolist())
    ]
    cast = writer.of_root(0, ready)
    for bucket, root in enumerate(plan.buckets.root.tolist()):
        if freed == "start":
            filled = writer.copy(bucket, [staged[bucket], cast], acquires=halves, releases=h2d_slot[root])
            cast = writer.broadcast(bucket, [filled])
        else:
            slots = {"acquires": halves, "releases": h2d_slot[root]}
            cast = writer.broadcast(bucket, [staged[bucket]], out_of="h2d", **slots)
        told = writer.send_meta(bucket, writer.each(cast))
        loaded = writer.reload(bucket, told, loaded, pools=halves)
    writer.release(loaded)
    return writer.build()
