"""Steps of models with towers: what is sent, gathered, trained and refused."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.memory import static_bytes
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

from .steps import labels, ops

TEXT = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 128, "vocab_size": 512,
}  # fmt: skip
VISION = {
    "model_type": "clip_vision_model", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "image_size": 8, "patch_size": 2,
}  # fmt: skip
SEQ, PATCHES, IMAGES = 128, 17, 3
"""Of an image's 17 tokens, CLIP's own is not given to the text."""


def resolved(tower=None, **tables):
    """A step of a small model that sees three images in each sequence."""
    given = {
        "kind": "train_step", "cluster": {"base": "dgx-h100", "gpus_per_node": tables.pop("gpus", 4)},
        "model": {"config": {"model_type": "llava", "text_config": TEXT, "vision_config": VISION}},
        "batch": {"global": 8, "seq_len": SEQ}, "towers": {"vision": {"inputs": IMAGES} | (tower or {})},
    }  # fmt: skip
    return ResolvedTrain(check_train(given | tables))


def sent(step):
    program = step.program
    return {int(program.bytes[op]) for op in ops(program, kind="send_recv")}


def test_a_tower_lies_on_the_first_stage_beside_its_share_of_the_layers():
    step = resolved(parallel={"pp": 4})
    assert [len(stage.layers) for stage in step.plan.stages] == [3, 1, 1, 1]
    assert sent(step) == {SEQ * 64 * 2}


def test_stages_inside_a_tower_send_its_states_and_the_embedded_text():
    step = resolved(parallel={"pp": 4, "layers": (1, 1, 2, 2)})
    text, inside, behind = SEQ * 64 * 2, IMAGES * PATCHES * 32 * 2, IMAGES * (PATCHES - 1) * 64 * 2
    assert sent(step) == {text + inside, text + behind, text}


OVER_FOUR = {"pp": 4, "layers": (1, 1, 2, 2)}


def gradients_sent(step):
    """(from which rank, bytes) of the messages of the backward."""
    program, names = step.program, labels(step.program)
    backward = [op for op in ops(program, kind="send_recv") if names[op].startswith("backward")]
    return {(max(program.ranks_of(op)), int(program.bytes[op])) for op in backward}


def test_into_a_frozen_tower_go_the_gradients_of_its_projector_and_of_the_embedded_text():
    text, behind = SEQ * 64 * 2, IMAGES * (PATCHES - 1) * 64 * 2
    step = resolved({"frozen": True}, parallel=OVER_FOUR)
    assert gradients_sent(step) == {(1, text), (2, text + behind), (3, text)}


@pytest.mark.parametrize("level", ["kernels", "coarse"])
def test_with_adapters_nothing_goes_into_a_frozen_tower(level):
    step = resolved({"frozen": True}, parallel=OVER_FOUR, lora={"rank": 4}, level=level)
    assert gradients_sent(step) == {(3, SEQ * 64 * 2)}


def test_an_encoders_states_go_on_to_all_stages_of_the_decoder():
    config = {
        "model_type": "bart", "d_model": 64, "vocab_size": 512, "max_position_embeddings": 256,
        **{f"{stack}_{key}": size for stack in ("encoder", "decoder")
           for key, size in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 128))},
    }  # fmt: skip
    step = resolved(model={"config": config}, towers={"encoder": {"tokens": 32}}, gpus=3, parallel={"pp": 3})
    source, own = 32 * 64 * 2, SEQ * 64 * 2
    assert sent(step) == {source + own}


def gathers(step):
    return len(ops(step.program, "gather weights"))


def test_frozen_layers_are_gathered_once():
    trained, frozen = (resolved({"frozen": frozen}, parallel={"zero": 3}) for frozen in (False, True))
    assert gathers(trained) - gathers(frozen) == 2  # in two micro-batches the first layer; the second has a projector


@pytest.mark.parametrize("owner", ["gradients", "master weights", "optimizer moments"])
def test_frozen_parameters_have_no_states(owner):
    trained, frozen = (static_bytes(resolved({"frozen": of}, parallel={"zero": 0}), 0)[owner] for of in (False, True))
    step = resolved()
    layers = sum(step.plan.parameters_of(number).dense for number in range(2))
    projector = (32 + 1) * 64 + (64 + 1) * 64
    each = {"gradients": 4, "master weights": 4, "optimizer moments": 8}[owner]
    assert trained - frozen == each * (layers - projector)


@pytest.mark.parametrize(
    ("towers", "fault"),
    [
        ({"audio": {"inputs": 1}}, "towers = 'audio': llava has vision"),
        ({"vision": {"inputs": 40}}, "towers.vision.inputs = 40: at most 7: each gives 17 of the 128 tokens"),
    ],
)
def test_inputs_that_do_not_fit_are_told(towers, fault):
    with pytest.raises(UserError, match=fault):
        resolved(towers=towers).plan  # noqa: B018


def test_a_tower_without_inputs_is_not_there():
    assert resolved({"inputs": 0}).spec.towers == ()
