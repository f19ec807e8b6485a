"""Updates that start at trainers as Programs: one function per method.

With t_g the gather of a bucket, t_b its broadcast, t_l its load and n buckets of equal size:

    single sender, relays   (two buffers on either side)    T = t_g + (n - 1) max(t_g, t_b, t_l) + t_b + t_l
    stage heads             (one lock, a head waits)        T = n/pp (t_g + t_b) for pp = 1, n t_b + t_g where
                                                            (pp - 1) t_b >= t_g, loads being hidden (t_l <= t_b)
    chain                   (N ranks in it, t per hop)      T = t_g + (n + N - 2) t
    colocated, per tensor                                   T = n_tensors (t_gather + t_export + t_open + t_load)
    colocated, flattened    T = n_tensors (t_gather + t_load) + n_buckets (t_export + t_open) + copies
    file system             (S bytes, I engines)            T >= S / B_write + I S / B_read
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from .....program import Program
from .plan import Bucket, Stage, TransferPlan
from .writer import TransferWriter

# Trainers broadcast to all engine ranks


def single_sender(plan: TransferPlan) -> Program:
    """One rank gathers a bucket while it broadcasts the one before (verl's NCCL engine)."""
    return _pipelined(plan, lambda bucket: bucket.stage.head)


def relays(plan: TransferPlan) -> Program:
    """As `single_sender`, and the sender's peers in its stage forward through their own NICs (verl#7291)."""
    return _pipelined(plan, lambda bucket: bucket.stage.head, relayed=True)


def all_senders(plan: TransferPlan) -> Program:
    """Every trainer rank sends a stripe of the bucket order on a group of its own (verl#7263).

    Receivers consume in order; all ranks meet after each set of one bucket per sender.
    """

    def sender_of(bucket: Bucket) -> int:
        return bucket.stage.ranks[bucket.turn % len(bucket.stage.ranks)]

    return _pipelined(plan, sender_of, sets=len(plan.trainers))


def _pipelined(
    plan: TransferPlan, sender_of: Callable[[Bucket], int], *, relayed: bool = False, sets: int = 0
) -> Program:
    writer = TransferWriter(plan, striped=sets > 0)
    began = writer.begin()
    slots = max(plan.transport.slots, sets)
    full = {stage: writer.pool("send", stage.head, slots) for stage in plan.stages}
    empty = writer.pool("receive", plan.receivers[0], slots)
    last, met, loaded = [began], began, began
    for bucket in plan.buckets:
        sender, send_slot = sender_of(bucket), [full[bucket.stage]]
        peers = bucket.stage.ranks[1:] if relayed else ()
        gathered = writer.gather(bucket, [met], into=[sender, *peers], acquires=send_slot)
        named = writer.send_meta(bucket, [gathered])
        lane = f"comm of r{sender}" if sets else "send"
        cast = writer.broadcast(bucket, sender, [named], relays=peers, lane=lane, acquires=[empty], releases=send_slot)
        loaded = writer.reload(bucket, [cast], releases=[empty])
        last.append(cast)
        if sets and (bucket.number + 1) % sets == 0:
            met = writer.op("barrier", bucket, writer.lanes(writer.trainers, "trainer"), last)
            last = [met]
    return writer.finish([*last, loaded])


def stage_heads(plan: TransferPlan) -> Program:
    """Each stage's head gathers and broadcasts its buckets under one lock (slime, miles).

    A head waits until the engines have loaded its bucket; other heads gather meanwhile. Engines load on the host during
    the broadcast. Experts are sent last.
    """
    writer = TransferWriter(plan)
    began = writer.begin()
    freed, phase_done = began, began
    before: list[int] = []
    phase = None
    for bucket in plan.buckets:
        if phase is not bucket.phase:
            phase, phase_done = bucket.phase, freed
        gathered = writer.gather(bucket, [began, phase_done], into=[bucket.stage.head])
        named = writer.send_meta(bucket, [gathered, freed])
        cast = writer.broadcast(bucket, bucket.stage.head, [named, *before])
        loaded = writer.reload(bucket, [named])
        freed = writer.wait(bucket, [cast, loaded])
        before = [freed]
    return writer.finish([freed])


# Trainers write to each receiver what it keeps, or receivers pass weights on


def replica_writes(plan: TransferPlan) -> Program:
    """Gather, load into a host replica shaped like a receiver's shard, write it out (miles' P2P mode).

    A source serves its shapes one after another and waits for the writes of each, as replicas share their memory; the
    writes of the last shape overlap the next gather.
    """
    writer = TransferWriter(plan, lands=False)
    began = writer.begin()
    served = {stage: assign_targets(stage.ranks, plan.receivers, plan.engine_ranks) for stage in plan.stages}
    writes: dict[Stage, list[int]] = {stage: [began] for stage in plan.stages}
    for bucket in plan.buckets:
        ready = [writer.gather(bucket, [began])]
        for shape, rounds in enumerate(_rounds(served[bucket.stage])):
            if shape > 0:
                ready = [*ready, *writes[bucket.stage]]
            replica = [writer.replicate(bucket, shape, ready)]
            writes[bucket.stage] = [
                writer.write(
                    "write", bucket, writer.lanes(writer.places([source for source, _ in pairs]), "write"), replica,
                    pairs, bucket.kept, from_host=True,
                )
                for pairs in rounds
            ]  # fmt: skip
    return writer.finish([op for ops in writes.values() for op in ops])


Served = dict[int, list[list[int]]]
"""Per source, for each shape that it holds (in order), the receivers it writes to."""


def assign_targets(sources: Sequence[int], receivers: Sequence[int], engine_ranks: int) -> Served:
    """The receivers of each source of a pipeline stage.

    Receivers at equal positions in their engines hold equal shapes. The first receivers get a source each; each further
    one gets the source that has its shape and serves fewest, or else the least loaded. (miles, p2p_transfer_utils.py:
    there the last case is round-robin.)
    """
    targets: dict[int, dict[int, list[int]]] = {source: {} for source in sources}
    for index, receiver in enumerate(receivers):
        shape = index % engine_ranks
        if index < len(sources):
            source = sources[index]
        else:
            holding = [s for s in sources if shape in targets[s]]
            source = min(holding or sources, key=lambda s: sum(map(len, targets[s].values())))
        targets[source].setdefault(shape, []).append(receiver)
    return {source: list(shapes.values()) for source, shapes in targets.items()}


_WRITERS = 4
"""Threads of a source that write (miles: `p2p_transfer_num_workers`, 4 unless said otherwise)."""


def _rounds(served: Served) -> Iterator[list[list[tuple[int, int]]]]:
    """For each shape, the writes that all sources do at once: to their first targets, then to the next ones."""
    for shape in range(max(map(len, served.values()))):
        targets = {source: shapes[shape] for source, shapes in served.items() if shape < len(shapes)}
        most = max(map(len, targets.values()))
        yield [
            [(source, target) for source, t in targets.items() for target in t[k : k + _WRITERS]]
            for k in range(0, most, _WRITERS)
        ]


def static_writes(plan: TransferPlan) -> Program:
    """H2D, gather and quantise, write: pipelined over buckets, `slots` in flight on each trainer.

    All meshes of a stage work at the same time, each on tensors of its own. If experts have other meshes, all trainers
    meet at a barrier before the first expert is gathered.
    """
    writer = TransferWriter(plan, lands=False)
    start = writer.begin()
    flight = {stage: writer.pool("in flight", stage.head, plan.transport.slots) for stage in plan.stages}
    mesh, gathered, done = plan.phases[0].mesh, dict[Stage, int](), [start]
    for bucket in plan.buckets:
        ranks, places = bucket.stage.ranks, writer.places(bucket.stage.ranks)
        if bucket.phase.mesh != mesh:
            start = writer.gang("barrier", "meet", writer.trainers, list(gathered.values()))
        mesh, slots = bucket.phase.mesh, [flight[bucket.stage]]
        staged = writer.op(
            "stage_in", bucket, writer.lanes(places, "h2d"), [start], acquires=slots, group=bucket.gatherers,
            size_bytes=round(bucket.part * plan.transport.gathered) // mesh.size,
        )  # fmt: skip
        gathered[bucket.stage] = writer.gather(bucket, [staged])
        pairs = list(_from_groups(plan, bucket))
        written = writer.write(
            "write", bucket, writer.lanes(places, "write"), [gathered[bucket.stage]], pairs,
            bucket.kept * len(plan.receivers) // len(pairs), reads=writer.source_ranges(bucket, ranks), releases=slots,
        )  # fmt: skip
        done.append(written)
    return writer.finish(done)


def _from_groups(plan: TransferPlan, bucket: Bucket) -> Iterator[tuple[int, int]]:
    """(source, target): every receiver gets each group's part from one of its ranks; rounds rotate the ranks.

    If every group has gathered the whole bucket, a receiver gets it from one group.
    """
    groups, n = bucket.groups, len(bucket.groups)
    for i, target in enumerate(plan.receivers, bucket.round):
        turn, senders = (i // n, groups[i % n :][:1]) if bucket.is_everywhere else (i, groups)
        yield from ((group[turn % len(group)], target) for group in senders)


def reshard(plan: TransferPlan) -> Program:
    """Pairwise send and receive between the two layouts, nothing gathered: bucket by bucket, all pairs at once.

    Stages send at the same time, as far as receivers have buffers. Every receiver gets what it keeps from one rank of
    the bucket's stage; rounds rotate the ranks.
    """
    writer = TransferWriter(plan)
    began = writer.begin()
    loaded = [began] * plan.transport.slots
    for bucket in plan.buckets:
        ranks = bucket.stage.ranks
        senders = writer.lanes(writer.places(ranks), "comm")
        lanes = [*senders, *writer.lanes(writer.receivers, f"comm from r{bucket.stage.head}")]
        ready = writer.prepare(bucket, began, bucket.phase.mesh.size)
        pairs = [(ranks[i % len(ranks)], target) for i, target in enumerate(plan.receivers, bucket.round)]
        after = [ready, loaded[-plan.transport.slots]]  # which frees its buffer
        sent = writer.write("exchange", bucket, lanes, after, pairs, bucket.kept, writes=writer.landed(bucket))
        loaded.append(writer.reload(bucket, [sent]))
    return writer.finish(loaded[-1:])


def chain(plan: TransferPlan) -> Program:
    """Buckets run through all receivers, each of which reads from the one before (verl's NIXL engine)."""
    # ranks that pass weights on are at work at different times: none acts like another
    writer = TransferWriter(replace(plan, classes=tuple((rank,) for rank in (*plan.trainers, *plan.receivers))))
    began = writer.begin()
    heads = [stage.head for stage in plan.stages]
    slots = {rank: writer.pool(f"chain of r{rank}", rank, plan.transport.slots) for rank in (*heads, *plan.receivers)}
    loaded = began
    for bucket in writer.plan.buckets:
        line = [bucket.stage.head, *plan.receivers]
        last = writer.gather(bucket, [began], into=[bucket.stage.head], acquires=[slots[bucket.stage.head]])
        last = writer.send_meta(bucket, [last])
        for source, target in pairwise(line):
            lanes = [*writer.lanes_of_rank(source, "out"), *writer.lanes_of_rank(target, "in")]
            last = writer.write(
                "forward", bucket, lanes, [last], [(source, target)], bucket.bytes,
                acquires=[slots[target]], releases=[slots[source]],
            )  # fmt: skip
        loaded = writer.reload(bucket, [last], releases=[slots[line[-1]]])
    return writer.finish([loaded])


# On the same GPUs, or through a file system


def ipc_handles(plan: TransferPlan) -> Program:
    """CUDA IPC handles, one per tensor or per bucket: gather, (flatten), export, send and open handles, load.

    Nothing overlaps. Each of several pipeline stages first sends its shards to the others (slime), as engines load the
    weights of all stages.
    """
    flattens = plan.transport.messages == "bucket"
    writer = TransferWriter(plan, lands=False, flattens=flattens)
    freed = writer.begin()
    trainer_lanes, worker_lanes = writer.lanes(writer.trainers, "trainer"), writer.lanes(writer.receivers, "worker")
    for bucket in plan.buckets:
        handles = (1 if flattens else bucket.tensors,)
        last = writer.gather(bucket, [_spread(writer, bucket, freed)], everywhere=True)
        offered = gathered = writer.source_ranges(bucket, plan.trainers)
        if flattens:
            offered = writer.flat(bucket)
            last = writer.op(
                "flatten", bucket, trainer_lanes, [last], size_bytes=bucket.bytes, reads=gathered, writes=offered
            )
        exported = writer.op("export_handles", bucket, trainer_lanes, [last], shape=handles, reads=offered)
        named = writer.send_meta(bucket, [exported])
        opened = writer.op("open_handles", bucket, worker_lanes, [named], shape=handles)
        freed = writer.wait(bucket, [writer.reload(bucket, [opened], reads=offered)])
    return writer.finish([freed])


def _spread(writer: TransferWriter, bucket: Bucket, after: int) -> int:
    """Each rank of the bucket's stage broadcasts its shard to the ranks at its position in the other stages."""
    stages = writer.plan.stages
    if len(stages) == 1:
        return after
    shard = round(bucket.bytes * writer.transport.gathered) // bucket.phase.mesh.size
    return writer.op(
        "broadcast", bucket, writer.lanes(writer.trainers, "comm"), [after], size_bytes=shard, shape=(bucket.tensors,),
        group=tuple(stage.head for stage in stages), root=bucket.stage.head,
    )  # fmt: skip


def file_system(plan: TransferPlan) -> Program:
    """Trainers write the checkpoint, then every engine reads and loads it, bucket by bucket."""
    writer = TransferWriter(plan)
    began = writer.begin()
    written, home = [], plan.trainers[0]  # the store is taken to be at the trainers' site
    for bucket in plan.buckets:
        gathered = writer.gather(bucket, [began])
        lanes = writer.lanes(writer.places(bucket.stage.ranks), "store")
        size = writer.wire_bytes(bucket.bytes)
        written.append(
            writer.op("fs_write", bucket, lanes, [gathered], size_bytes=size, group=(home, *bucket.stage.ranks))
        )
    stored = writer.gang("barrier", "comm", writer.trainers, written)
    loaded = [began] * plan.transport.slots
    for bucket in plan.buckets:
        after = [stored, loaded[-plan.transport.slots]]  # which frees its buffer
        read = writer.op(
            "fs_read", bucket, writer.lanes(writer.receivers, "store"), after,
            size_bytes=writer.wire_bytes(bucket.bytes), shape=(plan.engines,), group=(home, *plan.receivers),
            writes=writer.landed(bucket),
        )  # fmt: skip
        loaded.append(writer.reload(bucket, [read]))
    return writer.finish(loaded[-1:])
