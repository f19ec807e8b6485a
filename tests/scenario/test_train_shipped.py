"""The shipped training steps resolve, and those of published runs are what was published about them."""

from pathlib import Path

import pytest
from runcast.simulator.lowering.held import Holdings
from runcast.simulator.scenario import ResolvedTrain, load_question
from runcast.simulator.train_memory import static_bytes

SHIPPED = sorted((Path(__file__).parents[2] / "data/scenarios").glob("train-*.toml"))


def step(name: str) -> ResolvedTrain:
    return ResolvedTrain(load_question(next(path for path in SHIPPED if name in path.name)))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_step_holds_the_whole_model_on_all_gpus(path):
    made = ResolvedTrain(load_question(path), str(path))
    plan, layers = made.plan, made.spec.num_hidden_layers
    assert [number for stage in plan.stages for number in stage.layers] == list(range(layers))
    assert plan.dims.world_size == made.cluster.n_gpus
    assert made.microbatches * plan.dims.dp * made.scenario.batch.micro == made.scenario.batch.global_
    assert made.peak_type in ("bf16", "fp8")


def test_kimi_k2_is_as_its_report_says():
    made = step("kimi-k2")
    states = ("weights", "gradients", "master weights", "optimizer moments")
    found = static_bytes(made, 1)
    assert made.plan.dims.pp * made.plan.dims.ep == 256  # GPUs of a model-parallel group
    assert made.scenario.batch.global_ * made.scenario.batch.seq_len == pytest.approx(67e6, rel=0.01)
    assert sum(found[name] for name in states) == pytest.approx(30e9, rel=0.1)  # per GPU
    units = [unit for rank in range(16) for _, unit in Holdings(made.plan, rank).own]
    parameters = sum(unit.dense + made.plan.dims.ep * unit.expert for unit in units)
    assert 6 * parameters == pytest.approx(6e12, rel=0.05)  # BF16 and FP32 gradients


def test_llama3_405b_has_a_layer_less_at_both_ends():
    made = step("llama3-405b")
    assert [len(stage.layers) for stage in made.plan.stages] == [0, *[1] * 126, 0]
    assert made.scenario.batch.global_ * made.scenario.batch.seq_len == 2**24
