"""How fast whole runs are simulated. Nothing here asserts a time; docs/benchmarks.md holds a table of one machine."""

from pathlib import Path

import pytest
from runcast.simulator import simulate
from runcast.simulator.answers.validate.runs import read_run_ledger
from runcast.simulator.runner import InProcess
from runcast.simulator.scenario import load_question
from runcast.simulator.systems.run.spread import Spread
from runcast.simulator.systems.run.sync.gossip import Gossip, run_gossip
from runcast.simulator.systems.run.team import Team

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


def test_weeks_of_64_workers_that_gossip(benchmark):
    jitter = Spread(kind="lognormal", spread=0.2)
    team = Team(64, step_s=1.0, samples=8, parameter_bytes=1e9, link_bytes_per_s=1e10, jitter=jitter)
    benchmark.pedantic(run_gossip, args=(team, Gossip(topology="torus"), 100_000), rounds=3)


def test_the_ledger_of_published_runs(benchmark):
    benchmark.pedantic(lambda: read_run_ledger(runner=InProcess()), rounds=1)
