"""Trainers broadcast to all engine ranks.

With t_g the gather of a bucket, t_b its broadcast, t_l its load and n buckets of equal size:

    single sender, relays   (two buffers on either side)    T = t_g + (n - 1) max(t_g, t_b, t_l) + t_b + t_l
    stage heads             (one lock, a head waits)        T = n/pp (t_g + t_b) for pp = 1, n t_b + t_g where
                                                            (pp - 1) t_b >= t_g, loads being hidden (t_l <= t_b)
"""

from collections.abc import Callable

from .....program import Program
from .plan import TransferPlan
from .writer import Bucket, TransferWriter


def single_sender(plan: TransferPlan) -> Program:
    """Gather of a bucket beside the broadcast of the one before, from one rank (verl's NCCL engine)."""
    return _pipelined(plan, lambda bucket: bucket.stage.head)


def relays(plan: TransferPlan) -> Program:
    """The same; the sender's peers in its stage join the group and forward through their own NICs (verl#7291)."""
    return _pipelined(plan, lambda bucket: bucket.stage.head, relayed=True)


def all_senders(plan: TransferPlan) -> Program:
    """Every trainer rank sends a stripe of the bucket order on a group of its own (verl#7263).

    Receivers consume in order; all ranks meet after each set of one bucket per sender.
    """
    return _pipelined(plan, _striped, sets=len(plan.trainers))


def _striped(bucket: Bucket) -> int:
    return bucket.stage.ranks[bucket.turn % len(bucket.stage.ranks)]


def _pipelined(
    plan: TransferPlan, sender_of: Callable[[Bucket], int], *, relayed: bool = False, sets: int = 0
) -> Program:
    writer = TransferWriter(plan, striped=sets > 0)
    began = writer.begin()
    slots = max(plan.slots, sets)
    full = {stage: writer.pool("send", stage.head, slots) for stage in plan.stages}
    empty = writer.pool("receive", plan.receivers[0], slots)
    last, met, loaded = [began], began, began
    for bucket in writer.buckets():
        sender = sender_of(bucket)
        peers = bucket.stage.ranks[1:] if relayed else ()
        gathered = writer.gather(bucket, [met], acquires=[full[bucket.stage]], into=[sender, *peers])
        told = writer.tell(bucket, [gathered])
        lane = f"comm of r{sender}" if sets else "send"
        slot = {"acquires": [empty], "releases": [full[bucket.stage]]}
        cast = writer.broadcast(bucket, sender, [told], relays=peers, lane=lane, **slot)
        loaded = writer.reload(bucket, [cast], releases=[empty])
        last.append(cast)
        if sets and (bucket.number + 1) % sets == 0:
            met = writer.bucket_op("barrier", bucket, plan.trainers, "trainer", last)
            last = [met]
    return writer.finish([*last, loaded])


def stage_heads(plan: TransferPlan) -> Program:
    """Each stage's head gathers and broadcasts its buckets under one lock (slime, miles).

    A head waits until the engines have loaded its bucket; other heads gather meanwhile. Engines load on the host while
    the broadcast runs. Experts go when all else has gone.
    """
    writer = TransferWriter(plan)
    began = writer.begin()
    freed, phase_done = began, began
    before: list[int] = []
    phase = None
    for bucket in writer.buckets():
        if phase is not bucket.phase:
            phase, phase_done = bucket.phase, freed
        gathered = writer.gather(bucket, [began, phase_done], into=[bucket.stage.head])
        told = writer.tell(bucket, [gathered, freed])
        cast = writer.broadcast(bucket, bucket.stage.head, [told, *before])
        loaded = writer.reload(bucket, [told])
        freed = writer.heard(bucket, [cast, loaded])
        before = [freed]
    return writer.finish([freed])
