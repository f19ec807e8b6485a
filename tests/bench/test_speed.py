"""How fast answers come: whole updates from scenario to report, and the engine alone. `make bench` runs them.

Nothing here asserts a time; docs/benchmarks.md holds a table of one machine. Peak memory is that of a fresh process.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from runcast.simulator import simulate
from runcast.simulator.costs import by_kind
from runcast.simulator.engine import Engine
from runcast.simulator.program import Program, ProgramBuilder

SCENARIO = Path(__file__).parents[2] / "data/scenarios/kimi-k2-256xh20.toml"
UPDATES = {
    "256 GPUs folded": [],
    "256 GPUs unfolded": ["fold=false"],
    "256 GPUs folded, three-stage": ["update.pipeline=three_stage"],
    "4096 GPUs folded": ["nodes=512"],
}


@pytest.mark.parametrize("case", UPDATES)
def test_kimi_k2_update(benchmark, case):
    prediction = benchmark.pedantic(simulate, (SCENARIO, UPDATES[case]), rounds=3, warmup_rounds=1)

    benchmark.extra_info["ops"] = len(prediction.resolved.program)
    benchmark.extra_info["peak_rss_mb"] = peak_rss_mb(UPDATES[case])
    assert prediction.report.update_time_s > 0


def test_help(benchmark):
    run = [str(Path(sys.executable).parent / "runcast"), "--help"]
    benchmark.pedantic(subprocess.run, (run,), {"capture_output": True, "check": True}, rounds=5, warmup_rounds=1)


def test_engine_without_contention(benchmark):
    program, costs = chains(lanes=64, ops=100_000, shared=False)
    timeline = benchmark.pedantic(lambda: Engine(program, costs).run(), rounds=3, warmup_rounds=1)

    benchmark.extra_info["ops_per_s"] = round(len(program) / benchmark.stats["median"])
    assert timeline.end_s.min() > 0


@pytest.mark.parametrize("recurring", [True, False], ids=["sets of flows recur", "sets of flows are new"])
@pytest.mark.parametrize("flows", [4, 64])
def test_engine_with_flows_on_one_link(benchmark, flows, recurring):
    program, costs = chains(lanes=flows, ops=20_000, shared=True, rows=flows if recurring else 20_000)
    engine = Engine(program, costs)
    engine.run()
    changes = engine.flows.reallocations
    benchmark.pedantic(lambda: Engine(program, costs).run(), rounds=3, warmup_rounds=1)

    benchmark.extra_info["reallocations_per_s"] = round(changes / benchmark.stats["median"])
    assert changes > 0


def chains(lanes: int, ops: int, shared: bool, rows: int = 1) -> tuple[Program, object]:
    """Lanes of ops of 64 lengths; with `shared` all cross one link at `rows` different rates, else each waits for
    another lane."""
    builder = ProgramBuilder()
    where = [builder.lane(builder.place(f"r{rank}", [rank]), "compute") for rank in range(lanes)]
    for op in range(ops):
        neighbour = [op - 3] if op >= lanes and not shared else []
        builder.op(f"kind {op % 64}", [where[op % lanes]], neighbour)
    program = builder.build()
    seconds = {f"kind {kind}": 1 + kind * 0.137 for kind in range(64)}
    demand = {op: {0: 10.0 + op % rows * 1e-3} for op in range(ops)} if shared else None
    return program, by_kind(program, seconds, demand=demand, capacity_bytes_per_s=(15.0,))


def peak_rss_mb(changes: list[str]) -> int:
    """Peak memory of a process that predicts the scenario once."""
    code = (
        "import sys; from runcast.simulator import simulate; simulate(sys.argv[1], sys.argv[2:]);"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    run = [sys.executable, "-c", code, str(SCENARIO), *changes]
    return int(subprocess.run(run, capture_output=True, check=True, text=True).stdout) // 1000
