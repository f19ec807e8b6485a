"""How fast training steps are predicted: large ones kernel by kernel, and many small ones that share a Memo.

Nothing here asserts a time; docs/benchmarks.md holds a table of one machine. Peak memory is that of a fresh process.
"""

import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pytest
from runcast.simulator import simulate
from runcast.simulator.answers.search import Row, Wanted
from runcast.simulator.answers.search.explore import screen
from runcast.simulator.answers.search.run import make_question
from runcast.simulator.base.memo import Memo
from runcast.simulator.scenario import check_train

KIMI = {
    "kind": "train_step",
    "cluster": "dgx-h100",
    "nodes": 512,
    "model": {"preset": "kimi-k2"},
    "parallel": {"pp": 16, "ep": 16},
    "schedule": {"name": "interleaved-overlap", "vpp": 2},
    "batch": {"global": 32768, "micro": 1, "seq_len": 4096},
    "recompute": {"mode": "selective", "modules": ["layernorm", "activation", "mla_up_proj"]},
}
LLAMA_405B = {
    "kind": "train_step",
    "cluster": "dgx-h100",
    "nodes": 2048,
    "model": {"preset": "llama3-405b"},
    "parallel": {"tp": 8, "pp": 16, "embedding_as_layer": True},
    "schedule": {"name": "interleaved", "vpp": 8},
    "batch": {"global": 2048, "micro": 1, "seq_len": 8192},
}
LLAMA_70B = {
    "kind": "train_step",
    "cluster": "dgx-h100",
    "nodes": 8,
    "level": "coarse",
    "model": {"preset": "llama3-70b"},
    "parallel": {"tp": 4, "pp": 4},
    "batch": {"global": 128, "micro": 1, "seq_len": 8192},
}
GPT3 = {
    "kind": "train_step",
    "cluster": "dgx-a100",
    "nodes": 128,
    "level": "coarse",
    "model": {"preset": "gpt3-175b"},
    "parallel": {"tp": 8, "pp": 16, "zero": 0, "sequence_parallel": False, "pad_vocab": 128},
    "schedule": {"name": "interleaved", "vpp": 3},
    "batch": {"global": 1536, "seq_len": 2048},
    "recompute": {"mode": "full"},
}
STEPS = {
    "Kimi-K2 on 4,096 GPUs": KIMI,
    "Kimi-K2 with half of its activations offloaded": {**KIMI, "offload": {"activations": 0.5}},
    "Llama-3-405B on 16,384 GPUs": LLAMA_405B,
}


@pytest.mark.parametrize("case", STEPS)
def test_large_step(benchmark, case):
    scenario = check_train(STEPS[case])
    prediction = benchmark.pedantic(simulate, (scenario,), rounds=3, warmup_rounds=1)

    benchmark.extra_info["ops"] = len(prediction.resolved.program)
    benchmark.extra_info["peak_rss_mb"] = peak_rss_mb(STEPS[case])
    assert prediction.report.step_time_s > 0


def test_coarse_step_again(benchmark):
    """The same scenario with a Memo: the Program and its prices are there."""
    scenario, memo = check_train(LLAMA_70B), Memo()
    prediction = benchmark.pedantic(simulate, (scenario,), {"memo": memo}, rounds=50, warmup_rounds=1)

    benchmark.extra_info["ops"] = len(prediction.resolved.program)
    assert prediction.report.step_time_s > 0


def test_coarse_step_of_a_new_plan(benchmark):
    """Plans that were not seen before; a Memo shares machines and profile, and no Program."""
    plans = [
        {**GPT3, "parallel": {**GPT3["parallel"], "tp": tp, "pp": pp}, "batch": {**GPT3["batch"], "micro": micro},
         "schedule": {"name": "interleaved", "vpp": vpp}}
        for tp in (8, 4) for pp in (16, 8) for vpp in (2, 4, 6) for micro in (1, 2)
    ]  # fmt: skip
    memo, left = Memo(), iter(plans)
    simulate(check_train(GPT3), memo=memo)

    def setup():
        return (check_train(next(left)),), {"memo": memo}

    benchmark.pedantic(simulate, setup=setup, rounds=len(plans))


def test_coarse_step_of_many_microbatches(benchmark):
    """As searches meet them: a long step in many stages, without a Memo."""
    scenario = check_train({
        **LLAMA_405B, "level": "coarse", "nodes": 128, "schedule": {"name": "interleaved", "vpp": 2},
        "parallel": {"tp": 4, "pp": 64, "embedding_as_layer": True},
    })  # fmt: skip
    prediction = benchmark.pedantic(simulate, (scenario,), rounds=3, warmup_rounds=1)

    benchmark.extra_info["ops"] = len(prediction.resolved.program)


def test_screening(benchmark):
    """What a search knows of plans before it simulates any: refused, too large, or left with bounds."""
    question, space = make_question({**LLAMA_405B, "nodes": 128}, None, None, Wanted(), 0.0, "bench")
    points = [Row(point) for point in space.points()[0][::20]]
    rows = benchmark.pedantic(lambda: [*map(partial(screen, question, memo=Memo()), points)], rounds=3)

    benchmark.extra_info["plans"] = len(rows)


def peak_rss_mb(table):
    """Peak resident memory of a process that predicts this step alone."""
    code = f"""
import resource
from runcast.simulator import simulate
from runcast.simulator.scenario import check_train
simulate(check_train({table!r}))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return round(float(done.stdout))


@pytest.mark.parametrize("processes", [1, 2])
def test_coarse_steps_per_second(benchmark, processes):
    """Predictions of one scenario, each process with a Memo of its own: a second core should nearly double them."""
    each = 400
    with ProcessPoolExecutor(processes, get_context("fork")) as pool:
        list(pool.map(predict_again, [each] * processes))  # warm up
        benchmark.pedantic(lambda: list(pool.map(predict_again, [each] * processes)), rounds=5)

    benchmark.extra_info["per_second"] = round(processes * each / benchmark.stats["median"])


_MEMO = Memo()


def predict_again(times):
    """In a process that keeps its Memo from call to call."""
    scenario = check_train(LLAMA_70B)
    for _ in range(times):
        simulate(scenario, memo=_MEMO)
