"""Steps of models of many families: all that layers compute is in the Program, weight gradients included."""

import numpy as np
import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.op_kinds import ATTENTION, EXPERTS, PRODUCT, kinds_of_form
from runcast.simulator.models.kernels import Kernel, flop
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.flop import model_flop
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

from ..workload.built import read_models
from .steps import ops

CONFIGS = {model.model_type: model.config for model in read_models()}
SEQ = 1024
SPLIT = [
    *("axk2", "cohere2", "deepseek_v4", "dots3_note_text", "gemma3n_text", "gemma4_text", "hy_v4", "inkling_text"),
    *("lara_mini", "lfm3", "llama4_text", "longcat_flash", "mimo_v2_flash", "minimax", "modernbert-decoder", "zaya"),
    *("bert", "t5", "blenderbot", "mistral3", "qwen2_5_vl", "gemma3"),
]  # fmt: skip
MADE = ("index_keys", "index_weights", "index_queries")
REPEATED = (*MADE, *(f"{name}_wgrad" for name in MADE), "index_scores", "index_gradients")
"""What an indexer computes on every rank of a tensor-parallel group (Megatron-LM, dsa.py: it gathers what it reads)."""
SMALL = {
    "num_hidden_layers": 8, "n_layer": 8, "num_kv_shared_layers": 2, "num_key_value_heads": 4,
    "num_attention_heads": 16, "num_experts": 16, "n_routed_experts": 16, "encoder_layers": 4, "decoder_layers": 4,
}  # fmt: skip


def resolved(model_type, **parallel):
    """A step of a model with 8 layers, 4 micro-batches for each of its ranks' replicas."""
    gpus = parallel.get("tp", 1) * parallel.get("pp", 1)
    config = CONFIGS[model_type]
    config = config | {name: size for name, size in SMALL.items() if name in config}
    return ResolvedTrain(check_train({
        "kind": "train_step", "cluster": {"base": "dgx-h100", "gpus_per_node": gpus}, "model": {"config": config},
        "parallel": parallel, "batch": {"global": 4, "seq_len": SEQ},
    }))  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "parallel"),
    [*((each, {"pp": 2}) for each in CONFIGS), *((each, {"tp": 2}) for each in SPLIT)],
    ids=str,
)
def test_all_ranks_together_do_what_the_model_needs(model_type, parallel):
    step = resolved(model_type, **parallel)
    program = step.program
    place = np.array([lane.place for lane in program.lanes])
    repeated = {op for label in REPEATED * bool(step.spec.indexer) for op in ops(program, label=label)}
    again = {
        kernel.name
        for number in range(step.spec.num_hidden_layers)
        for kernel in step.plan.layer(number).all
        if kernel.again
    }  # a scan's, which the backward runs once more
    twice = {op for label in again for op in ops(program, label=label)}
    done = 0.0
    for op in np.flatnonzero(program.is_kind(*kinds_of_form(PRODUCT, ATTENTION, EXPERTS))).tolist():
        kernel = Kernel(program.kind_of(op), "", "", tuple(program.shape[op].tolist()), "bf16")
        ranks = len(program.places[place[program.lanes_of[op][0]]].ranks)
        done += flop(kernel) * ranks / (parallel.get("tp", 1) if op in repeated else 1) / (1 + (op in twice))
    assert done == pytest.approx(model_flop(step.plan, 4), rel=1e-9)


def test_a_stage_sends_every_residual_stream():
    program = resolved("hy_v4", pp=2).program
    sizes = {int(program.bytes[op]) for op in ops(program, kind="send_recv")}
    assert sizes == {SEQ * 2816 * 4 * 2}  # tokens, width, streams, bytes of an element


@pytest.mark.parametrize("label", ["per_layer_out_wgrad", "altup_projections_wgrad", "laurel_left_wgrad"])
def test_matrices_beside_attention_and_network_have_weight_gradients(label):
    assert ops(resolved("gemma3n_text").program, label=label)


def test_tensor_parallelism_must_divide_the_heads_of_every_layer():
    config = CONFIGS["llama"] | {"num_attention_heads_per_layer": [32] * 31 + [36], "num_key_value_heads": 4}
    table = {"kind": "train_step", "cluster": "dgx-h100", "model": {"config": config}, "parallel": {"tp": 8}}
    step = ResolvedTrain(check_train(table | {"batch": {"global": 8, "seq_len": 256}}))
    with pytest.raises(UserError, match=r"parallel\.tp = 8: must divide the 36 heads"):
        assert step.plan
