"""The load of the fullest rank by uneven routing of tokens, and the share of their copies that leave the node."""

from math import comb

import numpy as np
from numpy.typing import NDArray

from ...base.errors import UserError, fault
from ...hardware import Cluster
from ...models import Moe
from ...program.parallel import ParallelDims
from .scenario import Experts


def load_of(given: Experts, moe: Moe | None, ranks: int, where: str = "scenario") -> float:
    """The tokens of the most loaded of `ranks` expert-parallel ranks, divided by an even share.

    Experts lie on ranks in order. A capacity factor limits the tokens of one expert (Switch, arXiv 2101.03961).
    """
    if moe is None:
        return 1.0
    shares = _shares_within_capacity(given, moe, where)
    return float(shares.reshape(ranks, -1).sum(axis=1).max() * ranks)


def _shares_within_capacity(given: Experts, moe: Moe, where: str) -> NDArray[np.float64]:
    """Each expert's share of all tokens' copies, without those beyond its capacity."""
    shares = _shares(given, moe, where)
    return shares if given.capacity is None else np.minimum(shares, given.capacity / moe.n_routed_experts)


def _shares(given: Experts, moe: Moe, where: str) -> NDArray[np.float64]:
    """Each expert's share of all tokens; no token goes to one expert twice, so none has more than 1 / top-k."""
    if given.routing == "balanced":
        weights = np.ones(moe.n_routed_experts)
    elif given.routing == "zipf":
        # popularity falls with the expert's number: the worst case of a contiguous placement. Expert r on rank r mod
        # ranks would hide the skew.
        weights = np.arange(1, moe.n_routed_experts + 1, dtype=np.float64) ** -given.zipf
    else:
        if len(given.histogram) != moe.n_routed_experts or sum(given.histogram) <= 0:
            allowed = f"expected {moe.n_routed_experts} shares, one for each expert, not all 0"
            raise UserError(fault(where, "experts.histogram", list(given.histogram), allowed))
        weights = np.array(given.histogram, np.float64)
    return _at_most(weights / weights.sum(), 1 / moe.num_experts_per_tok)


def _at_most(shares: NDArray[np.float64], most: float) -> NDArray[np.float64]:
    """Limit shares to `most`; the excess goes to the others in proportion."""
    for _ in range(len(shares)):
        over = shares > most
        if not over.any() or over.all():
            break
        free = 1.0 - most * over.sum()
        rest = shares[~over].sum()
        shares = np.where(over, most, shares * (free / rest if rest else 0.0))
        if not (shares > most * (1 + 1e-12)).any():
            break
    return shares


def expert_islands(dims: ParallelDims, machines: Cluster) -> int:
    """The number of NVLink islands over which an expert-parallel group lies."""
    return len({machines.island(rank) for rank in dims.group("ep", 0)})


def rank_share(given: Experts, moe: Moe | None, ranks: int, nodes: int) -> float:
    """The share of a token's copies (one per expert) that is sent, if each rank gets at most one.

    With uneven routing it is that of the fullest rank, of the copies by which it is the fullest (`load_of`). With
    limited routing a token goes only to ranks of `nodes_per_token` nodes (DeepEP's `is_token_in_rank` holds the ranks
    of each token).
    """
    if moe is None or given.dispatcher == "alltoall":
        return 1.0
    if given.routing != "balanced":
        limit = ranks * min(given.nodes_per_token or nodes, nodes) / nodes
        return _fullest(given, moe, ranks, limit) / moe.num_experts_per_tok / load_of(given, moe, ranks)
    limit = min(given.nodes_per_token or nodes, nodes) / nodes
    open_to_it = round(limit * ranks)
    return _reached(open_to_it, round(limit * moe.n_routed_experts), moe.num_experts_per_tok) / moe.num_experts_per_tok


def remote_share(given: Experts, moe: Moe | None, ranks: int, nodes: int) -> float | None:
    """The share of a token's copies that cross between nodes, if each node gets at most one; None if all are sent.

    Limited routing reaches at most `nodes_per_token` nodes; the token's own node is as likely as any (DeepSeek-V3,
    arXiv 2412.19437, section 2.1.2).
    """
    if moe is None or nodes == 1 or given.dispatcher == "alltoall":
        return None
    if given.routing == "balanced":
        reached = _reached(nodes, moe.n_routed_experts, moe.num_experts_per_tok)
        reached = min(reached, given.nodes_per_token or nodes)
    else:
        reached = _fullest(given, moe, nodes, given.nodes_per_token or nodes) / load_of(given, moe, ranks)
    return reached * (nodes - 1) / nodes / moe.num_experts_per_tok


def _fullest(given: Experts, moe: Moe, places: int, limit: float) -> float:
    """Copies per token that the fullest place gets, over an even share of tokens; one per token and place at most.

    Experts are taken to be chosen independently of each other: a place gets none with probability prod(1 - p). A token
    goes to at most `limit` places.
    """
    chosen = np.minimum(_shares_within_capacity(given, moe, "scenario") * moe.num_experts_per_tok, 1.0)
    reached = 1 - np.prod(1 - chosen.reshape(places, -1), axis=1)
    return float(reached.max() * min(limit / reached.sum(), 1.0) * places)


def _reached(places: int, experts: int, chosen: int) -> float:
    """The mean number of places that hold a chosen expert; all experts are equally likely, with as many on each place.

    Hypergeometric: a place holds none with probability C(experts - own, chosen) / C(experts, chosen).
    """
    own = experts // places
    return places * (1 - comb(experts - own, chosen) / comb(experts, chosen))
