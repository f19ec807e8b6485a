"""The peak memory of eager steps in plain PyTorch is what autograd holds (fake_memory.py), tensor by tensor."""

import pytest
from runcast.simulator.engine import simulate
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.memory import rank_memory
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

pytest.importorskip("torch", reason="the oracle is torch")

from .fake_memory import RANK, peak_bytes
from .models import Shape
from .steps import Case

BESIDE = ("context and libraries", "fragmentation")  # what torch does not count as allocated
GROUPED = Shape(2, 2048, 8192, 32, 8, 64, 128256, True)
DEEP = Shape(6, 4096, 14336, 32, 8, 128, 4096, False)
PLAIN = Shape(4, 768, 2048, 12, 12, 64, 50257, False)
CASES = {
    "large vocabulary": (GROUPED, 1, 4096, 1, False),
    "large vocabulary, recomputed": (GROUPED, 2, 2048, 1, True),
    "small vocabulary, long sequence": (DEEP, 1, 8192, 1, False),
    "states alone": (DEEP, 1, 256, 1, False),
    "gradients of the first micro-batch": (DEEP, 1, 2048, 3, False),
    "one key per query": (PLAIN, 8, 1024, 1, False),
}
SMALL = ("states alone", "one key per query")


def predicted_bytes(case, shape, stack="pytorch-fsdp", **tables):
    """What the stack says of the case on one GPU."""
    model = {
        "num_hidden_layers": shape.layers, "hidden_size": shape.hidden, "intermediate_size": shape.ffn_hidden,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
        "vocab_size": shape.vocab, "tie_word_embeddings": shape.tied,
    }  # fmt: skip
    scenario = check_train({
        "kind": "train_step", "cluster": {"base": "dgx-h100", "gpus_per_node": 1}, "stack": stack,
        "model": {"preset": "llama3-8b", "overrides": model},
        "batch": {"global": case.micro_batch * case.micro_batches, "micro": case.micro_batch, "seq_len": case.seq_len},
        "recompute": {"mode": "full" if case.recompute else "none"},
        "precision": {"gradients": "bf16", "reduce": "bf16", "moments": "bf16", "master": False}, **tables,
    })  # fmt: skip
    step = ResolvedTrain(scenario)
    held = dict(rank_memory(step, simulate(step.program, step.costs))[0].held)
    return sum(size for owner, size in held.items() if owner not in BESIDE)


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(n, marks=pytest.mark.slow) for n in CASES if n not in SMALL)])
def test_the_peak_is_what_autograd_holds(name):
    shape, micro_batch, seq_len, micro_batches, recompute = CASES[name]
    case = Case("oracle", micro_batch, seq_len, micro_batches, False, "flash", recompute)
    assert predicted_bytes(case, shape) == pytest.approx(peak_bytes(case, shape), rel=0.005)


@pytest.mark.parametrize("recompute", [False, True])
def test_norms_op_by_op_keep_their_input_in_fp32_and_their_result(recompute):
    case = Case("oracle", 2, 2048, 1, False, "flash", recompute)
    oracle = peak_bytes(case, PLAIN, norms_by_ops=True)
    assert predicted_bytes(case, PLAIN, "transformers") == pytest.approx(oracle, rel=0.005)


LAYERS = [f"layers.{number}" for number in range(6)]


@pytest.mark.parametrize(
    ("modules", "freeze", "within"),
    [([*LAYERS[:4], "embed"], {"layers": 4, "embedding": True}, 0.01), (LAYERS[:4], {"layers": 4}, 0.01),
     ([*LAYERS[:5], "embed", "norm", "head"], {"layers": 5, "embedding": True, "head": True}, 0.01),
     ([*LAYERS, "embed"], {"layers": "all", "embedding": True}, 0.06)],
    ids=["first layers", "layers behind an embedding", "all but a layer", "all but the head"],
)  # fmt: skip
def test_what_is_frozen_keeps_what_gradients_before_it_need(modules, freeze, within):
    """Where next to nothing is kept, tensors of a forward alone are the peak; they are not modelled."""
    case = Case("oracle", 1, 4096, 1, False, "flash", False)
    found = predicted_bytes(case, DEEP, freeze=freeze)
    assert found == pytest.approx(peak_bytes(case, DEEP, frozen=modules), rel=within)


@pytest.mark.parametrize(
    ("modules", "targets"),
    [(("q", "k", "v"), ["qkv"]), (("q", "k", "v", "o"), ["qkv", "proj"])],
    ids=["qkv", "attention"],
)
def test_frozen_weights_need_no_inputs_kept(modules, targets):
    case = Case("oracle", 1, 4096, 1, False, "flash", False)
    found = predicted_bytes(case, DEEP, lora={"rank": RANK, "targets": targets})
    assert found == pytest.approx(peak_bytes(case, DEEP, adapted=modules), rel=0.005)
