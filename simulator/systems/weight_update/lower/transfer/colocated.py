"""Trainers and engines on the same GPUs: weights change hands by CUDA IPC handles, one per tensor or per bucket.

    per tensor   T = n_tensors (t_gather + t_export + t_open + t_load)
    flattened    T = n_tensors (t_gather + t_load) + n_buckets (t_export + t_open) + copies

Of several pipeline stages, each sends its shards to the others first (slime): engines load all stages' weights.
"""

from .....program import Program
from .plan import TransferPlan
from .writer import Bucket, TransferWriter


def colocated(plan: TransferPlan) -> Program:
    """Gather, (flatten), export handles, send them, open them, load: bucket by bucket, nothing beside anything."""
    flattens = plan.payload.messages == "bucket"
    writer = TransferWriter(plan, lands=False, flattens=flattens)
    freed = writer.begin()
    for bucket in writer.buckets():
        handles = 1 if flattens else bucket.tensors
        held = writer.gather(bucket, [_spread(writer, bucket, freed)], ranks=plan.trainers)
        offered = gathered = writer.sent_from(bucket, plan.trainers)
        if flattens:
            offered = writer.flat(bucket)
            held = writer.bucket_op(
                "flatten", bucket, plan.trainers, "trainer", [held], size_bytes=bucket.bytes,
                reads=gathered, writes=offered,
            )  # fmt: skip
        shape = (handles,)
        exported = writer.bucket_op(
            "export_handles", bucket, plan.trainers, "trainer", [held], shape=shape, reads=offered
        )
        told = writer.tell(bucket, [exported])
        opened = writer.bucket_op("open_handles", bucket, plan.receivers, "worker", [told], shape=shape)
        freed = writer.heard(bucket, [writer.reload(bucket, [opened], reads=offered)])
    return writer.finish([freed])


def _spread(writer: TransferWriter, bucket: Bucket, after: int) -> int:
    """Each rank of the bucket's stage broadcasts its shard to the ranks at its position in the other stages."""
    stages, sender = writer.plan.stages, bucket.stage
    if len(stages) == 1:
        return after
    shard = round(bucket.bytes * writer.plan.payload.gathered) // bucket.phase.mesh.size
    return writer.bucket_op(
        "broadcast", bucket, writer.plan.trainers, "comm", [after], size_bytes=shard, shape=(bucket.tensors,),
        group=tuple(stage.head for stage in stages), root=sender.head,
    )  # fmt: skip
