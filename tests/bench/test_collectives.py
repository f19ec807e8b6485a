"""How fast collectives are simulated. Nothing here asserts a time; docs/benchmarks.md holds a table of one machine."""

import pytest
from runcast.simulator import simulate
from runcast.simulator.scenario import check_question

CASES = {
    "ring on 4,096 ranks, every message": (512, {"algorithm": "ring", "level": "chunks", "every_rank": True}),
    "ring on 16,384 ranks, every message": (2048, {"algorithm": "ring", "level": "chunks", "every_rank": True}),
    "ring on 4,096 ranks": (512, {"algorithm": "ring", "level": "chunks"}),
    "two levels on 65,536 ranks": (8192, {"algorithm": "two_level", "level": "chunks"}),
    "two jobs of 256 ranks that share uplinks": (
        64, {"algorithm": "ring", "level": "chunks", "groups": 2, "placement": "scattered"},
    ),
}  # fmt: skip
SHARED = {"base": "dgx-h100", "fabric": "leaf", "oversubscription": 4}


@pytest.mark.parametrize("case", CASES)
def test_a_collective(benchmark, case):
    nodes, keys = CASES[case]
    cluster = SHARED if "share" in case else "dgx-h100"
    table = {
        "kind": "collective",
        "cluster": cluster,
        "nodes": nodes,
        "collective": {"op": "all_reduce", "sizes": "1 GiB"},
    }
    table["collective"] |= keys
    benchmark.pedantic(simulate, args=(check_question(table),), rounds=3, warmup_rounds=0)
