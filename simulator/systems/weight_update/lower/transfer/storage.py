"""Through a file system: trainers write the checkpoint, every engine reads it.

With S bytes and I engines that share the store: T >= S / B_write + I S / B_read.
"""

from .....program import Program
from .plan import TransferPlan
from .writer import TransferWriter


def file_system(plan: TransferPlan) -> Program:
    """All buckets written, then all read by each engine and loaded, bucket by bucket."""
    writer = TransferWriter(plan)
    began = writer.begin()
    buckets = writer.buckets()
    written = [
        writer.bucket_op("fs_write", bucket, bucket.stage.ranks, "store", [writer.gather(bucket, [began])],
                         size_bytes=writer.sent(bucket.bytes))
        for bucket in buckets
    ]  # fmt: skip
    stored = writer.gang("barrier", "comm", plan.trainers, written)
    loaded = began
    for bucket in buckets:
        size = writer.sent(bucket.bytes)
        read = writer.bucket_op(
            "fs_read", bucket, plan.receivers, "store", [stored], size_bytes=size, shape=(plan.engines,)
        )
        loaded = writer.reload(bucket, [read])
    return writer.finish([loaded])
