"""State-space layers: their parameters, FLOP, and what ranks share of them."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.base.errors import UserError
from runcast.simulator.models import from_hf_config, preset_config
from runcast.simulator.models.blocks import embedding, head, layer
from runcast.simulator.models.kernels import flop, input_gradient, weight_gradient
from runcast.simulator.models.mamba2 import SCAN
from runcast.simulator.models.mamba2 import scan as scan_kernels
from runcast.simulator.models.mixers import Mamba2
from runcast.simulator.models.model import ModelSpec
from runcast.simulator.models.shard import Shard
from runcast.simulator.models.states import activations, layer_count, recomputation
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

BATCH, SEQ, CHUNK = 2, 32, 8
LAYERS = frozenset(range(3))
MAMBA = Mamba2(8, 4, 16, 2, 4, CHUNK, layers=LAYERS)
SPEC = ModelSpec("mamba", 24, 3, 0, 0, 0, 0, 64, linear_attention=MAMBA, network_layers=frozenset(), positions="none")
HYBRID = {
    "model_type": "nemotron_h", "hidden_size": 64, "hybrid_override_pattern": "M-M*E", "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 8, "intermediate_size": 96, "vocab_size": 128, "mamba_num_heads": 8,
    "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 4, "conv_kernel": 4, "chunk_size": 8, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48,
}  # fmt: skip


def scan(x, a, b, c, chunk):
    """The scan of one sequence in chunks: x (seq, heads, dim), ln of decays a (seq, heads), b, c (seq, groups, state).

    Source of the four steps: arXiv 2405.21060, section 6.
    """
    (seq, heads, dim), (_, groups, state) = x.shape, b.shape
    each, count = heads // groups, seq // chunk
    x, a = x.view(count, chunk, heads, dim).transpose(1, 2), a.view(count, chunk, heads).transpose(1, 2)
    b, c = (t.view(count, chunk, groups, state).transpose(1, 2) for t in (b, c))
    total = a.cumsum(-1)
    mask = torch.ones(chunk, chunk).tril().log()
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2) + mask).exp()
    scores = torch.matmul(c, b.transpose(-1, -2)).repeat_interleave(each, 1) * decay
    b, c = b.repeat_interleave(each, 1), c.repeat_interleave(each, 1)
    to_end = (total[..., -1:] - total).exp().unsqueeze(-1)
    made = torch.matmul((b * to_end).transpose(-1, -2), x)
    states = [torch.zeros_like(made[0])]
    for number in range(count - 1):
        states.append(states[-1] * total[number, :, -1, None, None].exp() + made[number])
    before = torch.matmul(c * total.exp().unsqueeze(-1), torch.stack(states))
    return (torch.matmul(scores, x) + before).transpose(1, 2).reshape(seq, heads, dim)


def recur(x, a, b, c):
    """The same scan token by token."""
    each = x.shape[1] // b.shape[1]
    b, c = b.repeat_interleave(each, 1), c.repeat_interleave(each, 1)
    state, out = torch.zeros(x.shape[1], x.shape[2], b.shape[2]), []
    for t in range(len(x)):
        state = state * a[t, :, None, None].exp() + x[t].unsqueeze(-1) * b[t].unsqueeze(-2)
        out.append((state * c[t].unsqueeze(-2)).sum(-1))
    return torch.stack(out)


def test_the_scan_in_chunks_is_the_recurrence():
    x, b, c = torch.randn(SEQ, 8, 4), torch.randn(SEQ, 2, 16), torch.randn(SEQ, 2, 16)
    a = -torch.rand(SEQ, 8)
    torch.testing.assert_close(scan(x, a, b, c, CHUNK), recur(x, a, b, c), rtol=1e-4, atol=1e-4)


def mixer(x, spec, linear):
    """Mamba-2 on (batch, seq, hidden); the convolution is written as shifts, which count no products."""
    of, inner, state = spec.linear_attention, spec.linear_attention.inner_width, spec.linear_attention.group_width
    gate, mixed, step = linear(x, 2 * inner + 2 * state + of.num_heads).split(
        [inner, inner + 2 * state, of.num_heads], -1
    )
    shifts = [functional.pad(mixed, (0, 0, n, 0))[:, : mixed.shape[1]] for n in range(of.conv_kernel)]
    values, b, c = functional.silu(sum(shifts)).split([inner, state, state], -1)
    step = functional.softplus(step)
    heads = values.unflatten(-1, (of.num_heads, of.head_dim)) * step.unsqueeze(-1)
    b, c = (t.unflatten(-1, (of.num_groups, of.state_size)) for t in (b, c))
    out = torch.stack([scan(*parts, of.chunk_size) for parts in zip(heads, -step, b, c, strict=True)])
    return linear(out.flatten(2) * functional.silu(gate), spec.hidden_size)


def counted(spec):
    """What torch counts of a model of Mamba-2 layers, forward and backward."""

    def linear(x, out):
        return functional.linear(x, torch.nn.Parameter(torch.randn(out, x.shape[-1]) / 8))

    x = torch.randn(BATCH, SEQ, spec.hidden_size, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        for _ in range(spec.num_hidden_layers):
            x = x + mixer(x, spec, linear)
        linear(x, spec.vocab_size).sum().backward()
    return counter.get_total_flops()


def kernels(spec, shard):
    layers = [kernel for number in range(spec.num_hidden_layers) for kernel in layer(spec, number, shard).all]
    return [*embedding(spec, shard), *layers, *head(spec, shard)]


def flops(spec, shard):
    """Ours, forward and both gradients."""
    every = [(k, input_gradient(k), weight_gradient(k)) for k in kernels(spec, shard)]
    return sum(flop(one) for three in every for one in three if one)


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("chunk", [4, 16])
def test_mamba_2_takes_the_operations_that_torch_counts(groups, chunk):
    spec = replace(SPEC, linear_attention=replace(MAMBA, num_groups=groups, chunk_size=chunk))
    assert flops(spec, Shard(BATCH, SEQ)) == counted(spec)


def test_a_scan_takes_as_many_operations_per_token_as_the_paper_says():
    """2 Q (G N + H P) inside a chunk and 4 H P N for the state."""
    inside = [k for k in layer(SPEC, 0, Shard(BATCH, SEQ)).all if k.name in SCAN and k.kind == "scan_gemm"]
    each = 2 * CHUNK * (2 * 16 + 8 * 4) + 4 * 8 * 4 * 16
    assert sum(map(flop, inside)) == BATCH * SEQ * each


@given(st.sampled_from([1, 2, 4]))
def test_ranks_of_tensor_parallelism_share_the_work_of_a_hybrid(tp):
    spec, whole, part = from_hf_config(HYBRID), Shard(BATCH, SEQ), Shard(BATCH, SEQ, tp=tp, etp=tp)
    router = sum(flop(k) for k in kernels(spec, part) if k.name == "router")  # of own tokens
    assert tp * (flops(spec, part) - router) == flops(spec, whole) - tp * router


def test_each_layer_of_a_pattern_holds_one_part():
    spec = from_hf_config(HYBRID)
    names = [
        [k.name for k in layer(spec, n, Shard(1, 8)).all if k.kind in ("gemm", "scan_gemm", "attention", "experts")]
        for n in range(5)
    ]
    mamba = ["in_proj", "chunk_scores", "chunk_states", "chunk_output", "state_output", "out_proj"]
    assert names == [mamba, ["up", "down"], mamba, ["qkv", "attention", "proj"], ["router", "up", "down", "experts"]]


def test_a_mamba_layer_keeps_what_its_fused_kernel_keeps():
    """The input of the convolution with gate and steps, what the scan gives, and what the norm gives."""
    tokens, inner = BATCH * SEQ, 8 * 16
    kept = activations(layer(from_hf_config(HYBRID), 0, Shard(BATCH, SEQ)))
    projected = 2 * inner + 2 * 4 * 16 + 8
    expected = {"qkv": projected, "scan": 2 * inner, "layernorm": 64, "residual": 64}
    assert kept == {part: 2 * tokens * width for part, width in expected.items()}


def test_a_rank_holds_its_heads_and_groups():
    """The input projection gives gate, x, B, C and steps; the norm before the layer is on every rank."""
    whole, half = (layer_count(from_hf_config(HYBRID), 0, tp=tp, ep=1, etp=1).dense for tp in (1, 2))
    mixed = 8 * 16 + 2 * 4 * 16
    assert whole == 64 + 64 * (8 * 16 + mixed + 8) + 5 * mixed + 3 * 8 + 8 * 16 + 8 * 16 * 64
    assert half == 64 + (whole - 64) // 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hybrid_override_pattern": "M-X"}, "hybrid_override_pattern = 'M-X': letter 'X' at 3: one of \\*, M, -, E"),
        ({"num_hidden_layers": 6}, "hybrid_override_pattern = 'M-M\\*E': 5 letters for 6 layers"),
        ({"num_hidden_layers": 4}, "5 letters for 4 layers"),
        ({"hybrid_override_pattern": "m-M*E"}, "letter 'm' at 1"),
        ({"hybrid_override_pattern": None, "num_hidden_layers": 5}, "hybrid_override_pattern = None: missing"),
        ({"mamba_num_heads": 6}, "n_groups = 4: a divisor of the 6 heads"),
        (
            {"hybrid_override_pattern": None, "layers_block_type": ["mamba"] * 4 + ["rnn"]},
            "'rnn' at 5: one of attent",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(changes, message):
    with pytest.raises(UserError, match=message):
        from_hf_config(HYBRID | changes)


def test_a_pattern_is_cut_down_to_the_layers():
    spec = from_hf_config(HYBRID | {"num_hidden_layers": 2}, strict=["num_hidden_layers"])
    assert [spec.kind(n).mixer for n in range(2)] == [True, False]
    assert spec.moe is None


def test_a_list_of_names_means_the_same_as_a_pattern():
    names = ["mamba", "mlp", "linear_attention", "full_attention", "moe"]
    given = {key: value for key, value in HYBRID.items() if key != "hybrid_override_pattern"}
    assert from_hf_config(given | {"layers_block_type": names}) == from_hf_config(HYBRID)


def test_selective_recomputation_of_attention_leaves_scans_alone():
    spec, shard = from_hf_config(HYBRID), Shard(BATCH, SEQ)
    parts = ("core_attn", "activation", "layernorm")
    again = [[k.name for k in recomputation(layer(spec, n, shard), "selective", parts)] for n in (0, 3)]
    assert again == [["input_norm"], ["input_norm", "attention"]]


def test_a_chunk_of_a_scan_lies_in_one_sequence():
    eight = Shard(batch=8, seq=300)
    states = next(
        kernel for kernel in scan_kernels(replace(MAMBA, chunk_size=256), eight) if kernel.name == "chunk_states"
    )

    assert states.shape[0] == 8 * 2 * MAMBA.num_heads * MAMBA.state_size


def test_one_expert_of_jamba_is_a_usual_network():
    config = {**preset_config("jamba-v0.1"), "num_experts": 1, "num_experts_per_tok": 1}

    assert from_hf_config(config, "config.json").moe is None


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("mamba2-130m", {"num_heads": 12}, "num_heads = 12: 1536 = expand x hidden_size is .* not 12 x 64"),
        ("bamba-9b", {"mamba_d_head": 32}, "mamba_n_heads = 128: 8192 = expand x hidden_size"),
        ("bamba-9b", {"attn_layer_indices": [9, 40]}, "attn_layer_indices = .*numbers from 0 to 31"),
        ("jamba-v0.1", {"attn_layer_offset": 8}, "attn_layer_offset = 8: a whole number from 0 to 7"),
        ("kimi-linear-48b-a3b", {"num_hidden_layers": 28}, "full_attn_layers = .*each of 1 to 28 once"),
        ("jamba-v0.1", {"model_type": "jambo"}, r"model_type = 'jambo': unknown; did you mean jamba\?"),
        ("jamba-v0.1", {"model_type": None}, "model_type = None: missing; such layers are read of bamba, "),
        ("jamba-v0.1", {"intermediate_size": None}, "intermediate_size = None: missing"),
        ("mixtral-8x7b", {"model_type": "llama"}, "num_local_experts = 8: not modelled: experts in a model_type"),
        ("mixtral-8x7b", {"model_type": None}, "num_local_experts = 8: not modelled: experts in a model_type"),
    ],
)
def test_a_config_that_contradicts_itself_is_one_line(name, changes, message):
    with pytest.raises(UserError, match=message) as error:
        from_hf_config(preset_config(name) | changes)

    assert len(error.value.faults) == 1


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("jamba-v0.1", ("attn_layer_period", "attn_layer_offset", "expert_layer_period", "expert_layer_offset")),
        ("nemotron-h-8b", ("n_groups", "head_dim", "mamba_head_dim", "chunk_size")),
        ("qwen3-next-80b-a3b", ("head_dim", "shared_expert_intermediate_size", "full_attention_interval")),
    ],
)
def test_a_missing_key_has_the_value_of_transformers_and_is_noted(name, keys):
    whole = preset_config(name)

    spec = from_hf_config({key: value for key, value in whole.items() if key not in keys})

    notes = ", ".join(f"{key} = {whole[key]}" for key in sorted(keys))
    noted = (f"not given, so as transformers sets it for {spec.model_type}: {notes}",)
    assert replace(spec, assumptions=()) == from_hf_config(whole)
    assert spec.assumptions == noted
