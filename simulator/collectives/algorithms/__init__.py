"""Algorithms of collectives, one file each; each writes rounds of messages and terms of a closed form (`messages`)."""

from collections.abc import Mapping

from .bidirectional import BOTH_ALL_GATHER, BOTH_ALL_REDUCE, BOTH_REDUCE_SCATTER
from .binomial import BINOMIAL_BROADCAST, BINOMIAL_GATHER, BINOMIAL_REDUCE, BINOMIAL_SCATTER
from .bruck import BRUCK_ALL_GATHER, BRUCK_ALL_TO_ALL
from .chain import CHAIN_BROADCAST, CHAIN_REDUCE
from .direct import (
    DIRECT_ALL_GATHER,
    DIRECT_ALL_TO_ALL,
    DIRECT_GATHER,
    DIRECT_REDUCE_SCATTER,
    DIRECT_SCATTER,
    HIERARCHICAL,
    PAIRWISE,
)
from .halving_doubling import GATHER_DOUBLING, HALVING_DOUBLING, RECURSIVE_DOUBLING, RECURSIVE_HALVING
from .messages import Algorithm
from .ring import RING_ALL_GATHER, RING_ALL_REDUCE, RING_REDUCE_SCATTER
from .scatter_gather import HALVING_GATHER, RING_GATHER, SCATTER_ALL_GATHER, SCATTER_DOUBLING
from .switches import NVLS, SHARP
from .tree import TREE
from .two_level import TWO_LEVEL
from .unequal import UNEQUAL

_ALL = (
    RING_ALL_REDUCE, BOTH_ALL_REDUCE, TREE, TWO_LEVEL, HALVING_DOUBLING, RECURSIVE_DOUBLING, NVLS, SHARP,
    RING_ALL_GATHER, BOTH_ALL_GATHER, GATHER_DOUBLING, BRUCK_ALL_GATHER, DIRECT_ALL_GATHER,
    RING_REDUCE_SCATTER, BOTH_REDUCE_SCATTER, RECURSIVE_HALVING, DIRECT_REDUCE_SCATTER,
    CHAIN_BROADCAST, BINOMIAL_BROADCAST, SCATTER_ALL_GATHER, SCATTER_DOUBLING,
    CHAIN_REDUCE, BINOMIAL_REDUCE, HALVING_GATHER, RING_GATHER,
    DIRECT_ALL_TO_ALL, PAIRWISE, HIERARCHICAL, BRUCK_ALL_TO_ALL, *UNEQUAL,
    DIRECT_GATHER, BINOMIAL_GATHER, DIRECT_SCATTER, BINOMIAL_SCATTER,
)  # fmt: skip

OPS = tuple(dict.fromkeys(one.op for one in _ALL))
"""What ranks can do together."""


def algorithms(op: str) -> Mapping[str, Algorithm]:
    """The algorithms of an op by name."""
    return {one.name: one for one in _ALL if one.op == op}
