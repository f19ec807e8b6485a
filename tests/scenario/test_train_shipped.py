"""The shipped training steps resolve, and those of published runs are what was published about them."""

from pathlib import Path

import pytest
from runcast.simulator.engine import simulate
from runcast.simulator.scenario import load_question
from runcast.simulator.systems.train_step.lower.held import Holdings
from runcast.simulator.systems.train_step.memory import rank_memory, static_bytes
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

SHIPPED = sorted((Path(__file__).parents[2] / "data/scenarios").glob("train-*.toml"))


def step(name: str) -> ResolvedTrain:
    return ResolvedTrain(load_question(next(path for path in SHIPPED if name in path.name)))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_step_holds_the_whole_model_on_all_gpus(path):
    made = ResolvedTrain(load_question(path), str(path))
    plan, layers = made.plan, made.spec.n_layers
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
    units = [unit.held for rank in range(16) for unit in Holdings(made.plan, rank).own]
    parameters = sum(unit.dense + made.plan.dims.ep * unit.expert for unit in units)
    assert 6 * parameters == pytest.approx(6e12, rel=0.05)  # BF16 and FP32 gradients


def test_deepseek_v3_fits_as_its_report_says():
    """arXiv 2412.19437: a rank holds both of DualPipe's stages, with gradients in FP32 (3.3.3); ZeRO-1 shares the
    optimizer's states among all that hold a stage (3.2). Weights are FP8's two copies; embedding and head are in bf16.
    """
    made = step("deepseek-v3")
    found = static_bytes(made, 0)
    latents = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    norms = 2 * 7168 + 1536 + 512
    expert, words = 3 * 7168 * 2048, 129280 * 7168
    dense = latents + norms + 3 * 7168 * 18432
    plain, routed = latents + norms + 256 * 7168 + 256 + expert, 256 // 64 * expert  # router and its correction bias
    mtp = 2 * 7168 * 7168 + 3 * 7168
    layers = 3 * dense + 3 * (plain + routed) + mtp  # stage 0 has three and one, stage 15 one and that behind MTP
    ends = 2 * words + 7168
    assert found["gradients"] == pytest.approx(4 * (layers + ends), rel=1e-4)
    assert found["quantized copies"] == pytest.approx(2 * layers, rel=1e-4)
    assert found["weights"] == pytest.approx(2 * ends, rel=1e-4)
    shares = (layers + ends - 3 * routed) / 256 + 3 * routed / 4  # 128 ranks of each of two stages; 2 share experts
    assert found["master weights"] == pytest.approx(4 * shares, rel=1e-3)
    assert found["optimizer moments"] == pytest.approx(2 * 2 * shares, rel=1e-3)
    coarse = ResolvedTrain(made.scenario.model_copy(update={"level": "coarse"}))
    peaks = rank_memory(coarse, simulate(coarse.program, coarse.costs))
    assert max(one.peak_bytes for one in peaks) < made.memory_bytes


def test_llama3_405b_has_a_layer_less_at_both_ends():
    made = step("llama3-405b")
    assert [len(stage.layers) for stage in made.plan.stages] == [0, *[1] * 126, 0]
    assert made.scenario.batch.global_ * made.scenario.batch.seq_len == 2**24


@pytest.mark.parametrize(("pp", "counts"), [(1, [32]), (2, [16, 16]), (4, [8, 9, 8, 7])])
def test_embedding_and_head_count_as_layers_in_the_split(pp, counts):
    changes = {"parallel": {"pp": pp, "embedding_as_layer": True}}
    made = ResolvedTrain(load_question("train-llama3-8b-8xh100", changes))

    assert [len(stage.layers) for stage in made.plan.stages] == counts
