"""The pipelines in which all ranks move from bucket to bucket together: two-stage, serial, and without an H2D buffer.

Two-stage (what checkpoint-engine runs): all H2D copies of a round at once, then per owner copy and broadcast beside
the reload of the bucket before. With N owners, R rounds, beta = copy + broadcast and equal buckets:

    T = (H + beta) + (R - 1) max(H + beta, L) + R (N - 1) max(beta, L) + L

The fallback without an H2D buffer lets the owner copy straight into the IPC half inside the loop:

    T = H + beta + (N_b - 1) max(H + beta, L) + L

Serial waits for every reload before it goes on: T = R (H + N (beta + L)).
"""

from ....program import Program
from .plan import UpdatePlan
from .writer import Ops, UpdateWriter


def two_stage(plan: UpdatePlan) -> Program:
    """The two-stage update; with two buffers per device instead of three, its fallback."""
    return _update(plan, overlap=True)


def serial(plan: UpdatePlan) -> Program:
    """The same ops without any overlap."""
    return _update(plan, overlap=False)


def _update(plan: UpdatePlan, *, overlap: bool) -> Program:
    writer = UpdateWriter(plan)
    sent = writer.prepare()
    loaded = writer.handle(sent)
    for round_ in range(plan.buckets.rounds):
        buckets = (plan.buckets.round == round_).nonzero()[0].tolist()
        hold = [] if overlap else loaded
        staged = {}
        if plan.size.buffers == 3:
            staged = {g: writer.h2d(g, [writer.of_root(g, sent), *hold]) for g in buckets}
        for bucket in buckets:
            hold = [] if overlap else loaded
            landed = staged if bucket == buckets[0] else {}
            sent, loaded = _period(writer, bucket, staged.get(bucket), landed, hold, sent, loaded)
    writer.release(loaded)
    return writer.build()


def _period(
    writer: UpdateWriter, bucket: int, staged: int | None, landed: dict[int, int], hold: Ops, sent: Ops, loaded: Ops
) -> tuple[Ops, Ops]:
    """One bucket out to all ranks; returns the ops after which the next may go, and those that load it.

    Copy and broadcast wait for `hold` and for all H2D copies of the round, `landed` if this is its first bucket; the
    ranks agree to go on only after `loaded`, the reload of the bucket before.
    """
    ready = writer.of_root(bucket, sent)
    if staged is None:
        filled = writer.h2d(bucket, [ready, *hold], into="ipc")
        copied = {bucket: filled}
    else:
        copied = landed
        filled = writer.copy(bucket, [ready, *(landed.values() or [staged]), *hold])
    cast = writer.broadcast(bucket, [*sent, *landed.values(), *hold, filled])
    heard = writer.wait(bucket, loaded, copied)
    agreed = writer.agree(bucket, [cast, *heard])
    told = writer.send_meta(bucket, writer.sync(bucket, writer.each(agreed)))
    return told, writer.reload(bucket, told, loaded)
