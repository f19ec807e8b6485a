"""Trainers and engines on the same GPUs: weights change hands by CUDA IPC handles, one per tensor or per bucket.

    per tensor   T = n_tensors (t_gather + t_export + t_open + t_load)
    flattened    T = n_tensors (t_gather + t_load) + n_buckets (t_export + t_open) + copies
"""

from ...program import Program
from .plan import TransferPlan
from .writer import TransferWriter


def colocated(plan: TransferPlan) -> Program:
    """Gather, (flatten), export handles, send them, open them, load: bucket by bucket, nothing beside anything."""
    writer = TransferWriter(plan)
    freed = writer.begin()
    for bucket in writer.buckets():
        handles = bucket.tensors if plan.payload.messages == "tensor" else 1
        held = writer.gather(bucket, [freed])
        if plan.payload.messages == "bucket":
            held = writer.bucket_op("flatten", bucket, bucket.stage.ranks, "trainer", [held], size_bytes=bucket.bytes)
        shape = (handles,)
        exported = writer.bucket_op("export_handles", bucket, bucket.stage.ranks, "trainer", [held], shape=shape)
        told = writer.tell(bucket, [exported])
        opened = writer.bucket_op("open_handles", bucket, plan.receivers, "worker", [told], shape=shape)
        freed = writer.heard(bucket, [writer.reload(bucket, [opened])])
    return writer.finish([freed])
