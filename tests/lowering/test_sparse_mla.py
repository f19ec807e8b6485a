"""Steps with an indexer: how often it works when layers are recomputed, and what it gathers."""

import pytest

from .steps import SEQ, ops, resolved

HIDDEN, QUERIES, KEYS, MICRO_BATCHES = 64, 24, 24, 3
"""Widths of hidden states, of latents of queries, and of those of keys with their rotary part."""
GLM = {
    "preset": "glm-5",
    "overrides": {
        "hidden_size": HIDDEN, "num_hidden_layers": 4, "num_attention_heads": 4, "q_lora_rank": QUERIES,
        "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 16, "vocab_size": 512,
        "intermediate_size": 128, "moe_intermediate_size": 32, "n_routed_experts": 8, "index_n_heads": 4,
        "index_head_dim": 16, "index_topk": 8, "first_k_dense_replace": 1, "num_nextn_predict_layers": 0,
    },
}  # fmt: skip


@pytest.mark.parametrize(("mode", "again"), [("none", 1), ("full", 2)])
def test_a_layer_that_is_recomputed_picks_again_and_learns_once(mode, again):
    step = resolved(1, MICRO_BATCHES, GLM, recompute={"mode": mode})
    found = [len(ops(step.program, label=label)) for label in ("index_scores", "index_teacher", "index_gradients")]
    assert found == [4 * MICRO_BATCHES * times for times in (again, 1, 1)]


def test_an_indexer_gathers_what_it_reads_in_the_forward_alone():
    program = resolved(2, 1, GLM, parallel={"tp": 2}).program
    latents, read = 2 * SEQ * (QUERIES + KEYS), 2 * SEQ * (HIDDEN + QUERIES)
    inner = [op for op in ops(program, label="tp all_gather") if program.tags["layer"][op] == 1]
    sizes = sorted(program.bytes[inner].tolist())
    assert [sizes.count(latents + read), sizes.count(latents)] == [1, 1]
