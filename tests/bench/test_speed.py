"""How fast answers come: whole updates from scenario to report, and their parts alone. `make bench` runs them.

Nothing here asserts a time; docs/benchmarks.md holds a table of one machine. Peak memory is that of a fresh process.
"""

import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from runcast.simulator import simulate
from runcast.simulator.costs import Costs, kind_costs
from runcast.simulator.engine import Engine, static
from runcast.simulator.hardware import cluster
from runcast.simulator.program import Program, ProgramBuilder
from runcast.simulator.program.parallel import AXES, ParallelDims
from runcast.simulator.schedules import build

SCENARIO = Path(__file__).parents[2] / "data/scenarios/kimi-k2-256xh20.toml"
UPDATES = {
    "256 GPUs folded": [],
    "256 GPUs unfolded": ["fold=false"],
    "256 GPUs folded, three-stage": ["update.pipeline=three_stage"],
    "4096 GPUs folded": ["nodes=512"],
    "16384 GPUs folded": ["nodes=2048"],
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


@pytest.mark.parametrize("schedule", ["interleaved", "dualpipe", "zb-v", "v-half", "v-min"])
def test_a_schedule_of_16_stages(benchmark, schedule):
    benchmark(build, schedule, 16, 128, 2 if schedule == "interleaved" else 1)


def test_the_groups_of_16384_ranks(benchmark):
    dims = ParallelDims(tp=8, cp=16, dp=8, pp=16, ep=64)
    benchmark(lambda: [dims.group(axis, rank) for axis in AXES for rank in range(0, dims.world_size, 16)])


@pytest.mark.parametrize("fabric", ["fat_tree", "leaf_spine", "torus", "dragonfly"])
def test_a_cluster_of_16384_gpus(benchmark, fabric):
    keys = {
        "leaf_spine": {"spine_radix": 512}, "torus": {"sizes": [8, 16, 16]},
        "dragonfly": {"groups": 33, "group_routers": 16, "global_links": 8},
    }.get(fabric, {})  # fmt: skip
    described = {"base": "dgx-h100", "fabric": fabric, **keys}
    benchmark(lambda: cluster(described, 2048).route("n0.gpu0", "n2047.gpu7"))


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


ENGINES = {
    "simpy": lambda program, costs: Engine(program, costs).run(),
    "interpreted": lambda program, costs: static.run(program, costs, use_numba=False),
    "compiled": lambda program, costs: static.run(program, costs, use_numba=True),
}
CASES = {
    "nothing shared": (False, False),
    "contended links": (True, False),
    "disturbances": (False, True),
    "links and disturbances": (True, True),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [(4, 16, 2), (16, 151, 16)], ids=["small", "large"])
def test_training_step(benchmark, size, case, engine):
    program, costs = pipeline(*size, *CASES[case])
    slow = engine != "compiled" and len(program) > 100_000
    run = {"rounds": 1} if slow else {"rounds": 9, "warmup_rounds": 1}
    # A copy has not yet looked up `lanes_of`: the first run of a Program is what counts.
    timeline = benchmark.pedantic(lambda: ENGINES[engine](replace(program), costs), **run)

    benchmark.extra_info["ops"] = len(program)
    assert timeline.end_s.min() > 0


@cache
def pipeline(places: int, micro_batches: int, layers: int, links: bool, disturbed: bool) -> tuple[Program, Costs]:
    """A step of 1F1B with experts: each place has a lane for kernels, one for all-to-alls and one for sends."""
    b = ProgramBuilder()
    ranks = [b.place(f"pp{place}", range(8 * place, 8 * place + 8)) for place in range(places)]
    compute, experts, sends = ([b.lane(place, name) for place in ranks] for name in ("compute", "ep", "pp"))
    last: dict[tuple[str, int, int], int] = {}  # the op behind which the next place can start
    todo = [one_f_one_b(place, places, micro_batches) for place in range(places)]
    while any(todo):
        for place, cells in enumerate(todo):
            while cells and (before := needs(*cells[0], place, places)) <= last.keys():
                kind, micro_batch = cells.pop(0)
                op = [last[cell] for cell in before]
                for _ in range(layers):
                    attention = b.op(f"{kind} attention", [compute[place]], op)
                    dispatch = b.op("all-to-all", [experts[place]], [attention])
                    shared = b.op(f"{kind} shared", [compute[place]], [attention])
                    routed = b.op(f"{kind} experts", [compute[place]], [dispatch, shared])
                    op = [b.op("all-to-all", [experts[place]], [routed])]
                neighbour = place + 1 if kind == "F" else place - 1
                if 0 <= neighbour < places:
                    op = [b.op("send", [sends[place], sends[neighbour]], op)]
                last[kind, place, micro_batch] = op[0]
    return b.build(), costs_of(b.build(), links, disturbed)


def one_f_one_b(place: int, places: int, micro_batches: int) -> list[tuple[str, int]]:
    """What a pipeline rank does: forwards until it is warm, then one forward and one backward in turns."""
    warm = min(places - place - 1, micro_batches)
    turns = [cell for m in range(micro_batches - warm) for cell in (("F", m + warm), ("B", m))]
    return [("F", m) for m in range(warm)] + turns + [("B", m) for m in range(micro_batches - warm, micro_batches)]


def needs(kind: str, micro_batch: int, place: int, places: int) -> set[tuple[str, int, int]]:
    """The cell of another place that must have sent before this one can start."""
    neighbour = place - 1 if kind == "F" else place + 1
    return {(kind, neighbour, micro_batch)} if 0 <= neighbour < places else set()


def costs_of(program: Program, links: bool, disturbed: bool) -> Costs:
    """Two places share a link for all-to-alls and sends, which it cannot hold at once; kernels and all-to-alls meet."""
    kernels = {kind: 1e-3 * (1 + kind.startswith("B")) for kind in program.kinds if " " in kind}
    place = np.array([lane.place for lane in program.lanes])[program.lanes_of.values[program.lanes_of.start[:-1]]]
    rate = {program.kinds.index("all-to-all"): 30e9, program.kinds.index("send"): 25e9}
    asked = {op: {int(place[op]) // 2: rate[kind]} for op, kind in enumerate(program.kind.tolist()) if kind in rate}
    pairs = {(kind, "all-to-all"): 0.83 for kind in kernels} | {("all-to-all", kind): 0.91 for kind in kernels}
    costs = kind_costs(
        program,
        {**kernels, "all-to-all": 0.7e-3, "send": 0.4e-3},
        latency_s={"all-to-all": 2e-5, "send": 1e-5},
        demand=asked if links else None,
        capacity_bytes_per_s=(50e9,) * len(program.places),
        interference=pairs if disturbed else None,
    )
    jitter = np.random.default_rng(0).uniform(0.9, 1.1, len(program))  # no two ends fall together
    return replace(costs, work_s=costs.work_s * jitter)


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
    return program, kind_costs(program, seconds, demand=demand, capacity_bytes_per_s=(15.0,))


def peak_rss_mb(changes: list[str]) -> int:
    """Peak memory of a process that predicts the scenario once."""
    code = (
        "import sys; from runcast.simulator import simulate; simulate(sys.argv[1], sys.argv[2:]);"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    run = [sys.executable, "-c", code, str(SCENARIO), *changes]
    return int(subprocess.run(run, capture_output=True, check=True, text=True).stdout) // 1000
