"""RL weight updates as Programs: by parameter servers here, from trainers in `transfer`.

buckets      how large they are, which tensors each holds, who sends them
plan         owners, readers, classes of ranks that act alike
writer       the ops, one method each
pipelines    one function per pipeline
"""

from .buckets import ALIGNMENT_BYTES, Buckets, BucketSize, bucket_size, fill_buckets, split_by_count
from .pipelines import serial, three_stage, two_stage
from .plan import UpdatePlan, assign_readers, assign_receivers, group_alike, make_plan, single_ranks
from .transfer import Layout, TransferPlan, Transport, make_transfer
from .writer import HOST_LANES

__all__ = [
    "ALIGNMENT_BYTES", "HOST_LANES", "BucketSize", "Buckets", "Layout", "TransferPlan", "Transport", "UpdatePlan",
    "assign_readers", "assign_receivers", "bucket_size", "fill_buckets", "group_alike", "make_plan", "make_transfer",
    "serial", "single_ranks", "split_by_count", "three_stage", "two_stage",
]  # fmt: skip
