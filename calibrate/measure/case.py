"""What a case is: one thing to measure, with the numbers that a cost model needs to know of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .timing import Bench

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
