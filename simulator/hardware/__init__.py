"""Machines: devices, links, clusters with their routes, and the catalogue of those that ship with runcast.

`cluster("dgx-h100", nodes=8)` reads the catalogue; `Cluster.of(device, wires)` builds a small one by hand.
"""

from .catalogue import cluster, cluster_names, described, resolved
from .cluster import Cluster
from .device import DTYPES, Device, described_device, device, device_names
from .fabric import Fabric
from .files import networks
from .graph import Link, Wire, attached, duplex, half_duplex, oneway
from .limits import Limits, limits
from .node import Node

__all__ = [
    "DTYPES", "Cluster", "Device", "Fabric", "Limits", "Link", "Node", "Wire", "attached",
    "cluster", "cluster_names", "described", "described_device", "device", "device_names", "duplex", "half_duplex",
    "limits", "networks", "oneway", "resolved",
]  # fmt: skip
