"""RL weight updates as Programs: the plan (owners, buckets) and one function per pipeline."""

from .buckets import ALIGNMENT_BYTES, Buckets, BucketSize, bucket_size, fill_buckets, split_by_count
from .plan import UpdatePlan, alike, make_plan, unfolded, with_readers
from .receivers import assign_receivers
from .synchronous import serial, two_stage
from .three_stage import three_stage
from .transfer import METHODS as TRANSFERS
from .transfer import Layout, Payload, TransferPlan, make_transfer, receive_buffers
from .writer import HOST_LANES

__all__ = [
    "ALIGNMENT_BYTES", "HOST_LANES", "TRANSFERS", "BucketSize", "Buckets", "Layout", "Payload", "TransferPlan",
    "UpdatePlan", "alike", "assign_receivers", "bucket_size", "fill_buckets", "make_plan", "make_transfer",
    "receive_buffers", "serial", "split_by_count", "three_stage", "two_stage", "unfolded", "with_readers",
]  # fmt: skip
