"""What ranks hold while an algorithm's messages are delivered: for each block, whose parts have been added up."""

EXCHANGES = ("all_to_all", "all_to_all_v")
PARTS = ("all_reduce", "reduce", "reduce_scatter")


def deliver(algorithm, group):
    """Blocks of each rank at the end, each as the set of ranks whose parts are in it.

    Raises AssertionError where a part would be added twice.
    """
    chunks = algorithm.chunks(group)
    has = [dict(begin(algorithm.op, group, chunks.blocks, rank)) for rank in range(group.ranks)]
    has += [{} for _ in range(chunks.switches)]
    for one in chunks.rounds():
        for messages in one.blocks():
            sent = [(to, block, has[a][block]) for a, to, blocks in messages for block in blocks]
            for to, block, parts in sent:
                own = has[to].get(block, frozenset()) if one.adds else frozenset()
                assert not own & parts, f"{algorithm.name}: block {block} has a part twice"
                has[to][block] = own | parts
    return has[: group.ranks]


def begin(op, group, blocks, rank):
    """(block, whose parts it has) of what a rank holds at first."""
    for block in range(blocks):
        if op in PARTS or owner(op, group, block, blocks) == rank:
            yield block, frozenset([rank])


def owner(op, group, block, blocks):
    """Who has a block before it travels."""
    if op in ("broadcast", "scatter"):
        return group.root
    if op == "gather":
        return (group.root + block) % group.ranks
    return block // group.ranks if op in EXCHANGES else block * group.ranks // blocks


def wanted(algorithm, group):
    """(rank, block, whose parts it has) of all that an op owes its ranks."""
    op, blocks, ranks = algorithm.op, algorithm.chunks(group).blocks, group.ranks
    for rank in range(ranks):
        for block in range(blocks):
            if op in PARTS:
                parts = frozenset(range(ranks))
                owes = {
                    "all_reduce": True,
                    "reduce": rank == group.root,
                    "reduce_scatter": block * ranks // blocks == rank,
                }
            else:
                parts = frozenset([owner(op, group, block, blocks)])
                owes = {
                    "all_gather": True,
                    "broadcast": True,
                    "gather": rank == group.root,
                    "scatter": (group.root + block) % ranks == rank,
                    "all_to_all": block % ranks == rank,
                    "all_to_all_v": block % ranks == rank,
                }
            if owes[op]:
                yield rank, block, parts
