"""Machines: devices, links, clusters with their routes, and the catalogue of those that ship with runcast.

`cluster("dgx-h100", nodes=8)` reads the catalogue; `Cluster.from_wires(device, wires)` builds a small one by hand.
"""

from .catalogue import Spec, cluster, cluster_inputs, cluster_keys, cluster_names, own_keys, some_nodes
from .cluster import Cluster
from .device import DTYPES, Device, device, device_keys, device_names
from .fabrics import Fabric, Shares
from .files import networks
from .graph import Link, Route, Wire, duplex, half_duplex, loop, oneway
from .limits import Limits, limits
from .node import Node

__all__ = [
    "DTYPES", "Cluster", "Device", "Fabric", "Limits", "Link", "Node", "Route", "Shares", "Spec", "Wire", "cluster",
    "cluster_inputs", "cluster_keys", "cluster_names", "device", "device_keys", "device_names", "duplex",
    "half_duplex", "limits", "loop", "networks", "oneway", "own_keys",
    "some_nodes",
]  # fmt: skip
