"""Which exchanges a step has, how many and of how many bytes, against the closed forms of the papers."""

from collections import Counter

import pytest

from .steps import (
    DIM,
    EXPERTS,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYER,
    LAYERS,
    MOE,
    SEQ,
    TABLE,
    TOP_K,
    labels,
    ops,
    program,
    resolved,
)

STATES = SEQ * HIDDEN * 2  # bytes of hidden states of a micro-batch


def table(made, lane):
    """(kind, bytes): how many of them on a lane."""
    return Counter((made.kind_of(op), int(made.bytes[op])) for op in ops(made, lane=lane))


@pytest.mark.parametrize("passes", [1, 2, 4])
def test_weights_that_stay_are_gathered_and_gradients_reduced_once_in_each_pass(passes):
    fsdp = {"pp": 2, "zero": 3, "reshard": False, "sync_each_microbatch": False}
    made = program(4, 4, parallel=fsdp, schedule={"passes": passes})
    units = LAYERS  # embedding and head go with their layers
    assert [len(ops(made, kind=kind)) for kind in ("all_gather", "reduce_scatter")] == 2 * [passes * units]


def test_one_gpu_exchanges_nothing():
    made = program()
    assert {made.kind_of(op) for op in range(len(made)) if len(made.groups[made.group[op]]) > 1} == set()


def test_a_dense_layer_has_these_kernels():
    made = program(micro_batches=3)
    of_layer = made.tags["layer"] == 2
    names = Counter(label for label, ours in zip(labels(made), of_layer, strict=True) if ours)
    once = dict.fromkeys(("qkv", "proj", "up", "down", "attention", "activation", "input_norm", "mlp_norm"), 3)
    again = {f"{name}_dgrad": 3 for name in once} | {f"{name}_wgrad": 3 for name in ("qkv", "proj", "up", "down")}
    assert names == once | again | {"rope": 3, "rope_dgrad": 3, "residual": 6, "residual_dgrad": 6, "issue": 6}


def test_tensor_parallel_layers_reduce_four_times():
    made = program(2, 3, parallel={"tp": 2, "sequence_parallel": False})
    layers, embedding, logits = 4 * LAYERS * 3, 3, 3
    assert table(made, "tp") == {
        ("all_reduce", STATES): layers + embedding + logits,
        ("all_reduce", 3 * 4 * SEQ): 3,  # maximum, sum and target's logit of each token
    }


def test_sequence_parallel_layers_gather_and_scatter_instead():
    made = program(2, 3, parallel={"tp": 2})
    forward_and_back, again_for_weights = 4 * LAYERS, 2 * LAYERS
    embedding, logits = 1, 1
    assert table(made, "tp") == {
        ("reduce_scatter", STATES): 3 * (forward_and_back + embedding + logits),
        ("all_gather", STATES): 3 * (forward_and_back + again_for_weights + embedding + logits + 1),
        ("all_reduce", 3 * 4 * SEQ): 3,
        ("all_reduce", 4 * (2 * LAYERS + 1) * HIDDEN): 1,  # norms
    }


@pytest.mark.parametrize("level", [0, 1, 2])
def test_each_parameter_is_reduced_once_per_step(level):
    at_the_end = {"sync_each_microbatch": False} if level == 2 else {}
    made = program(4, 3, parallel={"zero": level, **at_the_end})
    reduced = ops(made, label="reduce gradients")
    assert {made.kind_of(op) for op in reduced} == {"reduce_scatter" if level else "all_reduce"}
    assert sum(made.bytes[op] for op in reduced) == 4 * (LAYERS * LAYER + 2 * TABLE + HIDDEN)
    gathered = sum(made.bytes[op] for op in ops(made, label="gather weights"))
    assert gathered == (2 * (LAYERS * LAYER + 2 * TABLE + HIDDEN) if level else 0)


def test_buckets_close_when_they_are_full():
    two_layers = program(4, parallel={"zero": 0}, bucket=2 * LAYER)
    small = program(4, parallel={"zero": 0}, bucket=LAYER // 3)
    head, last = TABLE + HIDDEN, TABLE + LAYER
    sizes = [two_layers.bytes[op] / 4 for op in ops(two_layers, label="reduce gradients")]
    assert sizes == [head + 2 * LAYER, LAYER + last]
    pieces = [(head + LAYER) // (LAYER // 3), 3, 3, last // (LAYER // 3)]
    assert len(ops(small, label="reduce gradients")) == sum(pieces)


@pytest.mark.parametrize(
    ("given", "each"),
    [({}, 6), ({"parallel": {"tp": 4, "tp_2d": True}, "batch": {"micro": 2}}, 6), ({"lora": {"rank": 4}}, 8)],
)
def test_a_message_of_each_tensor_of_a_layer(given, each):
    """Four products and two norms, the same on a grid; of four adapters two each, and no norm."""
    made = program(8, 4, bucket="tensor", **given)
    by_layer = Counter(made.tags["layer"][ops(made, label="reduce gradients")].tolist())
    assert by_layer == dict.fromkeys(range(LAYERS), each)


def test_experts_have_messages_of_their_own():
    """Of attention and router three products and two norms, of all experts one."""
    made = program(4, 1, MOE, parallel={"ep": 2}, bucket="tensor")
    sent = ops(made, label="reduce gradients")
    lanes = Counter(made.lanes[made.lanes_of.values[made.lanes_of.start[op]]].name for op in sent)
    assert lanes["dp"] == LAYERS * 5
    assert lanes["edp"] == LAYERS


def test_torch_and_megatron_have_buckets_of_their_own():
    assert resolved(4, parallel={"zero": 0}).plan.sharding.bucket == 25 * 2**20 // 2
    assert resolved(4, parallel={"zero": 1}).plan.sharding.bucket == 40_000_000
    assert resolved(8, parallel={"zero": 0}, precision={"compute": "fp32"}).plan.sharding.bucket == 25 * 2**20 // 4


def test_fully_sharded_layers_are_gathered_twice_and_scattered_once():
    made = program(4, 3, parallel={"zero": 3})
    first, last = LAYER + TABLE, LAYER + TABLE + HIDDEN
    sizes = [first, *[LAYER] * (LAYERS - 2), last]
    gathered = Counter(int(made.bytes[op]) for op in ops(made, label="gather weights"))
    reduced = Counter(int(made.bytes[op]) for op in ops(made, label="reduce gradients"))
    assert gathered == Counter({2 * size: 6 * count for size, count in Counter(sizes).items()})
    assert reduced == Counter({4 * size: 3 * count for size, count in Counter(sizes).items()})
    kept = program(4, 3, parallel={"zero": 3, "reshard": False, "sync_each_microbatch": False})
    assert len(ops(kept, label="gather weights")) == LAYERS == len(ops(kept, label="reduce gradients"))


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v"])
def test_weight_gradients_apart_gather_no_weights(name):
    """Forwards and input gradients of four micro-batches gather every parameter once each, whatever the schedule."""
    made = program(4, 4, parallel={"pp": 2, "zero": 3}, schedule={"name": name}, overrides={"num_hidden_layers": 8})
    gathered = sum(int(made.bytes[op]) for op in ops(made, label="gather weights"))
    assert gathered == 4 * 2 * 2 * (8 * LAYER + 2 * TABLE + HIDDEN)


def test_hybrid_sharding_scatters_inside_and_sums_across():
    made = program(8, parallel={"zero": 3, "shard": 4})
    found = [(made.kind_of(op), len(made.groups[made.group[op]])) for op in ops(made, label="reduce gradients")]
    total = sum(made.bytes[op] for op in ops(made, kind="reduce_scatter"))
    across = sum(made.bytes[op] for op in ops(made, label="reduce gradients") if made.kind_of(op) == "all_reduce")
    assert Counter(found) == {("reduce_scatter", 4): LAYERS, ("all_reduce", 2): LAYERS}
    assert across == pytest.approx(total / 4, abs=LAYERS)


@pytest.mark.parametrize("overlapped", [True, False])
def test_whether_gradients_travel_early_changes_nothing_of_what_travels(overlapped):
    given = {"zero": 3, "shard": 4, "sync_each_microbatch": False}
    made = program(8, 2, parallel=given, overlap={"dp": overlapped})
    sent = [(made.kind_of(op), int(made.bytes[op])) for op in ops(made, label="reduce gradients")]
    assert sum(size for kind, size in sent if kind == "reduce_scatter") == 4 * (LAYERS * LAYER + 2 * TABLE + HIDDEN)
    assert sum(size for kind, size in sent if kind == "all_reduce") == LAYERS * LAYER + 2 * TABLE + HIDDEN


def test_tokens_go_to_experts_and_back_four_times():
    made = program(4, 3, MOE, parallel={"ep": 4})
    sent = SEQ * TOP_K * HIDDEN * 2
    assert table(made, "ep") == {("all_to_all", sent): 4 * LAYERS * 3}
    assert len(ops(made, label="dispatch")) == len(ops(made, label="combine_back")) == 3 * LAYERS


def test_tokens_may_go_to_experts_in_8_bits_and_come_back_in_16():
    """Forward dispatch, and its like of the backward, which takes gradients to experts; scales go with them."""
    made = program(4, 3, MOE, parallel={"ep": 4}, precision={"dispatch": "fp8"})
    elements = SEQ * TOP_K * HIDDEN
    there, back = (
        Counter(int(made.bytes[op]) for label in ways for op in ops(made, label=label))
        for ways in (("dispatch", "combine_back"), ("combine", "dispatch_back"))
    )
    assert there == {elements + elements // 128 * 4: 2 * LAYERS * 3}
    assert back == {2 * elements: 2 * LAYERS * 3}


def test_sequence_parallel_ranks_send_their_own_tokens_to_experts():
    made = program(4, 1, MOE, parallel={"ep": 4, "tp": 2, "etp": 1})
    assert table(made, "ep") == {("all_to_all", SEQ // 2 * TOP_K * HIDDEN * 2): 4 * LAYERS}


def test_ranks_that_share_experts_see_tokens_of_each_other():
    made = program(4, 1, MOE, parallel={"ep": 2, "tp": 2})  # etp is tp by default
    size = SEQ // 2 * TOP_K * HIDDEN * 2 * 2
    assert table(made, "etp") == {("all_gather", size): 2 * LAYERS, ("reduce_scatter", size): 2 * LAYERS}


def test_deepep_says_what_leaves_the_node():
    made = program(16, 1, MOE, parallel={"ep": 8, "order": "tp-cp-dp-ep-pp"}, experts={"dispatcher": "deepep"})
    assert made.shape[ops(made, label="dispatch")[0]].size == 1
    inside = program(8, 1, MOE, parallel={"ep": 8}, experts={"dispatcher": "deepep"})
    assert inside.shape[ops(inside, label="dispatch")[0]].size == 0


def test_deepep_sends_a_rank_one_copy():
    """Two experts of eight, on two ranks: 4 in 7 second choices of a token lie on the other rank."""
    sent = [
        int(made.bytes[ops(made, label="dispatch")[0]])
        for name in ("alltoall", "deepep")
        for made in [program(2, 1, MOE, parallel={"ep": 2}, experts={"dispatcher": name})]
    ]
    assert sent == [SEQ * TOP_K * HIDDEN * 2, round(SEQ * (1 + 4 / 7) * HIDDEN * 2)]


def test_experts_are_reduced_over_ranks_that_hold_the_same_ones():
    made = program(8, 1, MOE, parallel={"ep": 4})
    of = {len(made.groups[made.group[op]]): int(made.bytes[op]) for op in ops(made, label="reduce gradients")}
    assert of[2] == 4 * LAYERS * EXPERTS // 4 * 3 * HIDDEN * 32
    assert set(of) == {2, 8}


def test_a_ring_passes_keys_and_values_on():
    made = program(4, 3, parallel={"cp": 4})
    block = SEQ // 4 * KV_HEADS * 2 * DIM * 2
    one, both = ("send_recv", block), ("send_recv", 2 * block)
    assert table(made, "cp") == {one: (3 + 2) * LAYERS * 3, both: 2 * LAYERS * 3}  # back: block, both, both, gradient


def test_gathered_context_gathers_twice_and_scatters_once():
    made = program(4, 3, parallel={"cp": 4, "cp_type": "all_gather"})
    everywhere = SEQ * KV_HEADS * 2 * DIM * 2
    assert table(made, "cp") == {("all_gather", everywhere): 2 * LAYERS * 3, ("reduce_scatter", everywhere): LAYERS * 3}


def test_ulysses_exchanges_queries_keys_values_and_outputs():
    made = program(4, 3, parallel={"cp": 4, "cp_type": "ulysses"})
    inward = SEQ // 4 * (HEADS + 2 * KV_HEADS) * DIM * 2
    outward = SEQ // 4 * HEADS * DIM * 2
    assert table(made, "cp") == {("all_to_all", inward): 2 * LAYERS * 3, ("all_to_all", outward): 2 * LAYERS * 3}


def test_stages_send_hidden_states():
    made = program(4, 6, parallel={"pp": 4})
    sends = ops(made, kind="send_recv")
    assert len(sends) == 2 * 3 * 6
    assert {int(made.bytes[op]) for op in sends} == {STATES}
    split = program(4, 6, parallel={"pp": 2, "tp": 2})
    assert {int(split.bytes[op]) for op in ops(split, kind="send_recv")} == {STATES // 2}


def test_chunks_send_as_many_times_more():
    made = program(2, 4, parallel={"pp": 2}, schedule={"name": "interleaved", "vpp": 2})
    assert len(ops(made, kind="send_recv")) == 2 * 3 * 4


def test_a_tied_embedding_is_summed_over_both_ends():
    tied = {"tie_word_embeddings": True}
    made = program(2, 2, parallel={"pp": 2}, overrides=tied)
    (op,) = ops(made, label="tied embedding")
    assert (made.kind_of(op), int(made.bytes[op]), len(made.lanes_of[op])) == ("all_reduce", 4 * TABLE, 2)
    assert ops(program(2, 2, overrides=tied), label="tied embedding") == []
    together = program(2, 4, parallel={"pp": 2, "layers": [1, 1, 1, 1]}, schedule={"name": "zb-v"}, overrides=tied)
    assert ops(together, label="tied embedding") == []


def test_a_stage_without_layers_still_reduces_what_it_holds():
    made = program(4, 2, parallel={"pp": 2, "layers": [LAYERS, 0]})
    sums = Counter(made.tags["stage"][op] for op in ops(made, label="reduce gradients"))
    assert sums == {0: 1, 1: 1}
    total = sum(made.bytes[op] for op in ops(made, label="reduce gradients"))
    assert total == 4 * (LAYERS * LAYER + 2 * TABLE + HIDDEN)


def test_adapters_alone_have_weight_gradients():
    made = program(2, 2, lora={"rank": 4, "targets": ["qkv", "down"]})
    weights = Counter(labels(made)[op] for op in ops(made, kind="wgrad"))
    assert weights == {f"{of}_lora_{part}_wgrad": 2 * LAYERS for of in ("qkv", "down") for part in "ab"}
    width = DIM * (HEADS + 2 * KV_HEADS)
    adapters = 4 * (HIDDEN + width) + 4 * (128 + HIDDEN)
    assert sum(made.bytes[op] for op in ops(made, label="reduce gradients")) == 4 * LAYERS * adapters
    assert sum(made.bytes[op] for op in ops(made, label="gather weights")) == 2 * LAYERS * adapters
    split = program(2, 1, parallel={"tp": 2}, lora={"rank": 4})
    assert len(ops(split, label="tp reduce_scatter")) == 4 * LAYERS + 2


@pytest.mark.parametrize(("zero", "level"), [(2, "kernels"), (2, "coarse"), (3, "kernels")])
def test_without_overlap_nothing_is_computed_beside_gradients(zero, level):
    made = program(2, 1, parallel={"zero": zero}, overlap={"dp": False}, level=level)
    sums = ops(made, label="reduce gradients")

    lanes = [{made.lanes[lane].name for lane in made.lanes_of[op]} for op in sums]

    assert lanes == [{"dp", "compute"}] * len(sums)


def test_a_packed_base_is_gathered_packed():
    given = {"parallel": {"zero": 3}}
    wide, packed = (program(2, 2, **given, lora={"rank": 4} | base) for base in ({}, {"base": "nf4"}))
    matrices = HIDDEN * DIM * (2 * HEADS + 2 * KV_HEADS) + 3 * HIDDEN * 128
    sizes = [sum(made.bytes[op] for op in ops(made, kind="all_gather")) for made in (wide, packed)]
    gathers = len(ops(wide, kind="all_gather")) / LAYERS

    assert sizes[0] - sizes[1] == pytest.approx(gathers * LAYERS * matrices * (2 - 0.5625))


def test_linear_attention_passes_nothing_round_a_ring():
    made = program(2, 1, {"preset": "qwen3.5-27b", "overrides": {}}, parallel={"cp": 2})
    full = {int(made.tags["layer"][op]) for op in ops(made, label="attention")}
    assert {int(made.tags["layer"][op]) for op in ops(made, lane="cp")} == full
    assert len(full) == 16 + 1  # every fourth of 64, and the layer of multi-token prediction
