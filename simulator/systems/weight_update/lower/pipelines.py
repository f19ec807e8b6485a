"""Pipelines of an update by parameter servers.

Two-stage (what checkpoint-engine runs): all H2D copies of a round at once, then per owner copy and broadcast beside
the reload of the bucket before. With N owners, R rounds, beta = copy + broadcast and equal buckets:

    T = (H + beta) + (R - 1) max(H + beta, L) + R (N - 1) max(beta, L) + L

The fallback without an H2D buffer lets the owner copy straight into the IPC half inside the loop:

    T = H + beta + (N_b - 1) max(H + beta, L) + L

Serial waits for every reload before it goes on: T = R (H + N (beta + L)).

Three-stage is the ideal: H2D, broadcast and reload on independent lanes, bounded only by their buffers. An H2D of the
next bucket of a rank starts when its H2D buffer is free: once the bucket is copied on to an IPC half (`freed="start"`,
the broadcast then starts), or, without that copy, when its broadcast has ended (`freed="end"`):

    freed at the start, copies taking no time, H <= N beta:    T = H + R N beta + L
    freed at the end, H + beta >= N beta:                      T = H + (R - 1)(H + beta) + N beta + L

Nothing here knows whether H2D and broadcast collide on PCIe: the cluster's links decide.
"""

from typing import Literal

from ....program import Program
from .plan import UpdatePlan
from .writer import UpdateWriter


def two_stage(plan: UpdatePlan) -> Program:
    """The two-stage update; with two buffers per device instead of three, its fallback."""
    return _update(plan, overlap=True)


def serial(plan: UpdatePlan) -> Program:
    """The Program of an update without any overlap."""
    return _update(plan, overlap=False)


def _update(plan: UpdatePlan, *, overlap: bool) -> Program:
    writer = UpdateWriter(plan)
    sent = writer.prepare()  # ops after which the next bucket may go
    loaded = writer.open_handle(sent)
    for round_ in range(plan.buckets.rounds):
        buckets = (plan.buckets.round == round_).nonzero()[0].tolist()
        before = [] if overlap else loaded
        staged = {}
        if plan.size.buffers == 3:
            staged = {g: writer.h2d(g, [writer.root_op(g, sent), *before]) for g in buckets}
        for bucket in buckets:
            before = [] if overlap else loaded
            ready = writer.root_op(bucket, sent)
            copied = staged if bucket == buckets[0] else {}  # the first bucket waits for all copies of the round
            if staged:
                filled = writer.copy(bucket, [ready, *(copied.values() or [staged[bucket]]), *before])
                cast = writer.broadcast(bucket, [*sent, *copied.values(), *before, filled])
            else:
                filled = writer.h2d(bucket, [ready, *before], into="ipc")
                cast = writer.broadcast(bucket, [*sent, *before, filled])
                copied = {bucket: filled}
            # the ranks agree to go on only after the reload of the bucket before
            agreed = writer.agree(bucket, [cast, *writer.wait(bucket, loaded, copied)])
            sent = writer.send_meta(bucket, writer.sync(bucket, writer.repeat(agreed)))
            loaded = writer.reload(bucket, sent, loaded)
    return writer.finish(loaded)


def three_stage(plan: UpdatePlan, freed: Literal["start", "end"] = "start") -> Program:
    """The three-stage update; needs the H2D buffer.

    Raises:
        ValueError: the plan has no room for an H2D buffer.
    """
    if plan.size.buffers != 3:
        raise ValueError("the three-stage pipeline needs an H2D buffer, but only two buffers of this bucket fit")
    writer = UpdateWriter(plan)
    ready = writer.prepare()
    loaded = writer.open_handle(ready)
    roots = sorted(set(plan.buckets.root.tolist()))
    h2d_slot = {root: [writer.h2d_pool(root)] for root in roots}
    halves = writer.ipc_pools()
    staged = [
        writer.h2d(bucket, [writer.root_op(bucket, ready)], blocks_host=False, acquires=h2d_slot[root])
        for bucket, root in enumerate(plan.buckets.root.tolist())
    ]
    cast = writer.root_op(0, ready)
    for bucket, root in enumerate(plan.buckets.root.tolist()):
        if freed == "start":
            filled = writer.copy(bucket, [staged[bucket], cast], acquires=halves, releases=h2d_slot[root])
            cast = writer.broadcast(bucket, [filled])
        else:
            cast = writer.broadcast(bucket, [staged[bucket]], out_of="h2d", acquires=halves, releases=h2d_slot[root])
        sent = writer.send_meta(bucket, writer.repeat(cast))
        loaded = writer.reload(bucket, sent, loaded, pools=halves)
    return writer.finish(loaded)
