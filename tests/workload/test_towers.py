"""Encoders, attention to them, and towers of other media: kernels and counts beside those of plain modules."""

from dataclasses import replace

import pytest
import torch
from runcast.simulator.base.errors import UserError
from runcast.simulator.models import from_hf_config, preset, total_params, weights
from runcast.simulator.models.blocks import layer
from runcast.simulator.models.kernels import flop, input_gradient, weight_gradient
from runcast.simulator.models.shard import Shard
from runcast.simulator.models.towers import output_elements, tower_shard
from torch.utils.flop_counter import FlopCounterMode

from . import closed_form
from .built import read_models

SEQ, SOURCE, BATCH = 16, 24, 2
BART = {
    "model_type": "bart", "d_model": 32, "vocab_size": 64, "max_position_embeddings": 32,
    **{f"{stack}_{key}": value for stack in ("encoder", "decoder")
       for key, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 80))},
}  # fmt: skip
LLAVA = {
    "model_type": "llava",
    "text_config": {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                    "intermediate_size": 64, "vocab_size": 64},
    "vision_config": {"model_type": "clip_vision_model", "hidden_size": 16, "num_hidden_layers": 3, "patch_size": 2,
                      "num_attention_heads": 2, "intermediate_size": 64, "image_size": 8},
}  # fmt: skip


def reads(spec, **inputs):
    """The model with other inputs of its tower."""
    (tower,) = spec.towers
    return replace(spec, towers=(replace(tower, inputs=replace(tower.inputs, **inputs)),))


def flops(spec, numbers, shard):
    """FLOP of forward, input gradients and weight gradients of these layers, whatever a mask hides."""
    kernels = [kernel for number in numbers for kernel in layer(spec, number, shard).all]
    whole = [replace(k, shape=(*k.shape[:6], 0, 0, 1)) if k.name == "attention" else k for k in kernels]
    learned = [weights for kernel in whole if (weights := weight_gradient(kernel))]
    passed = [input_gradient(kernel) for kernel in whole if kernel.passes]
    return sum(map(flop, [*whole, *passed, *learned]))


def count(module, *inputs):
    """FLOP that torch counts of a forward and a backward."""
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        module(*inputs).sum().backward()
    return counter.get_total_flops()


def test_an_encoder_decoder_computes_what_torchs_does():
    module = torch.nn.Transformer(32, 4, 2, 2, 80, dropout=0.0, batch_first=True, device="meta")
    source, target = (torch.empty(BATCH, n, 32, device="meta", requires_grad=True) for n in (SOURCE, SEQ))
    spec = reads(from_hf_config(BART), span=SOURCE)
    assert flops(spec, range(spec.n_layers), Shard(BATCH, SEQ)) == count(module, source, target)


class Clip(torch.nn.Module):
    """Patches and a token of its own through an encoder; the projector reads the patches."""

    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(16, 2, 64, 0.0, batch_first=True, norm_first=True, device="meta")
        self.encoder = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.patches, *self.projector = [
            torch.nn.Linear(n, m, device="meta") for n, m in ((12, 16), (16, 32), (32, 32))
        ]

    def forward(self, patches):
        own = torch.empty(len(patches), 1, 16, device="meta")
        x = self.encoder(torch.cat([own, self.patches(patches)], 1))[:, 1:]
        for matrix in self.projector:
            x = matrix(x)
        return x


def test_a_tower_computes_what_torchs_encoder_does_with_patches_and_projector():
    patches = torch.empty(3 * BATCH, 16, 12, device="meta")  # pixels have no gradient
    spec = reads(from_hf_config(LLAVA), items=3)
    assert flops(spec, range(3), Shard(BATCH, SEQ)) == count(Clip(), patches)


@pytest.mark.parametrize(("cp", "items"), [(1, 6), (2, 3), (4, 2)])
def test_ranks_of_context_parallelism_have_whole_inputs(cp, items):
    (tower,) = reads(from_hf_config(LLAVA), items=3).towers
    own = tower_shard(tower, Shard(BATCH, SEQ, cp=cp))
    assert (own.batch, own.seq, own.cp) == (items, 17, 1)


def test_a_tower_gives_a_token_for_each_group_of_neighbours():
    spec = preset("qwen2.5-vl-7b")
    assert output_elements(spec.towers[0], Shard(2, 8192, tp=4)) == 2 * 1024 // 4 // 4 * 3584


def test_an_encoder_sees_all_pairs_and_a_decoder_those_before():
    spec = from_hf_config(BART)
    masks = [
        kernel.shape[6] for n in (0, 2) for kernel in layer(spec, n, Shard(1, SEQ)).all if "attention" in kernel.kind
    ]
    assert masks == [0, 1]


def test_a_ring_without_a_mask_has_whole_blocks():
    steps = [k for k in layer(preset("bert-large"), 0, Shard(1, 512, cp=4)).all if k.kind == "attention"]
    assert sum(map(flop, steps)) == flop(layer(preset("bert-large"), 0, Shard(1, 512)).all[1]) / 4


def test_a_frozen_tower_has_no_gradients_but_its_projectors():
    spec = reads(preset("qwen2.5-vl-7b"), frozen=True)
    kernels = [kernel for number in range(32) for kernel in layer(spec, number, Shard(1, 64)).all]
    assert {kernel.name for kernel in kernels if kernel.passes} == {
        "projector_norm", "projector_0", "projector_activation", "projector_1",
    }  # fmt: skip


def test_a_frozen_tower_keeps_the_input_of_its_projector_alone():
    spec = reads(from_hf_config(LLAVA), frozen=True)
    kept = {number: [k.name for k in layer(spec, number, Shard(1, SEQ)).all if k.keeps] for number in range(3)}
    assert kept == {0: [], 1: [], 2: ["final_norm", "projector_0", "projector_activation", "projector_1"]}


def test_with_adapters_a_frozen_tower_has_neither_adapters_nor_gradients():
    spec, shard = reads(preset("qwen2.5-vl-7b"), frozen=True), Shard(1, 64, lora_rank=8, adapted=("qkv", "proj"))
    kernels = [kernel for number in range(32) for kernel in layer(spec, number, shard).all]
    assert [kernel.name for kernel in kernels if kernel.passes or kernel.part == "lora"] == []


def test_what_is_not_modelled_of_a_tower_can_be_left_out():
    config = LLAVA | {"vision_config": LLAVA["vision_config"] | {"model_type": "eva02"}}
    spec = from_hf_config(config, approximate=True)
    assert (spec.towers, spec.architecture) == ((), "approximate")


def test_the_quantization_of_the_whole_is_that_of_the_text():
    config = LLAVA | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    tensors = weights(from_hf_config(config))
    types = zip(tensors.names, tensors.dtypes, strict=True)
    by_stack = {name.partition(".")[0]: dtype for name, dtype in types if name.endswith("q_proj.weight")}
    assert by_stack == {"vision": "bfloat16", "model": "float8_e4m3fn"}


@pytest.mark.parametrize(
    ("table", "key", "fault"),
    [
        (
            "vision_config",
            {"model_type": "eva02"},
            "model: vision_config: model_type = 'eva02': not modelled; known are",
        ),
        ("vision_config", {"patch_size": "x"}, "model: vision_config: patch_size = 'x': a whole number"),
        ("text_config", {"num_hidden_layers": 0}, "model: text_config: num_hidden_layers = 0: a whole number from 1"),
    ],
)
def test_a_fault_says_the_table_it_is_in(table, key, fault):
    with pytest.raises(UserError) as raised:
        from_hf_config(LLAVA | {table: LLAVA[table] | key})
    assert raised.value.faults[0].startswith(fault)


def test_layers_of_a_preset_with_a_tower_can_be_cut():
    assert preset("qwen2.5-vl-7b", overrides={"num_hidden_layers": 4}).n_layers == 36


@pytest.mark.parametrize(
    ("model_type", "changes", "embeddings"),
    [
        ("bart", {}, 0),
        ("bart", {"tie_word_embeddings": False}, 2),  # of the encoder, and the head's
        ("marian", {"share_encoder_decoder_embeddings": False}, 1),
        ("t5", {"tie_word_embeddings": False}, 1),  # T5's encoder and decoder always share
    ],
)
def test_an_encoder_that_is_not_tied_has_an_embedding_of_its_own(model_type, changes, embeddings):
    config = next(model.config for model in read_models() if model.model_type == model_type)
    tied, other = (from_hf_config(config | more) for more in ({"tie_word_embeddings": True}, changes))

    matrix = tied.vocab_size * tied.hidden_size
    assert total_params(other) - total_params(tied) == embeddings * matrix
    assert closed_form.total(other) == total_params(other)


@pytest.mark.parametrize(("model_type", "gated"), [("t5", True), ("mt5", False)])
def test_a_t5_may_say_its_gate_alone(model_type, gated):
    config = next(model.config for model in read_models() if model.model_type == model_type)
    others = {key: value for key, value in config.items() if key not in ("is_gated_act", "dense_act_fn")}

    found = [from_hf_config(others | more).gated_ffn for more in ({}, {"is_gated_act": gated})]

    assert found == [not gated, gated]
