"""Floating-point operations of our kernels against those that torch counts of plain modules.

torch.utils.flop_counter counts products (mm) and the two products of attention (bmm, written out here). It knows no
masks: attention counts the full square, of which we count what a mask leaves. Looking up an embedding counts nothing,
but as it is trained, its gradient and so the input gradient of the first layer are counted. Flash kernels compute the
scores again in the backward: torch's rule for them says 5 products, we say 4, as the model's work.
"""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.base.op_kinds import ATTENTION, op_kind
from runcast.simulator.models import preset, preset_names
from runcast.simulator.models.blocks import embedding, head, layer, layer_parameters, mtp_in
from runcast.simulator.models.kernels import WEIGHTLESS, flop, input_gradient, visible, weight_gradient
from runcast.simulator.models.model import ModelSpec
from runcast.simulator.models.parts import Frozen, Indexer, Mla, Moe
from runcast.simulator.models.shard import Shard
from runcast.simulator.models.tensors import layer_params
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from .closed_form import distinct_layers

BATCH, SEQ = 2, 16
DENSE = ModelSpec("dense", 32, 2, 4, 4, 8, 128, 64, gated_ffn=False, hidden_act="gelu")
MLA = Mla(q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8)
MOE = Moe(8, 2, 24, layers=(1, 2), shared_intermediate_size=40)
SPECS = {
    "dense with GELU": DENSE,
    "GQA with SwiGLU": replace(DENSE, num_key_value_heads=2, gated_ffn=True, hidden_act="silu", intermediate_size=80),
    "squared ReLU": replace(DENSE, hidden_act="relu2"),
    "qk-norm": replace(DENSE, qk_norm=True, num_key_value_heads=1),
    "output gate": replace(DENSE, output_gate=True, num_key_value_heads=2),
    "MLA": replace(DENSE, mla=MLA, gated_ffn=True),
    "MLA without q_lora": replace(DENSE, mla=replace(MLA, q_lora_rank=None), gated_ffn=True),
    "MoE behind a dense layer": replace(DENSE, num_hidden_layers=3, moe=MOE, gated_ffn=True),
    "MoE with a gate on shared experts": replace(DENSE, num_hidden_layers=3, moe=replace(MOE, shared_gate=True)),
    "GPT-OSS": replace(
        DENSE, num_hidden_layers=4, num_key_value_heads=2, attention_bias=True, attention_out_bias=True,
        mlp_bias=True, attention_sinks=True, sliding_window=4, sliding_layers=(0, 2), gated_ffn=True,
        moe=Moe(4, 2, 32, layers=(0, 1, 2, 3), router_bias=True),
    ),
    "tied": replace(DENSE, tie_word_embeddings=True),
    "MTP": replace(DENSE, mla=MLA, moe=MOE, num_hidden_layers=3, num_nextn_predict_layers=1, gated_ffn=True),
    "parallel": replace(DENSE, parallel_residual=True, shared_norm=True, norm="layer", positions="alibi"),
}  # fmt: skip
DEEP = replace(SPECS["GQA with SwiGLU"], num_hidden_layers=4)
SPARSE = replace(SPECS["MLA"], moe=Moe(8, 2, 24, layers=(1, 2, 3), shared_intermediate_size=40), num_hidden_layers=4)
FREEZES = {
    "first layers": Frozen(frozenset({0, 1})),
    "first layers and the embedding": Frozen(frozenset({0, 1}), embedding=True),
    "all but the last layer": Frozen(frozenset({0, 1, 2}), embedding=True, head=True),
    "all but the head": Frozen(frozenset(range(4)), embedding=True),
    "all but the embedding": Frozen(frozenset(range(4)), head=True),
    "a layer in the middle": Frozen(frozenset({2})),
}


class Model(torch.nn.Module):
    """A model written straight from its spec. Weights of norms count nothing; the first of a layer needs gradients."""

    def __init__(self, spec):
        super().__init__()
        self.spec = spec
        self.weights = {}
        self.losses = []  # of indexers

    def linear(self, name, x, out, bias=False):
        weight = self.weight(name, out, x.shape[-1])
        return functional.linear(x, weight, self.weight(f"{name}_bias", out) if bias else None)

    def weight(self, name, *shape):
        if name not in self.weights:
            self.weights[name] = torch.nn.Parameter(torch.empty(*shape), requires_grad=self.learns(name))
        return self.weights[name]

    def learns(self, name):
        of, frozen = name.partition(".")[0], self.spec.frozen
        ends = {"embed": frozen.embedding, "head": frozen.head}
        return not (ends[of] if of in ends else of.isdigit() and int(of) in frozen.layers)

    def norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def forward(self, tokens):
        spec = self.spec
        table = self.weight("embed", spec.vocab_size, spec.hidden_size)
        x = functional.embedding(tokens, table)
        for number in range(spec.num_hidden_layers):
            x = self.layer(number, x)
        loss = self.loss(x, tokens)
        for number in range(spec.num_hidden_layers, spec.num_hidden_layers + spec.num_nextn_predict_layers):
            both = torch.cat([self.norm(functional.embedding(tokens, table)), self.norm(x)], -1)
            x = self.layer(number, self.linear(f"eh{number}", both, spec.hidden_size))
            loss = loss + self.loss(x, tokens)
        return loss + sum(self.losses)

    def loss(self, x, tokens):
        spec, x = self.spec, self.norm(x) * self.weight("head.norm", x.shape[-1])
        tied = functional.linear(x, self.weights["embed"]) if spec.tie_word_embeddings else None
        logits = self.linear("head", x, spec.vocab_size) if tied is None else tied
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    def layer(self, number, x):
        spec, name = self.spec, f"{number}."
        normed = self.norm(x) * self.weight(f"{name}norm", x.shape[-1])
        mixed = self.mla(name, normed) if spec.mla else self.attention(name, normed)
        x, read = (x + mixed, self.norm(x + mixed)) if not spec.parallel_residual else (x + mixed, normed)
        if not spec.is_moe(number):
            return x + self.ffn(name, read, spec.intermediate_size)
        return x + self.moe(name, read)

    def act(self, x):
        kind = {"silu": functional.silu, "gelu": functional.gelu, "relu2": lambda x: functional.relu(x).square()}
        return kind[self.spec.hidden_act](x)

    def ffn(self, name, x, inter):
        spec = self.spec
        up = self.act(self.linear(f"{name}up", x, inter, spec.mlp_bias))
        if spec.gated_ffn:
            up = up * self.linear(f"{name}gate", x, inter, spec.mlp_bias)
        return self.linear(f"{name}down", up, spec.hidden_size, spec.mlp_bias)

    def moe(self, name, x):
        moe, bias = self.spec.moe, self.spec.moe.router_bias
        logits = self.linear(f"{name}router", x, moe.n_routed_experts, bias)
        weights, _ = logits.topk(moe.num_experts_per_tok)
        chosen = x.unsqueeze(2).expand(-1, -1, moe.num_experts_per_tok, -1).flatten(0, 2).chunk(moe.n_routed_experts)
        back = [self.ffn(f"{name}expert{i}", rows, moe.moe_intermediate_size) for i, rows in enumerate(chosen)]
        out = (torch.cat(back).view(*weights.shape, -1) * weights.unsqueeze(-1)).sum(2)
        if moe.shared_intermediate_size:
            shared = self.ffn(f"{name}shared", x, moe.shared_intermediate_size)
            out = out + (shared * self.linear(f"{name}shared_gate", x, 1) if moe.shared_gate else shared)
        return out

    def attention(self, name, x):
        spec, dim, bias = self.spec, self.spec.head_dim, self.spec.attention_bias
        heads, kv_heads = spec.num_attention_heads, spec.num_key_value_heads
        q, k, v = (
            self.linear(f"{name}{part}", x, count * dim, bias).unflatten(-1, (count, dim)).transpose(1, 2)
            for part, count in (("q", heads * (1 + spec.output_gate)), ("k", kv_heads), ("v", kv_heads))
        )
        gate, q = (q[:, heads:], q[:, :heads]) if spec.output_gate else (None, q)
        if spec.qk_norm:
            q, k = self.norm(q), self.norm(k)
        out = self.scores(q, *(t.repeat_interleave(heads // kv_heads, 1) for t in (k, v)))
        return self.out(name, out if gate is None else out * gate.sigmoid())

    def mla(self, name, x):
        spec, mla, heads = self.spec, self.spec.mla, self.spec.num_attention_heads
        rank, nope = mla.q_lora_rank, mla.qk_nope_head_dim
        source = x if rank is None else self.norm(self.linear(f"{name}q_down", x, rank))
        q = self.linear(f"{name}q_up", source, heads * spec.qk_head_dim).unflatten(-1, (heads, -1)).transpose(1, 2)
        down = self.linear(f"{name}kv_down", x, mla.kv_lora_rank + mla.qk_rope_head_dim)
        latent, rope = self.norm(down[..., : mla.kv_lora_rank]), down[..., mla.kv_lora_rank :]
        if spec.indexer:
            return self.sparse_mla(name, x, source, q, latent, rope)
        kv = self.linear(f"{name}kv_up", latent, heads * (nope + mla.v_head_dim)).unflatten(-1, (heads, -1))
        kv = kv.transpose(1, 2)
        k = torch.cat([kv[..., :nope], rope.unsqueeze(1).expand(-1, heads, -1, -1)], -1)
        return self.out(name, self.scores(q, k, kv[..., nope:]))

    def sparse_mla(self, name, x, source, q, latent, rope):
        """Queries against latents, all of which are picked; the indexer learns what attention gives them."""
        mla, of, heads = self.spec.mla, self.spec.indexer, self.spec.num_attention_heads
        up_k = torch.nn.Parameter(torch.empty(heads, mla.qk_nope_head_dim, mla.kv_lora_rank))
        up_v = torch.nn.Parameter(torch.empty(heads, mla.kv_lora_rank, mla.v_head_dim))
        q = torch.cat([torch.matmul(q[..., : mla.qk_nope_head_dim], up_k), q[..., mla.qk_nope_head_dim :]], -1)
        k = torch.cat([latent, rope], -1).unsqueeze(1)
        index_q = self.linear(f"{name}index_q", source.detach(), of.num_heads * of.head_dim)
        index_k = self.linear(f"{name}index_k", x.detach(), of.head_dim).unsqueeze(1)
        weights = self.linear(f"{name}index_w", x.detach(), of.num_heads).transpose(1, 2).unsqueeze(-1)
        picks = torch.matmul(index_q.unflatten(-1, (of.num_heads, -1)).transpose(1, 2), index_k.transpose(-1, -2))
        teacher = torch.softmax(torch.matmul(q.detach(), k.detach().transpose(-1, -2)), -1).sum(1)
        self.losses.append(((functional.relu(picks) * weights).sum(1) - teacher).square().sum())
        return self.out(name, torch.matmul(self.scores(q, k, latent.unsqueeze(1)), up_v))

    def scores(self, q, k, v):
        return torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-1, -2)), -1), v)

    def out(self, name, x):
        return self.linear(
            f"{name}o", x.transpose(1, 2).flatten(2), self.spec.hidden_size, self.spec.attention_out_bias
        )


def counted(spec):
    """What torch counts, forward and backward: (products, attention)."""
    counter = FlopCounterMode(display=False)
    with torch.device("meta"), counter:
        Model(spec)(torch.zeros(BATCH, SEQ, dtype=torch.long)).backward()
    ops = counter.get_flop_counts()["Global"]
    attention = sum(count for op, count in ops.items() if "bmm" in str(op))
    return sum(ops.values()) - attention, attention


def kernels(spec, shard):
    depth, ahead = spec.num_hidden_layers, spec.num_nextn_predict_layers
    layers = [kernel for number in range(depth + ahead) for kernel in layer(spec, number, shard).all]
    mtp = [kernel for _ in range(ahead) for kernel in (*mtp_in(spec, shard), *head(spec, shard))]
    return [*embedding(spec, shard), *layers, *mtp, *head(spec, shard)]


def all_three(kernel):
    both = [input_gradient(kernel) if kernel.passes else None, weight_gradient(kernel)]
    return [kernel, *(gradient for gradient in both if gradient)]


def flops(spec, shard):
    """Ours, forward and both gradients: (products, attention)."""
    every = [part for kernel in kernels(spec, shard) for part in all_three(kernel)]
    attention = sum(flop(kernel) for kernel in every if op_kind(kernel.kind).form == ATTENTION)
    return sum(map(flop, every)) - attention, attention


def square(kernel):
    """Attention without its mask."""
    batch, seq, heads, kv_heads, qk_dim, v_dim, _, _, parts = kernel.shape
    return replace(kernel, shape=(batch, seq, heads, kv_heads, qk_dim, v_dim, 0, 0, parts))


@pytest.mark.parametrize("name", SPECS)
def test_products_are_those_that_torch_counts(name):
    assert flops(SPECS[name], Shard(BATCH, SEQ))[0] == counted(SPECS[name])[0]


@pytest.mark.parametrize("name", SPECS)
def test_attention_without_masks_is_what_torch_counts(name):
    scores = [square(kernel) for kernel in kernels(SPECS[name], Shard(BATCH, SEQ)) if kernel.kind == "attention"]
    ours = sum(flop(part) for kernel in scores for part in all_three(kernel))
    assert ours == counted(SPECS[name])[1]


@pytest.mark.parametrize("frozen", FREEZES.values(), ids=FREEZES)
@pytest.mark.parametrize("spec", [DEEP, SPARSE], ids=["dense", "sparse"])
def test_what_is_frozen_has_no_gradients_and_passes_none_but_to_what_is_trained_before(spec, frozen):
    spec = replace(spec, frozen=frozen)
    assert flops(spec, Shard(BATCH, SEQ))[0] == counted(spec)[0]


def test_sparse_latent_attention_is_what_torch_counts_but_for_its_mask():
    spec = replace(SPECS["MLA"], indexer=Indexer(2, 8, topk=SEQ, layers=frozenset({0, 1})))
    every = [part for kernel in kernels(spec, Shard(BATCH, SEQ)) for part in all_three(kernel)]
    assert sum(flop(part) * (2 if part.part in WEIGHTLESS else 1) for part in every) == sum(counted(spec))


@pytest.mark.parametrize(
    ("model", "tokens", "published"),
    [
        *(("glm-5.2", *each) for each in ((2048, 285.95), (4096, 304.47), (131_072, 332.92), (200_000, 339.37))),
        *(("glm-5", *each) for each in ((4096, 315.1), (131_072, 376.5))),
    ],
)
def test_sparse_latent_attention_counts_what_megatron_bridge_counts(model, tokens, published):
    """GFLOP per token: TFLOP/s over tokens/s of a GPU (examples/model_verification_cards/glm5-2/card.yaml, glm5)."""
    assert sum(flops(preset(model), Shard(1, tokens))) / tokens == pytest.approx(published * 1e9, rel=3e-3)


def test_flash_attention_counts_one_product_more_in_the_backward():
    q, k, v = (2, 4, 16, 12), (2, 4, 16, 12), (2, 4, 16, 8)
    (kernel,) = [square(each) for each in layer(SPECS["MLA"], 0, Shard(2, 16)).all if each.kind == "attention"]
    assert flop(kernel) == sdpa_flop_count(q, k, v)
    scores = 2 * 2 * 4 * 16 * 16 * 12
    assert flop(input_gradient(kernel)) == sdpa_backward_flop_count(v, q, k, v) - scores


@pytest.mark.parametrize("window", [0, 1, 3, 16, 40])
def test_a_mask_leaves_its_pairs_less_half_a_window(window):
    """seq x seq / 2, as published counts have it, where a causal mask leaves seq x (seq + 1) / 2."""
    pairs = sum(min(token + 1, window or SEQ) for token in range(SEQ))
    edge = min(window or SEQ, SEQ)
    assert visible(SEQ, True, window) == pairs - edge / 2
    assert visible(SEQ, False, window) == SEQ * (window or SEQ)


@pytest.mark.parametrize(("layers", "hidden", "heads"), [(48, 6144, 64), (96, 12288, 96), (105, 20480, 128)])
def test_a_gpt_counts_as_the_published_formula(layers, hidden, heads):
    """72 b s L h^2 (1 + s / 6h + v / 12hL), with full squares in attention. Source: arXiv 2205.05198, appendix."""
    seq, vocab = 2048, 51200
    dim = hidden // heads
    spec = replace(
        DENSE, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads,
        head_dim=dim, intermediate_size=4 * hidden, vocab_size=vocab, positions="learned", position_embeddings=seq,
    )  # fmt: skip
    products, causal = flops(spec, Shard(1, seq))
    expected = 72 * seq * layers * hidden**2 * (1 + seq / (6 * hidden) + vocab / (12 * hidden * layers))
    assert products + 2 * causal == pytest.approx(expected, rel=1e-12)


@given(
    name=st.sampled_from([name for name in SPECS if SPECS[name].num_key_value_heads != 1]),
    tp=st.sampled_from([1, 2]),
    cp=st.sampled_from([1, 2]),
    cp_type=st.sampled_from(["ring", "all_gather", "ulysses"]),
    etp=st.sampled_from([1, 2]),
    sequence_parallel=st.booleans(),
)
def test_ranks_together_compute_what_one_would(name, tp, cp, cp_type, etp, sequence_parallel):
    """Without sequence parallelism ranks of a tensor-parallel group repeat what works on a rank's own tokens."""
    spec, ep = SPECS[name], max(tp * cp // etp, 1)
    shard = Shard(BATCH, SEQ, tp=tp, cp=cp, ep=ep, etp=etp, cp_type=cp_type, sequence_parallel=sequence_parallel)
    ours = [sum(parts) * tp * cp for parts in zip(flops(spec, shard), strict=True)]
    own = ("router", "q_down", "kv_down", "eh_proj", "shared_gate")
    again = sum(
        flop(part) for kernel in kernels(spec, shard) if kernel.name in own for part in all_three(kernel)
    ) * (cp * (tp - 1) if not sequence_parallel else 0)  # fmt: skip
    assert [ours[0] - again, ours[1]] == list(flops(spec, Shard(BATCH, SEQ)))


UNMULTIPLIED = ("conv1d", "A_log", "position_embedding", "own_tokens")


def unmultiplied(spec, number):
    table = layer_parameters(spec, spec.kind(number))
    return sum(each.size for each in table if any(part in each.name for part in UNMULTIPLIED))


def reads_one_token(tower):
    of, projector = tower.inputs, tower.inputs.projector
    patches = tuple((into, 1) for into, _ in of.patches)
    return replace(
        tower,
        inputs=replace(of, span=1, own_tokens=0, patches=patches, projector=projector and replace(projector, merge=1)),
    )


@pytest.mark.parametrize("name", preset_names())
def test_a_forward_is_two_per_active_parameter_and_token(name):
    """But for norms, biases, convolutions and decays, which no product reads."""
    spec = preset(name)
    spec = replace(spec, towers=tuple(map(reads_one_token, spec.towers)), weight_sets=1)
    products, params = 0, 0
    for n, many in distinct_layers(spec).items():
        kernels = layer(spec, n, Shard(1, 1)).all
        products += many * sum(flop(kernel) for kernel in kernels if kernel.part not in WEIGHTLESS)
        params += many * (layer_params(spec, spec.kind(n), active=True) - unmultiplied(spec, n))
    assert math.isclose(products / 2, params, rel_tol=2e-3)
