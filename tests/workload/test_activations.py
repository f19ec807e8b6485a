"""What a layer keeps for its backward, and what is computed again.

The reference is Korthikanti et al., arXiv 2205.05198: a GPT layer keeps sbh (34 + 5 a s / h) bytes. Of the 34, we have
32 (QKV input 2, q and k 4, v 2, projection input 2; MLP inputs 2 + 8, GELU input 8; inputs of two norms 4) as dropout
is off: its masks are 1 behind attention's projection and 1 behind the MLP. The 5 (softmax 2, mask 1, dropped-out 2) are
scores, in place of which flash attention keeps log-sum-exps in fp32, 4 a / h.
"""

from dataclasses import replace

import pytest
import torch
from runcast.simulator.models import preset
from runcast.simulator.models.blocks import embedding, head, layer
from runcast.simulator.models.kernels import flop
from runcast.simulator.models.model import ModelSpec
from runcast.simulator.models.parts import Moe
from runcast.simulator.models.shard import Shard
from runcast.simulator.models.states import activation_bytes, activations, recomputation
from torch.nn import functional

WORDS, SEQ = 51200, 2048
PUBLISHED = {  # heads, hidden, layers, pipeline stages, chunks per stage, sequences of a micro-batch; tp is 8 (table 3)
    "22B": (64, 6144, 48, 1, 1, 4),
    "175B": (96, 12288, 96, 8, 3, 1),
    "530B": (128, 20480, 105, 35, 3, 1),
    "1T": (160, 25600, 128, 64, 1, 1),
}


def gpt(heads, hidden, layers=2):
    return ModelSpec(
        "gpt", hidden, layers, heads, heads, hidden // heads, 4 * hidden, WORDS, gated_ffn=False, hidden_act="gelu",
        norm="layer", norm_bias=True, positions="learned", position_embeddings=SEQ, tie_word_embeddings=True,
    )  # fmt: skip


def log_sum_exps(spec, shard):
    return 4 * shard.tokens * spec.num_attention_heads // shard.tp


@pytest.mark.parametrize("name", PUBLISHED)
def test_all_of_a_gpt_layer(name):
    heads, hidden, _, _, _, batch = PUBLISHED[name]
    ours, sbh = layer(gpt(heads, hidden), 0, Shard(batch, SEQ, unfused=True, dropout=True)), SEQ * batch * hidden
    masks = 2 * sbh
    assert activation_bytes(ours) + masks == 34 * sbh + 5 * heads * SEQ * SEQ * batch


def test_each_part_of_a_gpt_layer():
    spec, shard = gpt(64, 6144), Shard(4, SEQ)
    sbh = 4 * SEQ * 6144
    assert activations(layer(spec, 0, shard)) == {
        "layernorm": 4 * sbh,
        "qkv": 6 * sbh,
        "core_attn": log_sum_exps(spec, shard),
        "proj": 2 * sbh,
        "residual": 4 * sbh,
        "mlp": 8 * sbh,
        "activation": 8 * sbh,
    }


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("tp", [1, 8])
def test_modes_under_tensor_and_sequence_parallelism(name, tp):
    """Selective 34 sbh / t, full 2 sbh / t, and without sequence parallelism 10 + 24 / t; two of them for masks."""
    heads, hidden, _, _, _, batch = PUBLISHED[name]
    sbh, spec = SEQ * batch * hidden, gpt(heads, hidden)
    whole, halves = (layer(spec, 0, Shard(batch, SEQ, tp=tp, sequence_parallel=parallel)) for parallel in (True, False))
    assert activation_bytes(whole, "selective", ("core_attn",)) == 32 * sbh // tp
    assert activation_bytes(whole, "full") == 2 * sbh // tp
    assert activation_bytes(halves, "selective", ("core_attn",)) == 8 * sbh + 24 * sbh // tp


@pytest.mark.parametrize(("name", "saved", "share"), [("175B", 0.70, 0.027), ("530B", 0.65, 0.016)])
def test_what_recomputing_attention_saves_and_costs(name, saved, share):
    """Published: 70 % and 65 % of activations for 2.7 % and 1.6 % of the work.

    The latter are attention's share of all work (full squares); recomputed is its forward, a third of that.
    """
    heads, hidden, *_ = PUBLISHED[name]
    flash = Shard(1, SEQ)
    ours, sbh = layer(gpt(heads, hidden), 0, flash), SEQ * hidden
    dropped = activations(layer(gpt(heads, hidden), 0, replace(flash, unfused=True, dropout=True)))["core_attn"]
    assert dropped / (dropped + 34 * sbh) == pytest.approx(saved, abs=0.005)
    redone = 2 * sum(flop(kernel) for kernel in recomputation(ours, "selective", ("core_attn",)))
    forward = sum(flop(kernel) for kernel in ours.all) + redone / 2
    assert redone / forward == pytest.approx(share, abs=0.0005)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("mode", ["selective", "full"])
def test_the_first_stage_of_published_runs(name, mode):
    """p micro-batches of L / p layers are under way, so sbhL / t x 34 (or 2), less masks, whatever p is."""
    heads, hidden, layers, stages, _, batch = PUBLISHED[name]
    ours = layer(gpt(heads, hidden, layers), 0, Shard(batch, SEQ, tp=8))
    of_stage = activation_bytes(ours, mode, ("core_attn",)) * layers // stages * stages
    assert of_stage == SEQ * batch * hidden * layers // 8 * {"selective": 32, "full": 2}[mode]


def test_what_lies_beside_the_layers():
    """4 sbh / t (1 + v / h) behind the layers: input of the last norm 2, of the output 2, logits in fp32 4 v / h.

    The first of these is the last layer's residual here; in its stead the embedding keeps what enters the first.
    """
    spec, shard = gpt(64, 6144), Shard(4, SEQ, tp=8)
    sbh = 4 * SEQ * 6144
    before, behind = (sum(k.bytes for each in part(spec, shard) for k in each.keeps) for part in (embedding, head))
    assert before + behind == sbh // 8 * 4 + 4 * 4 * SEQ * WORDS // 8


def test_recomputing_a_part_drops_what_it_made():
    ours = layer(gpt(64, 6144), 0, Shard(1, SEQ))
    for part, left in {"layernorm": 28, "activation": 24, "mlp": 16}.items():
        dropped = activation_bytes(ours) - activation_bytes(ours, "selective", (part,))
        assert dropped == SEQ * 6144 * (32 - left)


def names(kernels):
    return [kernel.name for kernel in kernels]


def test_kernels_of_a_dense_layer_that_run_again():
    ours = layer(gpt(64, 6144), 0, Shard(1, SEQ))
    assert recomputation(ours) == ()
    assert names(recomputation(ours, "selective", ("core_attn",))) == ["attention"]
    cheap = recomputation(ours, "selective", ("layernorm", "activation"))
    assert names(cheap) == ["input_norm", "mlp_norm", "activation"]
    assert names(recomputation(ours, "selective", ("mlp",))) == ["up", "activation", "down"]
    assert names(recomputation(ours, "selective", ("moe", "shared_experts", "mla_up_proj"))) == []
    assert recomputation(ours, "full") == ours.all


def test_a_full_recompute_is_one_more_forward():
    ours = layer(gpt(64, 6144), 0, Shard(1, SEQ))
    assert sum(map(flop, recomputation(ours, "full"))) == sum(map(flop, ours.all))


MOE = replace(
    gpt(8, 512), gated_ffn=True, hidden_act="silu", norm="rms", norm_bias=False, positions="rotary",
    position_embeddings=0, moe=Moe(16, 4, 128, layers=(1,), shared_intermediate_size=256),
)  # fmt: skip


def test_the_activation_of_experts_runs_again_alone():
    ours = layer(MOE, 1, Shard(1, 256, ep=4, etp=2, tp=2))
    *_, swiglu = recomputation(ours, "selective", ("activation",))
    assert (swiglu.kind, swiglu.bytes) == ("swiglu", 2 * 3 * (256 // 2 * 4 * 2) * 128 // 2)
    rows_kept = 2 * (256 // 2 * 4 * 2) * 128 // 2 + 2 * 256 * 256 // 2  # of experts, and of the shared ones
    assert activations(ours)["activation"] == rows_kept
    assert "activation" not in activations(ours, "selective", ("activation",))


def test_a_moe_layer_that_runs_again_is_all_from_router_to_combine():
    ours = layer(MOE, 1, Shard(1, 256))
    assert names(recomputation(ours, "selective", ("moe",))) == [
        *("router", "topk", "permute", "up", "activation", "down", "sort", "experts", "unsort", "unpermute"),
        "add_shared",
    ]
    assert set(activations(ours, "selective", ("moe",))) == {"layernorm", "qkv", "core_attn", "proj", "residual"}
    assert names(recomputation(ours, "selective", ("shared_experts",))) == ["up", "activation", "down"]
    assert names(recomputation(ours, "selective", ("mlp",))) == []


def test_a_moe_layer_by_part():
    """256 tokens of 512, four of 16 experts of 128 each, and shared ones of 256: all in bf16."""
    tokens, rows = 256, 256 * 4
    assert activations(layer(MOE, 1, Shard(1, tokens))) == {
        "layernorm": 2 * 2 * tokens * 512,
        "qkv": 2 * 3 * tokens * 512,
        "core_attn": 4 * 8 * tokens,
        "proj": 2 * tokens * 512,
        "residual": 2 * 2 * tokens * 512,
        "router": 4 * 16 * tokens + 12 * rows,
        "shared_experts": 2 * 2 * tokens * 256,
        "moe": 2 * rows * (512 + 2 * 128),  # what experts read and gate; their weights are in before they give it back
        "activation": 2 * tokens * 256 + 2 * rows * 128,
    }


def test_up_projections_of_mla_keep_what_attention_reads():
    """DeepSeek-V3: 128 heads of 192 for q and k and 128 for v; latents of 1536 and 512 + 64."""
    tokens = 4096
    ours = layer(preset("deepseek-v3"), 0, Shard(1, tokens))
    assert activations(ours)["mla_up_proj"] == 2 * tokens * 128 * (192 + 192 + 128)
    assert activations(ours)["qkv"] == 2 * tokens * (1536 + 576) + 2 * tokens * (1536 + 512)
    assert "mla_up_proj" not in activations(ours, "selective", ("mla_up_proj",))
    assert names(recomputation(ours, "selective", ("mla_up_proj",))) == ["q_up", "kv_up", "rope"]


def test_8_bits_are_kept_where_a_product_reads_them():
    """Norms, GELU and attention give inputs of products, so 1 byte; attention's own backward reads 2 bytes more."""
    spec, sbh = gpt(64, 6144), SEQ * 6144
    ours = activations(layer(spec, 0, Shard(1, SEQ, linear="fp8")))
    assert (ours["layernorm"], ours["activation"], ours["proj"]) == (2 * sbh, 4 * sbh, sbh)
    assert ours["core_attn"] == 2 * sbh + 4 * 64 * SEQ


def test_what_enters_the_product_behind_attention_is_kept_once_in_the_type_that_is_stated():
    """12 bits and a scale in 32 for 128 elements, in place of a byte and of the two that attention's backward reads."""
    spec, sbh = gpt(64, 6144), SEQ * 6144
    for linear in ("bf16", "fp8"):
        ours = activations(layer(spec, 0, Shard(1, SEQ, linear=linear, stored=(("attn_proj", "e5m6"),))))
        assert (ours["proj"], ours["core_attn"]) == ((12 + 32 / 128) / 8 * sbh, 4 * 64 * SEQ)


def test_inputs_of_networks_and_experts_are_kept_in_the_types_that_are_stated():
    """DeepSeek-V3: experts read 8 copies of a token, 7168 wide; they and the shared one activate 2 x 2048."""
    tokens, spec, byte = 4096, preset("deepseek-v3"), 1 + 4 / 128
    stored = Shard(1, tokens, stored=(("mlp_act", "fp8"), ("expert_fc1", "fp8"), ("moe_act", "fp8")))
    dense, sparse = (activations(layer(spec, number, stored)) for number in (0, 5))
    assert dense["mlp"] == 2 * 18432 * tokens * byte
    assert sparse["moe"] == 8 * tokens * (7168 + 2 * 2048) * byte
    assert sparse["shared_experts"] == 2 * 2048 * tokens * byte
    plain = activations(layer(spec, 5, Shard(1, tokens)))
    assert {part for part in plain if plain[part] != sparse[part]} == {"moe", "shared_experts"}


def test_the_activation_of_routed_experts_alone_may_be_computed_again():
    """DeepSeek-V3: its dense layers and its shared expert keep their activations."""
    spec, tokens = preset("deepseek-v3"), 4096
    dense, sparse = (layer(spec, number, Shard(1, tokens)) for number in (0, 5))
    assert (activations(dense, "selective", ("moe_act",)), recomputation(dense, "selective", ("moe_act",))) == (
        activations(dense), (),
    )  # fmt: skip
    kept = activations(sparse)["activation"] - activations(sparse, "selective", ("moe_act",))["activation"]
    (again,) = recomputation(sparse, "selective", ("moe_act",))
    assert (kept, again.bytes) == (8 * tokens * 2048 * 2, 8 * tokens * 2048 * 3 * 2)


def test_exchanging_heads_keeps_attentions_output_on_both_sides():
    spec, sbh = gpt(64, 6144), SEQ * 6144 // 4
    ours = activations(layer(spec, 0, Shard(1, SEQ, cp=4, cp_type="ulysses")))
    assert (ours["proj"], ours["core_attn"]) == (2 * sbh, 2 * sbh + 4 * 64 * SEQ // 4)


def test_a_gated_attention_keeps_its_output_and_what_the_gate_made():
    spec, sbh = replace(gpt(64, 6144), output_gate=True), SEQ * 6144
    ours = layer(spec, 0, Shard(1, SEQ))
    assert activations(ours)["proj"] + activations(ours)["activation"] == 2 * sbh + 2 * sbh + 8 * sbh
    assert "output_gate" in names(recomputation(ours, "selective", ("activation",)))


def test_parallel_branches_meet_once():
    spec, sbh = replace(gpt(64, 6144), parallel_residual=True, shared_norm=True), SEQ * 6144
    ours = activations(layer(spec, 0, Shard(1, SEQ)))
    assert (ours["residual"], ours["layernorm"]) == (2 * sbh, 2 * sbh)


def test_a_norm_before_a_residual_keeps_its_input_and_never_runs_again_alone():
    spec, sbh = replace(gpt(64, 6144), sandwich_norms=True), SEQ * 6144
    ours = layer(spec, 0, Shard(1, SEQ))
    assert (activations(ours)["residual"], activations(ours)["layernorm"]) == (4 * 2 * sbh, 2 * 2 * sbh)
    assert names(recomputation(ours, "selective", ("layernorm",))) == ["input_norm", "mlp_norm"]


@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v3", "gpt-oss-120b", "qwen3-235b-a22b", "qwen3.5-27b"])
@pytest.mark.parametrize("mode", ["none", "selective", "full"])
@pytest.mark.parametrize("cp_type", ["ring", "all_gather"])
def test_ranks_together_keep_what_one_would(name, mode, cp_type):
    spec, parts = preset(name), ("layernorm", "activation", "mla_up_proj")
    one, shared = Shard(2, 4096), Shard(2, 4096, tp=4, cp=2, ep=8, cp_type=cp_type)
    for number in (0, spec.num_hidden_layers - 1):
        alone, each = (activations(layer(spec, number, shard), mode, parts) for shard in (one, shared))
        assert alone == {part: 8 * size for part, size in each.items()}


def test_in_32_bits_all_is_twice_as_long_but_log_sum_exps():
    spec = gpt(64, 6144)
    shards = Shard(1, SEQ), Shard(1, SEQ, linear="tf32", dtype="fp32")
    half, full = (activations(layer(spec, 0, shard)) for shard in shards)
    assert full == {part: size * (1 if part == "core_attn" else 2) for part, size in half.items()}


def test_a_linear_attention_layer_by_part():
    """Qwen3.5-27B: 16 heads of 128 for q and for k, 48 for v, a gate as wide as v, two scalars per head."""
    tokens, qkv, value = 1024, (16 + 16 + 48) * 128, 48 * 128
    ours = activations(layer(preset("qwen3.5-27b"), 0, Shard(1, tokens)))
    assert ours["qkv"] == 2 * tokens * (qkv + value + 2 * 48)
    assert ours["core_attn"] == 2 * tokens * (qkv + 48 * 64)  # the convolution's result, and products in chunks of 64
    assert ours["proj"] == 2 * tokens * value


def saved_by_torch(run, parameters):
    """Bytes of all that autograd saves, each storage once, without parameters."""
    storages = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = (storage.nbytes(), tensor)  # the tensor keeps its address from being reused
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = run()
    own = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    assert out.requires_grad
    return sum(size for address, (size, _) in storages.items() if address not in own)


def test_autograd_saves_what_a_gpt_layer_keeps():
    """With flash attention, and beside it the mean and the deviation of each norm's rows, in fp32 at most."""
    hidden, heads, seq, batch = 64, 4, 128, 2
    shapes = [(3 * hidden, hidden), (hidden, hidden), (4 * hidden, hidden), (hidden, 4 * hidden), (hidden,), (hidden,)]
    qkv, proj, up, down, *norms = [torch.randn(shape, dtype=torch.bfloat16, requires_grad=True) for shape in shapes]
    x = torch.randn(batch, seq, hidden, dtype=torch.bfloat16, requires_grad=True)

    def run():
        normed = functional.layer_norm(x, (hidden,), norms[0])
        q, k, v = functional.linear(normed, qkv).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        middle = x + functional.linear(mixed.transpose(1, 2).flatten(2), proj)
        inner = functional.linear(functional.layer_norm(middle, (hidden,), norms[1]), up)
        return middle + functional.linear(functional.gelu(inner), down)

    spec = gpt(heads, hidden)
    saved = saved_by_torch(run, [qkv, proj, up, down, *norms])
    statistics = saved - activation_bytes(layer(spec, 0, Shard(batch, seq)))
    assert statistics in [2 * 2 * batch * seq * width for width in (2, 4)]


def test_what_is_gathered_stays_whole_in_place_of_a_part():
    spec, tokens = gpt(16, 1024), 4096
    part, whole = (activations(layer(spec, 0, Shard(1, tokens, tp=4, keeps_gathered=held))) for held in (False, True))
    assert part["layernorm"] == 2 * tokens * 1024 * 2 / 4
    assert whole == {**part, "layernorm": 2 * tokens * 1024 * 2}


def test_without_a_gather_nothing_more_stays():
    shards = [Shard(1, 64, keeps_gathered=True), Shard(1, 64, tp=4, sequence_parallel=False, keeps_gathered=True)]
    plain = [replace(shard, keeps_gathered=False) for shard in shards]
    assert [layer(gpt(16, 1024), 0, s) for s in shards] == [layer(gpt(16, 1024), 0, s) for s in plain]


def test_a_gate_of_ops_of_its_own_stays_beside_the_product():
    llama, tokens = preset("llama3-8b"), 64
    fused, apart = (layer(llama, 0, Shard(1, tokens, tp=2, eager=held)) for held in (False, True))
    one = tokens * llama.intermediate_size // 2 * 2
    assert (activations(fused)["activation"], activations(apart)["activation"]) == (one, 2 * one)


def test_what_stays_takes_no_time():
    plain, more = (layer(preset("llama3-8b"), 0, Shard(1, 64, tp=2, keeps_gathered=held)).all for held in (False, True))
    assert [replace(k, keeps=()) for k in plain] == [replace(k, keeps=()) for k in more]


def test_ops_one_by_one_read_and_write_what_pytorch_does():
    """Of each element: x * cos + cat(-second, first) * sin is 2 + 1 + 2 + 2 + 3, act(gate) * up is 2 + 3."""
    llama, tokens = preset("llama3-8b"), 64
    layers = (layer(llama, 0, Shard(1, tokens, eager=held)).all for held in (False, True))
    fused, apart = ({kernel.name: kernel.bytes for kernel in every} for every in layers)
    moved = {name: size for name, size in apart.items() if size != fused[name]}
    heads = (llama.num_attention_heads + llama.num_key_value_heads) * llama.head_dim
    assert moved == {"rope": 10 * tokens * heads * 2, "activation": 5 * tokens * llama.intermediate_size * 2}


@pytest.mark.parametrize("module", ["activation", "moe_act"])
def test_activations_of_packed_experts_are_as_wide_as_others(module):
    shards = [Shard(1, 64, lora_rank=4, adapted=("qkv",), base=base) for base in ("", "nf4")]
    wide, packed = (recomputation(layer(preset("qwen3-30b-a3b"), 0, one), "selective", [module]) for one in shards)

    assert (len(wide), packed) == (1, wide)
