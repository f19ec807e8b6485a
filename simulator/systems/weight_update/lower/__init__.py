"""RL weight updates as Programs: by parameter servers here, from trainers in `transfer`.

buckets      how large they are, which tensors each holds, who sends them
plan         owners, readers, classes of ranks that act alike
writer       the ops, one method each
pipelines    one function per pipeline
"""

from .buckets import ALIGNMENT_BYTES, Buckets, BucketSize, bucket_size, fill_buckets, split_by_count
from .pipelines import serial, three_stage, two_stage
from .plan import UpdatePlan, alike, assign_receivers, make_plan, unfolded, with_readers
from .transfer import Layout, TransferPlan, Transport, make_transfer
from .writer import HOST_LANES

__all__ = [
    "ALIGNMENT_BYTES", "HOST_LANES", "BucketSize", "Buckets", "Layout", "TransferPlan", "Transport",
    "UpdatePlan", "alike", "assign_receivers", "bucket_size", "fill_buckets", "make_plan", "make_transfer", "serial",
    "split_by_count", "three_stage", "two_stage", "unfolded", "with_readers",
]  # fmt: skip
