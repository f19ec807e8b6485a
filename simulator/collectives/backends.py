"""Libraries as sets of choices: which algorithms each has for an op, and which one it takes for a size.

Gloo's are those of pytorch/gloo, gloo/*.cc: a ring sums and gathers, a binomial tree broadcasts, an all-to-all and what
has a root are direct. MPI's are MPICH's, whose thresholds are the defaults of its variables MPIR_CVAR_…_MSG_SIZE
(pmodels/mpich, src/mpi/coll; Thakur et al., IJHPCA 2005, found most of them). NCCL's are in `nccl`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from .algorithms.hops import ClusterNet, Wire
from .algorithms.messages import Group


class Way(NamedTuple):
    """How a library does an op: an algorithm, and of NCCL the protocol of its messages and the channels that they take.

    `wire`: what that makes of hops.
    """

    algorithm: str
    protocol: str = ""
    channels: int | None = None
    wire: Wire = Wire()


class Asked(NamedTuple):
    """One collective of a size between the ranks of a net."""

    op: str
    size: float
    net: ClusterNet
    group: Group
    channels: int | None = None


class Backend(Protocol):
    """A library."""

    def ways(self, asked: Asked) -> list[Way]:
        """All that it could take."""
        ...

    def choose(self, asked: Asked, ways: list[Way]) -> Way:
        """What it takes of these."""
        ...


class Table(NamedTuple):
    """A library that chooses by size and number of ranks: an algorithm, or '' if it is not known here."""

    chosen: Mapping[str, Callable[[float, int], str]]

    def ways(self, asked: Asked) -> list[Way]:
        """As `Backend.ways`: the one that it takes."""
        name = self.chosen.get(asked.op, _always(""))(asked.size, asked.group.ranks)
        return [Way(name)] if name else []

    def choose(self, _asked: Asked, ways: list[Way]) -> Way:
        """As `Backend.choose`."""
        return ways[0]


def _always(name: str) -> Callable[[float, int], str]:
    return lambda _size, _ranks: name


def _is_power(ranks: int) -> bool:
    return ranks & (ranks - 1) == 0


def _all_reduce(size: float, ranks: int) -> str:
    """MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE."""
    return "halving_doubling" if size > 2048 and _is_cut(size, ranks) else "recursive_doubling"


def _reduce(size: float, ranks: int) -> str:
    """MPIR_CVAR_REDUCE_SHORT_MSG_SIZE."""
    if size <= 2048 or not _is_cut(size, ranks):
        return "binomial"
    return "halving_gather" if _is_power(ranks) else ""


def _reduce_scatter(size: float, ranks: int) -> str:
    """MPIR_CVAR_REDSCAT_COMMUTATIVE_LONG_MSG_SIZE; above it MPICH's pairwise exchange, each with all others in turn."""
    if size >= 512 << 10:
        return "direct"
    return "recursive_halving" if _is_power(ranks) else ""


def _is_cut(size: float, ranks: int) -> bool:
    """Fewer elements (of 4 bytes) than ranks are not cut."""
    return size // 4 >= 1 << (ranks.bit_length() - 1)


def _all_gather(size: float, ranks: int) -> str:
    """MPIR_CVAR_ALLGATHER_LONG_MSG_SIZE and …_SHORT_MSG_SIZE, of all that is gathered."""
    if size < 512 << 10 and _is_power(ranks):
        return "recursive_doubling"
    return "bruck" if size < 80 << 10 else "ring"


def _broadcast(size: float, ranks: int) -> str:
    """MPIR_CVAR_BCAST_SHORT_MSG_SIZE, …_LONG_MSG_SIZE and …_MIN_PROCS."""
    if size < 12 << 10 or ranks < 8:
        return "binomial"
    return "scatter_doubling" if size < 512 << 10 and _is_power(ranks) else "scatter_all_gather"


def _all_to_all(size: float, ranks: int) -> str:
    """MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE and …_MEDIUM_MSG_SIZE, of what goes to one rank."""
    if size / ranks <= 256 and ranks >= 8:
        return "bruck"
    return "pairwise" if size / ranks > 32 << 10 and _is_power(ranks) else "direct"


GLOO = Table({
    "all_reduce": _always("ring"), "all_gather": _always("ring"), "broadcast": _always("binomial"),
    "reduce": _always("ring_gather"),
    "all_to_all": _always("direct"), "all_to_all_v": _always("direct"),
    "gather": _always("direct"), "scatter": _always("direct"),
})  # fmt: skip
MPI = Table({
    "all_reduce": _all_reduce, "all_gather": _all_gather, "broadcast": _broadcast, "all_to_all": _all_to_all,
    "reduce": _reduce, "reduce_scatter": _reduce_scatter,
    "all_to_all_v": _always("direct"), "gather": _always("binomial"), "scatter": _always("binomial"),
})  # fmt: skip
