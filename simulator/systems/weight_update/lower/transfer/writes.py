"""Trainers write to each receiver what it keeps, or receivers pass weights on: nobody gets bytes it does not keep
(but for the chain).
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from .....program import Program
from .plan import Stage, TransferPlan
from .targets import Served, assign_targets
from .writer import Bucket, Pairs, Slots, TransferWriter

_WRITERS = 4
"""Threads of a source that write (miles: `p2p_transfer_num_workers`, 4 unless said otherwise)."""


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
    """Shape by shape, the writes that all sources do at once: to their first few targets, then to the next ones."""
    for shape in range(max(map(len, served.values()))):
        targets = {source: shapes[shape] for source, shapes in served.items() if shape < len(shapes)}
        most = max(map(len, targets.values()))
        yield [
            [(source, target) for source, t in targets.items() for target in t[k : k + _WRITERS]]
            for k in range(0, most, _WRITERS)
        ]


def static_writes(plan: TransferPlan) -> Program:
    """H2D, gather and quantise, write: pipelined over buckets, so many in flight on each trainer.

    All meshes of a stage are at work at the same time, each on tensors of its own. Where experts have other meshes, all
    trainers meet when everything else is gathered: a barrier beside the writes, before experts are touched.
    """
    writer = TransferWriter(plan, lands=False)
    start = writer.begin()
    flight = {stage: writer.pool("in flight", stage.head, plan.slots) for stage in plan.stages}
    mesh, gathered, done = plan.phases[0].mesh, dict[Stage, int](), [start]
    for bucket in writer.buckets():
        if bucket.phase.mesh != mesh:
            start = writer.gang("barrier", "meet", plan.trainers, list(gathered.values()))
        mesh, slots = bucket.phase.mesh, [flight[bucket.stage]]
        staged = writer.bucket_op(
            "stage_in", bucket, bucket.stage.ranks, "h2d", [start], acquires=slots, group=bucket.gatherers,
            size_bytes=round(bucket.part * plan.payload.gathered) // mesh.size,
        )  # fmt: skip
        held = gathered[bucket.stage] = writer.gather(bucket, [staged])
        done.append(_write_parts(writer, bucket, held, slots))
    return writer.finish(done)


def _write_parts(writer: TransferWriter, bucket: Bucket, after: int, slots: Slots) -> int:
    """What each group has gathered, from its ranks to every receiver; or of what all have, a part from each rank."""
    ranks, pairs = bucket.stage.ranks, list(_from_groups(writer.plan, bucket))
    size = bucket.kept * len(writer.plan.receivers) // len(pairs)
    lanes = writer.lanes(writer.places(ranks), "write")
    held = writer.sent_from(bucket, ranks)
    return writer.write(bucket, pairs, size, [after], lanes=lanes, reads=held, releases=slots)


def _from_groups(plan: TransferPlan, bucket: Bucket) -> Iterator[tuple[int, int]]:
    """Every receiver from one rank of each group, which has gathered its part; the next round shifts the ranks.

    What every group has gathered, receivers get from one group each.
    """
    groups, n = bucket.groups, len(bucket.groups)
    for i, target in enumerate(plan.receivers, bucket.round):
        turn, senders = (i // n, groups[i % n :][:1]) if bucket.is_everywhere else (i, groups)
        yield from ((group[turn % len(group)], target) for group in senders)


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
        ready = writer.prepare(bucket, began, bucket.phase.mesh.size)
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
