"""An embedding whose rows lie on data-parallel ranks: what travels, what is not reduced, what is held, by hand."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.profile.forms import BUS_FACTOR
from runcast.simulator.systems.train_step.memory import static_bytes

from .steps import DENSE, HIDDEN, LAYER, LAYERS, SEQ, TABLE, makespan, ops, program, resolved

ROWS = ("rows of tokens", "gradients of rows")


def test_rows_of_all_tokens_travel_and_their_gradients_come_back():
    made = program(4, 3, parallel={"shard_embedding": True})
    found = [op for label in ROWS for op in ops(made, label=label)]
    assert [made.kind_of(op) for op in found] == ["all_to_all"] * 6
    assert {made.groups[made.group[op]] for op in found} == {(0, 1, 2, 3)}
    sent = {BUS_FACTOR["all_to_all"](4.0) * made.bytes[op] for op in found}
    assert sent == {SEQ * HIDDEN * 2 * 3 / 4}  # T h e (N - 1) / N


def test_a_rank_of_a_tensor_group_sends_what_lies_in_its_words():
    made = program(8, parallel={"tp": 2, "cp": 2, "shard_embedding": True})
    (op,) = ops(made, label=ROWS[0])
    assert (made.groups[made.group[op]], made.bytes[op]) == ((0, 2, 4, 6), SEQ / 2 / 2 * HIDDEN * 2)


def test_its_gradient_is_not_reduced():
    made = program(4, parallel={"shard_embedding": True, "zero": 0})
    reduced = sum(made.bytes[op] for op in ops(made, label="reduce gradients"))
    assert reduced == 4 * (LAYERS * LAYER + TABLE + HIDDEN)


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_its_states_are_held_once(zero):
    whole = static_bytes(resolved(4, parallel={"zero": zero}), 0)
    split = static_bytes(resolved(4, parallel={"zero": zero, "shard_embedding": True}), 0)
    saved = {name: whole[name] - split[name] for name in ("weights", "gradients", "master weights")}
    sharded = {"weights": False, "gradients": zero == 2, "master weights": zero >= 1}
    each = {"weights": 2, "gradients": 4, "master weights": 4}
    assert saved == {name: 0 if sharded[name] else each[name] * TABLE * 3 / 4 for name in saved}


def test_a_rank_updates_its_own_rows():
    owned = [program(4, parallel={"zero": 0, "shard_embedding": split}) for split in (False, True)]
    whole, split = (int(made.bytes[ops(made, kind="grad_norm")[0]]) for made in owned)
    assert whole - split == 4 * TABLE * 3 // 4


def test_the_exchanges_lie_between_look_up_and_layers():
    seconds = {"embed": 1.0, ROWS[0]: 2.0, "input_norm": 4.0, ROWS[1]: 8.0, "embed_backward": 16.0}
    assert makespan(program(4, parallel={"shard_embedding": True}), seconds) == 1 + 2 + 4 * LAYERS + 8 + 16


@pytest.mark.parametrize(
    ("tables", "line"),
    [
        ({"overrides": {"tie_word_embeddings": True}}, "its embedding, and is read whole: not with tied embeddings"),
        ({"parallel": {"zero": 3}}, "zero = 3 shards and gathers the embedding already: 0 to 2"),
        ({"parallel": {"pp": 2}, "schedule": {"name": "dualpipe"}}, "each stage lies on two ranks"),
    ],
)
def test_what_it_does_not_go_with(tables, line):
    parallel = {**tables.pop("parallel", {}), "shard_embedding": True}
    with pytest.raises(UserError, match=rf"parallel.shard_embedding = True: .*{line}"):
        assert resolved(4, 4, DENSE, parallel=parallel, **tables).plan
