"""Networks between nodes, a file for each kind of fabric; a new kind is a file and a line of `build.KINDS`."""

from .build import IDEAL, KINDS, check_keys, has_sharp
from .network import Network, Shares, Transfer
from .parts import Parts, parts_of, several
from .plan import Cabling, Fabric, FabricError, Routing

__all__ = [
    "IDEAL", "KINDS", "Cabling", "Fabric", "FabricError", "Network", "Parts", "Routing", "Shares", "Transfer",
    "check_keys", "has_sharp", "parts_of", "several",
]  # fmt: skip
