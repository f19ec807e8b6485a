"""Updates from trainers to inference engines.

plan         meshes, stages, buckets, what a receiver keeps
writer       the ops, one method each
programs     one function per update method
"""

from .plan import Bucket, Layout, Phase, TransferPlan, Transport, make_transfer

__all__ = ["Bucket", "Layout", "Phase", "TransferPlan", "Transport", "make_transfer"]
