"""Steps of hybrid models: layers of one part, their exchanges over tensor- and context-parallel ranks, all by hand."""

from collections import Counter

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.systems.train_step.lower import activation_parts

from .steps import SEQ, labels, ops, program, resolved

HIDDEN, HEADS, DIM, STATE, GROUPS = 64, 8, 16, 16, 4
HYBRID = {
    "preset": "nemotron-h-8b",
    "overrides": {
        "hidden_size": HIDDEN, "num_hidden_layers": 4, "hybrid_override_pattern": "M-*-", "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 8, "intermediate_size": 128, "vocab_size": 512, "mamba_num_heads": HEADS,
        "mamba_head_dim": DIM, "ssm_state_size": STATE, "n_groups": GROUPS, "chunk_size": 8,
    },
}  # fmt: skip
STATES = SEQ * HIDDEN * 2  # bytes of hidden states


def of_layer(made, number):
    """The names of the ops of a layer, without the host's."""
    here = made.tags["layer"] == number
    return [label for label, mine in zip(labels(made).tolist(), here, strict=True) if mine and label != "issue"]


def test_a_mamba_layer_forward_and_backward():
    scan = ["convolution", "chunk_scores", "chunk_states", "pass_states", "chunk_output", "state_output"]
    inside = ["in_proj", *scan, "gated_norm", "out_proj"]
    forward = ["input_norm", *inside, "residual"]
    again = ["convolution", "chunk_scores", "chunk_states", "pass_states"]
    back = [*again, *(f"{name}_dgrad" for name in forward)]
    found = [name for name in of_layer(program(1, 1, HYBRID), 0) if name not in ("embed", "embed_dgrad")]
    assert found[: len(forward)] == forward
    assert sorted(found[len(forward) :]) == sorted([*back, "out_proj_wgrad", "in_proj_wgrad"])


def test_a_feed_forward_layer_has_no_attention_around_it():
    found = of_layer(program(1, 1, HYBRID), 1)
    assert found[:5] == ["mlp_norm", "up", "activation", "down", "residual"]


def test_a_layer_of_one_part_exchanges_once():
    """One gather and one scatter per layer forward, two and one backward; one more of each for embedding and loss."""
    made = program(2, 1, HYBRID, parallel={"tp": 2})
    per_layer = Counter((int(made.tags["layer"][op]), made.kind_of(op)) for op in ops(made, lane="tp"))
    assert [per_layer[number, "reduce_scatter"] for number in (1, 2, 3)] == [2, 2, 2]
    assert [per_layer[number, "all_gather"] for number in (1, 2, 3)] == [3, 3, 3]
    assert {int(made.bytes[op]) for op in ops(made, label="tp reduce_scatter")} == {STATES}


def test_ranks_that_share_a_sequence_exchange_tokens_for_heads():
    """What one rank of two sends: gate, x, B, C and steps before the scan, and its output behind it."""
    made = program(2, 1, HYBRID, parallel={"cp": 2})
    sizes = [int(made.bytes[op]) for op in ops(made, label="cp all_to_all")]
    inner = HEADS * DIM
    into, out = (SEQ // 2 * width * 2 for width in (2 * inner + 2 * GROUPS * STATE + HEADS, inner))
    assert sizes == [into, out, out, into]


def test_groups_go_to_every_rank_with_their_heads():
    made = program(8, 1, HYBRID, parallel={"cp": 8}, batch={"seq_len": 2 * SEQ})
    into = int(made.bytes[ops(made, label="cp all_to_all")[0]])
    assert into == 2 * SEQ // 8 * (2 * HEADS * DIM + 2 * 8 * STATE + HEADS) * 2


def test_early_stop_recomputes_to_the_last_product():
    recompute = {"mode": "full", "early_stop": True}
    found = Counter(labels(program(1, 1, HYBRID, recompute=recompute)).tolist())
    assert (found["state_output"], found["gated_norm"], found["out_proj"], found["down"]) == (2, 2, 1, 2)
    assert found["activation"] == 4


def test_uneven_stages_keep_what_their_own_layers_keep():
    plan = resolved(2, 1, HYBRID, parallel={"pp": 2}).plan
    first, second = (activation_parts(plan, stage) for stage in (0, 1))
    assert ("qkv" in first, "qkv" in second) == (True, True)
    assert first["qkv"] - second["qkv"] == SEQ * 2 * (2 * HEADS * DIM + 2 * GROUPS * STATE + HEADS - (8 + 2 * 4) * 8)


@pytest.mark.parametrize(
    ("model", "parallel", "line"),
    [
        ({}, {"tp": 8}, "parallel.tp = 8: must divide the 4 groups of heads of Mamba-2"),
        ({}, {"tp": 4, "cp": 4}, "parallel.cp = 4: must divide the 2 heads of Mamba-2 on a rank"),
        ({"preset": "mamba-2.8b", "overrides": {}}, {"tp": 2}, "parallel.tp = 2: 1 for mamba-2.8b: its ranks would"),
        ({"preset": "mamba-2.8b", "overrides": {}}, {"cp": 2}, "parallel.cp = 2: 1 for mamba-2.8b: its ranks would"),
    ],
)
def test_what_cannot_be_split_is_one_line(model, parallel, line):
    with pytest.raises(UserError, match=line):
        program(16, 1, HYBRID | model, parallel=parallel, batch={"seq_len": 256})


FALCON = {
    "preset": "falcon-h1-0.5b",
    "overrides": {
        "hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 8, "intermediate_size": 128, "vocab_size": 512, "mamba_n_heads": HEADS, "mamba_d_head": DIM,
        "mamba_d_ssm": HEADS * DIM, "mamba_n_groups": GROUPS, "mamba_d_state": STATE, "mamba_chunk_size": 8,
    },
}  # fmt: skip


def test_a_mixer_beside_attention_shares_its_exchanges():
    made = program(2, 1, FALCON, parallel={"tp": 2})
    found = Counter(of_layer(made, 1))
    assert (found["attention"], found["state_output"], found["add_mixers"]) == (1, 1, 1)
    assert (found["tp reduce_scatter"], found["tp all_gather"]) == (4, 6)  # as of attention and FFN alone


@pytest.mark.parametrize("parallel", [{"cp": 2}, {"cp": 2, "tp": 2}, {"cp": 2, "tp": 2, "sequence_parallel": False}])
def test_both_mixers_exchange_between_ranks_that_share_a_sequence(parallel):
    made = program(2 * parallel.get("tp", 1), 1, FALCON, parallel=parallel)
    found = Counter(of_layer(made, 1))
    assert (found["cp all_to_all"], found["cp send_recv"]) == (4, 3)


def test_projections_to_the_latents_of_experts_learn():
    latents = {"n_routed_experts": 8, "num_experts_per_tok": 2}
    latents |= {"moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48, "moe_latent_size": 16}
    latents |= {key: value for key, value in HYBRID["overrides"].items() if key != "intermediate_size"}
    model = {"preset": "nemotron-3-super", "overrides": latents | {"hybrid_override_pattern": "MEM*"}}
    made = program(8, 1, model, parallel={"ep": 8})
    found = Counter(of_layer(made, 1))
    assert (found["latent_down_wgrad"], found["latent_up_wgrad"]) == (1, 1)
    assert {int(made.bytes[op]) for op in ops(made, label="dispatch")} == {SEQ * 2 * 16 * 2}
