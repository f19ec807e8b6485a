"""Trainers write to each receiver what it keeps, or receivers pass weights on: nobody gets bytes it does not keep
(but for the chain).
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from ...program import Program
from .plan import Stage, TransferPlan
from .targets import Served, assign_targets
from .writer import Bucket, Pairs, TransferWriter


def replica_writes(plan: TransferPlan) -> Program:
    """Gather, load into a host replica shaped like a receiver's shard, write it out (miles' P2P mode).

    A source serves its shapes one after another: all but the last wait until they are written, because the replicas
    share their memory; the last one's writes run beside the next gather.
    """
    writer = TransferWriter(plan, lands=False)
    began = writer.begin()
    served = {stage: assign_targets(stage.ranks, plan.receivers, plan.engine_ranks) for stage in plan.stages}
    writes: dict[Stage, list[int]] = {stage: [began] for stage in plan.stages}
    for bucket in writer.buckets():
        ready = [writer.gather(bucket, [began])]
        for shape, rounds in enumerate(_rounds(served[bucket.stage])):
            if shape > 0:
                ready = [*ready, *writes[bucket.stage]]
            held = writer.replicate(bucket, shape, ready)
            writes[bucket.stage] = [_write(writer, bucket, pairs, held) for pairs in rounds]
    return writer.finish([op for ops in writes.values() for op in ops])


def _write(writer: TransferWriter, bucket: Bucket, pairs: Pairs, after: int) -> int:
    lanes = writer.lanes(writer.places([source for source, _ in pairs]), "write")
    return writer.write(bucket, pairs, bucket.kept, [after], lanes=lanes, from_host=True)


def _rounds(served: Served) -> Iterator[list[list[tuple[int, int]]]]:
    """Shape by shape, the writes that all sources do at once: their first targets, then their second ones."""
    for shape in range(max(map(len, served.values()))):
        targets = {source: shapes[shape] for source, shapes in served.items() if shape < len(shapes)}
        most = max(map(len, targets.values()))
        yield [[(source, t[k]) for source, t in targets.items() if k < len(t)] for k in range(most)]


def static_writes(plan: TransferPlan) -> Program:
    """H2D, gather and quantise, write: pipelined over buckets, so many in flight, with a barrier at the end.

    The groups of a stage share the tensors of a bucket: each gathers and writes its own.
    """
    writer = TransferWriter(plan, lands=False)
    began = writer.begin()
    flight = {stage: writer.pool("in flight", stage.head, plan.slots) for stage in plan.stages}
    done = [began]
    for bucket in writer.buckets():
        slots = [flight[bucket.stage]]
        staged = writer.bucket_op(
            "stage_in", bucket, bucket.stage.ranks, "h2d", [began], acquires=slots, group=bucket.stage.ranks,
            size_bytes=round(bucket.bytes * plan.payload.gathered) // len(bucket.stage.ranks),
        )  # fmt: skip
        gathered = writer.gather(bucket, [staged], groups=bucket.groups)
        lanes = writer.lanes(writer.places(bucket.stage.ranks), "write")
        held, size = writer.sent_from(bucket, bucket.stage.ranks), bucket.kept // bucket.groups
        pairs = _from_groups(plan, bucket)
        done.append(writer.write(bucket, pairs, size, [gathered], lanes=lanes, reads=held, releases=slots))
    return writer.finish(done)


def _from_groups(plan: TransferPlan, bucket: Bucket) -> list[tuple[int, int]]:
    """Every receiver from one rank of each group, which has gathered its share; the next round shifts the ranks."""
    ranks, size = bucket.stage.ranks, len(bucket.stage.ranks) // bucket.groups
    return [
        (ranks[first + (i + bucket.round) % size], target)
        for first in range(0, len(ranks), size)
        for i, target in enumerate(plan.receivers)
    ]


def _spread(plan: TransferPlan, bucket: Bucket) -> list[tuple[int, int]]:
    """Every receiver from one source of the bucket's stage; the next round shifts the sources by one."""
    ranks = bucket.stage.ranks
    return [(ranks[(i + bucket.round) % len(ranks)], target) for i, target in enumerate(plan.receivers)]


def reshard(plan: TransferPlan) -> Program:
    """Pairwise send and receive between the two layouts, nothing gathered: bucket by bucket, all pairs at once.

    Stages send beside each other; what receivers' links can take decides.
    """
    writer = TransferWriter(plan)
    began = writer.begin()
    done = began
    for bucket in writer.buckets():
        senders = writer.lanes(writer.places(bucket.stage.ranks), "comm")
        lanes = [*senders, *writer.lanes(writer.receivers, f"comm from r{bucket.stage.head}")]
        ready = writer.prepare(bucket, began, bucket.phase.group)
        kept = [writer.write(bucket, _spread(plan, bucket), bucket.kept, [ready], lanes=lanes, kind="exchange")]
        done = writer.reload(bucket, kept)
    return writer.finish([done])


def chain(plan: TransferPlan) -> Program:
    """Buckets run through all receivers, each of which reads from the one before (verl's NIXL engine).

    With n buckets of equal size, N ranks in the chain and t per hop: T = t_gather + (n + N - 2) t.
    """
    # ranks that pass weights on are at work at different times: none acts like another
    writer = TransferWriter(replace(plan, classes=tuple((rank,) for rank in (*plan.trainers, *plan.receivers))))
    began = writer.begin()
    heads = [stage.head for stage in plan.stages]
    slots = {rank: writer.pool(f"chain of r{rank}", rank, plan.slots) for rank in (*heads, *plan.receivers)}
    loaded = began
    for bucket in writer.buckets():
        line = [bucket.stage.head, *plan.receivers]
        held = writer.gather(bucket, [began], acquires=[slots[bucket.stage.head]], into=[bucket.stage.head])
        held = writer.tell(bucket, [held])
        for source, target in pairwise(line):
            lanes = [*writer.lanes([writer.at(source)], "out"), *writer.lanes([writer.at(target)], "in")]
            held = writer.write(
                bucket, [(source, target)], bucket.bytes, [held], lanes=lanes, kind="forward",
                acquires=[slots[target]], releases=[slots[source]],
            )  # fmt: skip
        loaded = writer.reload(bucket, [held], releases=[slots[line[-1]]])
    return writer.finish([loaded])
