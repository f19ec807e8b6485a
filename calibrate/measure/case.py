"""What a case is: one thing to measure, with the numbers that a cost model needs to know of it.

Which cases there are depends on what the machine is: the same on all ranks, since rank 0 tells it.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .timing import Bench


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


Act = Callable[[], object]
"""Does the thing once: enqueues work on the current stream, or has done it when it returns."""


@dataclass(frozen=True)
class Measurement:
    """Seconds of one act each; elements that came out wrong, where results are checked; what else was seen."""

    samples_s: tuple[float, ...]
    wrong: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


Measure = Callable[["Bench"], Measurement]


@dataclass(frozen=True)
class Case:
    """`family`, `name` and `params` together are its identity.

    `team` are the ranks that take part, all others wait. `flop` and `bytes` are the algorithmic counts of one act
    (bytes: read once and written once; of a collective or copy, its message). `over` says what the bytes cross:
    `memory`, `host` (PCIe, or what is in its place) or `wire`. `cost_class` and `features` are those of
    `runcast.simulator.forms`, empty where a case is no sample of a class; rows of one `together` are left out together
    when errors are measured. `calls` is how many operations one act issues, `footprint_bytes` what each rank allocates,
    `lasts_s` how long a case runs that keeps to no budget. `quick` cases are those of `--quick`.
    """

    family: str
    name: str
    params: Mapping[str, Any]
    measure: Measure
    team: tuple[int, ...] = (0,)
    cost_class: str = ""
    features: Mapping[str, float] = field(default_factory=dict)
    library: str = "torch"
    together: str = ""
    flop: float = 0.0
    bytes: float = 0.0
    over: str = "memory"
    calls: int = 1
    footprint_bytes: float = 0.0
    cache: str = "cold"
    quick: bool = False
    lasts_s: float = 0.0

    @property
    def key(self) -> str:
        """Its identity in one line: `gemm/wgrad m=512 n=4096 k=4096 dtype=bf16`."""
        return identity(self.family, self.name, self.params)


def identity(family: str, name: str, params: Mapping[str, Any]) -> str:
    """One line that no other case has."""
    return " ".join([f"{family}/{name}", *(f"{param}={_short(value)}" for param, value in params.items())])


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
