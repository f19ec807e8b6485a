"""Cluster files from what a machine tells about itself: `nvidia-smi topo -m`, or the topology that NCCL dumps.

`import_cluster("topo.txt", "mine.toml", Additions(device="h100"))` is `runcast cluster import` as a function.
"""

from .cluster_file import Additions, Description, Entry, cluster_text, describe, import_cluster, read_layout
from .layout import Distance, Layout, Nic

__all__ = [
    "Additions", "Description", "Distance", "Entry", "Layout", "Nic", "cluster_text", "describe", "import_cluster",
    "read_layout",
]  # fmt: skip
