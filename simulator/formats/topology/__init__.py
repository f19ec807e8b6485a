"""Cluster files from what a machine tells about itself: `nvidia-smi topo -m`, or the topology that NCCL dumps.

`import_cluster("topo.txt", "mine.toml", Given(device="h100"))` is `runcast cluster import` as a function.
"""

from .description import Description, Entry, Given, describe
from .layout import Distance, Layout, Nic
from .write import cluster_text, import_cluster, read_layout

__all__ = [
    "Description",
    "Distance",
    "Entry",
    "Given",
    "Layout",
    "Nic",
    "cluster_text",
    "describe",
    "import_cluster",
    "read_layout",
]
