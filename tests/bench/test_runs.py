"""How fast whole runs are simulated. Nothing here asserts a time; docs/benchmarks.md holds a table of one machine."""

from pathlib import Path

import pytest
from runcast.simulator import simulate
from runcast.simulator.scenario import load_question

SCENARIOS = Path(__file__).parents[2] / "data/scenarios"
RUNS = {
    "54 days on 16,384 GPUs, eight times": ("run-llama3-405b-16384xh100", []),
    "54 days on 16,384 GPUs, once": ("run-llama3-405b-16384xh100", ["run.repeats=1"]),
    "1,000 asynchronous workers, a million pushes": (
        "run-parameter-server-async", ["nodes=125", "run={steps=1_000_000}", "sync.server.servers=64"],
    ),
    "1,000 federated rounds of 300 clients of a million": ("run-federated", []),
    "2,065 jobs on 512 GPUs": ("run-jobs", []),
}  # fmt: skip


@pytest.mark.parametrize("case", RUNS)
def test_a_run(benchmark, case):
    name, changes = RUNS[case]
    scenario = load_question(SCENARIOS / f"{name}.toml", changes)
    benchmark.pedantic(simulate, args=(scenario,), rounds=3 if "million pushes" not in case else 1, warmup_rounds=0)
