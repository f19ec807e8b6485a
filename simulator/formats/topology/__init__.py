"""Cluster files from what a machine tells about itself: `nvidia-smi topo -m`, or the topology that NCCL dumps.

`import_cluster("topo.txt", "mine.toml", Given(device="h100"))` is `runcast cluster import` as a function.
"""

from .description import Description, Entry, Given, describe
from .layout import Distance, Layout, Nic
from .write import import_cluster, read_layout, to_toml

__all__ = [
    "Description",
    "Distance",
    "Entry",
    "Given",
    "Layout",
    "Nic",
    "describe",
    "import_cluster",
    "read_layout",
    "to_toml",
]
