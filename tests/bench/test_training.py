"""How fast training steps are predicted: large ones kernel by kernel, and many small ones that share a Memo.

Nothing here asserts a time; docs/benchmarks.md holds a table of one machine. Peak memory is that of a fresh process.
"""

import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from runcast.simulator import simulate
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
