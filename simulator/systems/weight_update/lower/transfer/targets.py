"""Which source writes to which receivers, and where it must hold several shapes of a replica. Pure arithmetic."""

from collections.abc import Sequence

Served = dict[int, list[list[int]]]
"""Per source, for each shape that it holds (in order), the receivers it writes to."""


def assign_targets(sources: Sequence[int], receivers: Sequence[int], engine_ranks: int) -> Served:
    """Receivers to the sources of one pipeline stage.

    Receivers at equal positions in their engines hold equal shapes. The first receivers go one to one; each further
    one to the source that already holds its shape and serves fewest, or else to the least loaded of all. (miles,
    p2p_transfer_utils.py: there the last case is round-robin.)
    """
    held: dict[int, dict[int, list[int]]] = {source: {} for source in sources}
    for index, receiver in enumerate(receivers):
        shape = index % engine_ranks
        if index < len(sources):
            source = sources[index]
        else:
            holding = [s for s in sources if shape in held[s]]
            source = min(holding or sources, key=lambda s: sum(map(len, held[s].values())))
        held[source].setdefault(shape, []).append(receiver)
    return {source: list(shapes.values()) for source, shapes in held.items()}
