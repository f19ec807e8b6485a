"""Cluster files from what a machine tells about itself: `nvidia-smi topo -m`, or the topology that NCCL dumps.

`import_cluster("topo.txt", "mine.toml", Given(device="h100"))` is `runcast cluster import` as a function. The public
names load on first use, as this package holds a verb, and `runcast --help` loads all verbs.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "Description": ".description",
    "Distance": ".layout",
    "Entry": ".description",
    "Given": ".description",
    "Layout": ".layout",
    "Nic": ".layout",
    "describe": ".description",
    "import_cluster": ".write",
    "read_layout": ".write",
    "to_toml": ".write",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name], __name__), name)
