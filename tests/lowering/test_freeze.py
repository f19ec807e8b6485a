"""Steps of which a part is frozen: what is computed, kept, sent, gathered, reduced and refused."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.systems.train_step.memory import static_bytes

from .steps import HIDDEN, LAYER, LAYERS, MOE, TABLE, labels, ops, program, resolved, run, seconds

FIRST_TWO = {"layers": 2, "embedding": True}
ENDS = {"embedding": True, "head": True}


def count(label, **tables):
    return len(ops(program(1, 1, **tables), label=label))


@pytest.mark.parametrize(
    ("freeze", "inputs", "weights"),
    [
        (None, LAYERS, LAYERS),
        ({"layers": 3}, LAYERS, 1),
        ({"layers": 3, "embedding": True}, 1, 1),
        ({"layers": -1, "embedding": True}, 1, 1),
        ({"layers": "3"}, LAYERS, LAYERS - 1),
        ({"layers": "0,2-", "embedding": True}, LAYERS - 1, 1),
        ({"layers": "all", "head": True}, LAYERS, 0),
        ({"layers": "all", "embedding": True}, 0, 0),
    ],
)
def test_layers_before_all_that_is_trained_have_no_backward(freeze, inputs, weights):
    step = {"freeze": freeze} if freeze else {}
    assert (count("down_dgrad", **step), count("down_wgrad", **step)) == (inputs, weights)


def test_what_layers_without_a_backward_keep_is_not_offloaded():
    made = program(1, 8, freeze=FIRST_TWO, offload={"activations": 0.5, "slots": 1}, schedule={"name": "gpipe"})
    moved = [*ops(made, label="offload"), *ops(made, label="onload")]
    assert set(made.tags["layer"][moved].tolist()) == {2, 3}


def test_the_head_passes_gradients_without_weights_of_its_own():
    made = program(1, 1, freeze={"head": True})
    assert [len(ops(made, label=f"logits_{of}")) for of in ("dgrad", "wgrad")] == [1, 0]


def test_tokens_go_to_experts_only_where_layers_work():
    """Two exchanges of a layer's forward; two of a backward, where gradients pass."""
    made = [program(2, 1, MOE, parallel={"ep": 2}, freeze=freeze) for freeze in (FIRST_TWO, {"layers": 2})]
    assert [len(ops(one, kind="all_to_all")) for one in made] == [2 * LAYERS + 2 * 2, 2 * 2 * LAYERS]


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_gradients_are_reduced_after_the_backward_that_gives_them(zero):
    made = run(program(2, 2, parallel={"zero": zero}, freeze={"layers": "all", "embedding": True}), seconds(1, 2, 1))
    sent, computed = (ops(made.program, label=label) for label in ("reduce gradients", "logits_wgrad"))
    assert made.start_s[sent].min() >= made.end_s[computed[0 if zero > 1 else -1]]


def test_layers_without_a_backward_are_not_computed_again():
    recomputed = {"recompute": {"mode": "full"}}
    assert count("down", **recomputed, freeze=FIRST_TWO) == LAYERS + 2


@pytest.mark.parametrize("level", ["kernels", "coarse"])
@pytest.mark.parametrize(
    ("freeze", "stages"), [(FIRST_TWO, {2}), ({"layers": 2}, {0, 1, 2}), ({"layers": "all", "embedding": True}, set())]
)
def test_stages_send_no_gradients_back_to_where_nothing_is_trained(level, freeze, stages):
    made = program(4, 1, parallel={"pp": 4}, freeze=freeze, level=level)
    sent = set(labels(made)[ops(made, kind="send_recv")])
    assert {name for name in sent if name.startswith("backward")} == {f"backward to {stage}" for stage in stages}


@pytest.mark.parametrize(
    ("freeze", "learned"),
    [
        ({"layers": 3}, LAYER + 2 * TABLE + HIDDEN),
        ({"layers": "1-", "head": True}, LAYER + TABLE),
        ({"layers": "all", "embedding": True}, TABLE + HIDDEN),
        ({"layers": 1, **ENDS}, 3 * LAYER),
    ],
)
def test_states_are_those_of_what_is_trained(freeze, learned):
    found = static_bytes(resolved(1, 1, parallel={"zero": 0}, freeze=freeze), 0)
    whole = LAYERS * LAYER + 2 * TABLE + HIDDEN
    assert [found[name] for name in ("weights", "gradients", "optimizer moments")] == [
        2 * whole,
        4 * learned,
        8 * learned,
    ]


def reduced(**tables):
    made = program(2, 1, **tables)
    return sum(int(made.bytes[op]) for op in ops(made, label="reduce gradients"))


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_gradients_are_reduced_of_what_is_trained(zero):
    assert reduced(parallel={"zero": zero}, freeze={"layers": 3, **ENDS}) == 4 * LAYER


@pytest.mark.parametrize("overlapped", [True, False])
def test_an_embedding_beside_a_frozen_layer_is_reduced_where_each_tensor_is_a_message(overlapped):
    given = {"bucket": "tensor", "freeze": {"layers": 2}, "overlap": {"dp": overlapped}}
    learned = 2 * LAYER + 2 * TABLE + HIDDEN
    assert reduced(**given) == pytest.approx(4 * learned, abs=20)  # a message has whole bytes


def test_experts_are_frozen_with_their_layers():
    found = [static_bytes(resolved(2, 1, MOE, parallel={"ep": 2, "zero": 0}, freeze=freeze), 0)["gradients"]
             for freeze in (None, {"layers": 2})]  # fmt: skip
    assert found[1] == pytest.approx(found[0] - 2 * (found[0] - 4 * (2 * TABLE + HIDDEN)) / LAYERS)


def test_frozen_weights_are_gathered_for_a_backward_only_where_gradients_pass():
    gathers = [len(ops(program(2, 1, parallel={"zero": 3}, freeze=freeze), label="gather weights"))
               for freeze in (None, {"layers": 2}, FIRST_TWO)]  # fmt: skip
    assert gathers == [gathers[0], gathers[0], gathers[0] - 2]


def test_nothing_is_summed_over_tp_for_frozen_norms():
    frozen = {"parallel": {"tp": 2}, "freeze": {"layers": "all", "head": True}}
    assert ops(program(2, 1, **frozen), label="replicated gradients") == []


def test_new_weights_in_8_bits_are_those_of_trained_layers():
    """Embedding and head stay in 16 bits, of which the embedding is trained."""
    given = {
        "parallel": {"zero": 1},
        "precision": {"compute": "fp8", "weights": "fp8"},
        "freeze": {"layers": 3, "head": True},
    }
    made = program(2, 1, **given)
    assert sum(int(made.bytes[op]) for op in ops(made, label="gather weights")) == LAYER + 2 * TABLE


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ({"freeze": {"layers": 5}}, r"freeze.layers = 5: at most the 4 of llama3-8b"),
        ({"freeze": {"layers": "2-4"}}, r"freeze.layers = '2-4': of llama3-8b's layers, 0 to 3"),
        ({"freeze": {"layers": "3-1"}}, r"freeze.layers = '3-1': of llama3-8b's layers, 0 to 3"),
        (
            {"freeze": {"layers": "first"}},
            r"freeze.layers = 'first': .*expected how many of the first, numbers such as",
        ),
        ({"freeze": {"layers": True}}, r"freeze.layers = True: .*expected how many"),
        ({"freeze": {"layers": "all", **ENDS}}, r"freeze: freezes all of llama3-8b; expected something"),
        ({"freeze": FIRST_TWO, "lora": {"rank": 4}}, r"freeze: goes without lora"),
        (
            {"freeze": FIRST_TWO, "overrides": {"tie_word_embeddings": True}},
            r"freeze.head = False: true, as freeze.embed",
        ),
    ],
)
def test_what_cannot_be_frozen(tables, line):
    with pytest.raises(UserError, match=line):
        resolved(1, 1, **tables).plan  # noqa: B018
