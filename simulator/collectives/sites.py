"""What links between sites add to an exchange beside a profile's curves, none of which was measured over several sites.

A signal takes its time, however few the bytes. A group that lies on several sites waits at least `crossings x latency`
of the farthest two: once where data goes one way (a broadcast, a send) or where all send at the same time (an
all-gather, a reduce-scatter, an all-to-all), twice for an all-reduce, since in NCCL's trees a sum goes up to the root
and comes down again; NCCL has no recursive doubling, which crosses once. This is a lower bound of NCCL's time: its
rings cross more often, and software that waits for an answer before it sends on does so for each part of a message.
"""

from collections.abc import Iterable, Sequence

from ..hardware import Cluster


def crossings(kind: str) -> int:
    """How often data goes from site to site at least, one time after the other."""
    return 2 if kind == "all_reduce" else 1


def largest_site_latency_s(cluster: Cluster, groups: Iterable[Sequence[int]]) -> float:
    """Seconds that links between sites add to a message between the farthest two ranks of one of these groups."""
    latency_s = cluster.site_latency_s
    if not latency_s.any():
        return 0.0
    sites = {tuple(sorted({cluster.site_of(rank) for rank in group})) for group in groups}
    return max((float(latency_s[a, b]) for own in sites for a in own for b in own), default=0.0)
