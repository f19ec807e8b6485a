"""The hardware columns of a row as a cluster."""

from collections.abc import Mapping
from typing import Any

from .cells import CellError, Cells

_NVL72 = 72
_SEGMENT_TRAYS = 16  # of a rack's 18, whole ones are booked by 16: jobs of 64 x n GPUs


def cluster_of(cells: Cells, known: Mapping[str, Any], base: str | None = None) -> tuple[str | dict[str, Any], int]:
    """The cluster, with what the row states of its own, and the number of nodes.

    `known` says of a GPU: its cluster, NICs per node and Gb/s of each where a row is silent, GPUs per node, and keys
    of the cluster; `base` is another cluster on which the row's software ran.
    """
    each, gpus = cells.whole("gpus_per_node"), cells.whole("n_gpus")
    if not each or not gpus:
        raise CellError("gpus_per_node and n_gpus: expected numbers above zero")
    nodes, rest = divmod(gpus, each)
    if nodes and rest:
        raise CellError(f"n_gpus = {gpus}: expected a multiple of gpus_per_node = {each}")
    stated: dict[str, Any] = dict(known.get("keys", {}))
    nics, gbps = cells.whole("nics_per_node", known["nics"]), cells.number("nic_gbps", known["gbps"])
    if (nics, gbps) != (known["nics"], known["gbps"]) or base:
        stated |= {"nics": nics, "nic": f"{gbps:g} Gb/s"}
    if (per_node := each if nodes else rest) != known["gpus_per_node"]:
        stated["gpus_per_node"] = per_node
    if cells.whole("nvlink_domain", each) == _NVL72 and gpus > _NVL72 and gpus % (4 * _SEGMENT_TRAYS) == 0:
        stated["nvlink_domain_nodes"] = _SEGMENT_TRAYS
    name = base or known["cluster"]
    return ({"base": name, **stated} if stated else name), max(nodes, 1)
