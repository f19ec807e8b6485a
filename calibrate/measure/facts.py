"""What the machine is, as far as the choice of cases depends on it: the same on all ranks, since rank 0 tells it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Facts:
    """`nodes` lists the ranks of each node. Rates are rough, for estimates of how long cases take only."""

    kind: str  # cuda or cpu
    nodes: tuple[tuple[int, ...], ...] = ((0,),)
    memory_bytes: float = 4e9  # that one rank may use
    sms: int = 1
    fp8: bool = True
    numa_nodes: int = 1
    near_numa: int = 0
    collectives: str = "gloo"  # library and version

    @property
    def ranks(self) -> int:
        """Of all nodes."""
        return sum(map(len, self.nodes))

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.kind == "cuda"

    @property
    def flop_per_s(self) -> float:
        """Of a matrix product, roughly."""
        return 3e14 if self.cuda else 3e10

    def bytes_per_s(self, over: str) -> float:
        """Of device memory, of the way to the host, or of a collective; roughly."""
        return _BYTES_PER_S[self.kind][over]

    @property
    def call_s(self) -> float:
        """Of one small operation, roughly."""
        return 1e-5 if self.cuda else 3e-5

    @property
    def wire_s(self) -> float:
        """Of one small collective, roughly."""
        return 3e-5 if self.cuda else 5e-4

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Facts":
        """From what `to_json` gave."""
        return cls(**{**values, "nodes": tuple(map(tuple, values["nodes"]))})


_BYTES_PER_S = {
    "cuda": {"memory": 1e12, "host": 2e10, "wire": 3e10},
    "cpu": {"memory": 2e9, "host": 2e9, "wire": 3e8},
}
