"""What a case is: one thing to measure, with the numbers that a cost model needs to know of it, and who takes part.

Which cases there are depends on what the machine is: the same on all ranks, since rank 0 tells it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .records import case_key
from .timing import Measure, Measurement, TooSlowError


@dataclass(frozen=True)
class Facts:
    """The machine as far as it decides which cases there are. `nodes` lists the ranks of each node."""

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
        """Number of ranks of all nodes."""
        return sum(map(len, self.nodes))

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.kind == "cuda"

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Facts":
        """The facts from the result of `dataclasses.asdict`, in which JSON turned tuples into lists."""
        return cls(**{**values, "nodes": tuple(map(tuple, values["nodes"]))})


@dataclass(frozen=True)
class Team:
    """Ranks that do something together.

    `layout` is `node` (first ranks of the first node), `nodes` (all ranks of the first nodes) or `rails` (the first
    rank of each). `whole`: there are no more such ranks.
    """

    ranks: tuple[int, ...]
    nodes: int
    layout: str
    whole: bool

    @property
    def params(self) -> dict[str, int | str]:
        """Parameters of a case that say who took part."""
        return {"gpus": len(self.ranks), "nodes": self.nodes, "layout": self.layout}


def node_teams(facts: Facts) -> Iterator[Team]:
    """2, 4, 8, ... and all ranks of the first node."""
    node = facts.nodes[0]
    for count in doublings(len(node)):
        yield Team(node[:count], 1, "node", count == len(node))


def cluster_teams(facts: Facts) -> Iterator[Team]:
    """All ranks of the first 2, 4, 8, ... and of all nodes."""
    for count in doublings(len(facts.nodes)):
        yield Team(sum(facts.nodes[:count], ()), count, "nodes", count == len(facts.nodes))


def all_teams(facts: Facts) -> Iterator[Team]:
    """Every team of two and more ranks, each once; rails where nodes have several ranks."""
    yield from node_teams(facts)
    yield from cluster_teams(facts)
    for team in cluster_teams(facts):
        if len(team.ranks) > team.nodes:
            yield Team(tuple(node[0] for node in facts.nodes[: team.nodes]), team.nodes, "rails", team.whole)


def doublings(count: int) -> list[int]:
    """2, 4, 8, ... below the count, and the count itself: nothing for one."""
    below = [1 << power for power in range(1, count.bit_length()) if 1 << power < count]
    return [*below, count] if count > 1 else []


@dataclass(frozen=True)
class Case:
    """`family`, `name` and `params` together are its identity.

    `team` are the ranks that take part, all others wait. `flop` and `bytes` are the algorithmic counts of one act
    (bytes: read once and written once; of a collective or copy, its message). `over` says what the bytes cross:
    `memory`, `host` (PCIe, or what is in its place) or `wire`. `cost_class` and `features` are those of
    `runcast.simulator.profile.forms`, empty where a case is no sample of a class; rows of one `together` are left out
    together when errors are measured. `calls` is how many operations one act issues, `footprint_bytes` what each rank
    allocates, `lasts_s` how long a case runs that keeps to no budget. `quick` cases are those of `--quick`.
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
        """The identity of a case in one line: `gemm/wgrad m=512 n=4096 k=4096 dtype=bf16`."""
        return case_key(self.family, self.name, self.params)

    def record(self, visit_round: int, outcome: Measurement | TooSlowError | str) -> dict[str, Any]:
        """The record of one visit: its measurement, that it is left out, or the error why there is none."""
        about = {"group": self.family, "case": self.name, "params": dict(self.params), "round": visit_round}
        if isinstance(outcome, TooSlowError):
            return about | {"left_out": str(outcome)}
        if isinstance(outcome, str):
            return about | {"error": outcome}
        strange = [seconds for seconds in outcome.samples_s if not 0 <= seconds < math.inf]
        if strange or not outcome.samples_s:
            return about | {"error": f"a sample of {strange[0]:g} s is no time" if strange else "gave no samples"}
        return about | {
            "library": self.library,
            "cache": self.cache,
            "unit": "us",
            "samples": [_rounded(seconds * 1e6) for seconds in outcome.samples_s],
            "flop": self.flop,
            "bytes": self.bytes,
            "wrong": outcome.wrong,
            "cost_class": self.cost_class,
            "features": dict(self.features),
            "together": self.together,
            "more": _rounded(dict(outcome.more)),
        }


def _rounded(value: Any) -> Any:
    """Floats with five digits, which is more than clocks tell; None for those that are not finite."""
    if isinstance(value, dict):
        return {name: _rounded(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value
