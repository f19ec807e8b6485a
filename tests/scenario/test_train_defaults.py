"""What a training scenario leaves blank is filled in by its software stack."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.memo import Memo
from runcast.simulator.profile import stack_defaults
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

STACK = """
schema = 2
base = "generic"

[defaults]
attention = "unfused"
precision = { gradients = "bf16" }
recompute = { mode = "selective", modules = ["layernorm"] }
overlap = { dp = false, params = false, tp = true }
experts = { dispatcher = "deepep" }
"""


@pytest.fixture
def step(tmp_path):
    (tmp_path / "ours.toml").write_text(STACK)

    def checked(**tables):
        table = {"kind": "train_step", "cluster": "dgx-h100", "stack": "ours.toml", "model": {"preset": "llama3-8b"},
                 "batch": {"global": 8, "seq_len": 4096}, **tables}  # fmt: skip
        (tmp_path / "step.toml").touch()
        return check_train(table, str(tmp_path / "step.toml"))

    return checked


def test_what_a_scenario_does_not_say_its_stack_says(step):
    found = step(parallel={"tp": 2})
    said = found.attention, found.precision.gradients, found.overlap.dp, found.overlap.tp
    assert said == ("unfused", "bf16", False, True)


def test_what_a_scenario_says_stands(step):
    found = step(precision={"gradients": "fp32", "compute": "fp16"}, overlap={"dp": True}, attention="flash")
    assert (found.precision.gradients, found.overlap.dp, found.attention) == ("fp32", True, "flash")


@pytest.mark.parametrize(
    ("tables", "table", "key"),
    [
        ({"parallel": {"zero": 3}}, "overlap", "params"),
        ({"parallel": {"tp": 1}}, "overlap", "tp"),
        ({"parallel": {"tp": 2, "sequence_parallel": False}}, "overlap", "tp"),
        ({"recompute": {"mode": "full"}}, "recompute", "modules"),
        ({"parallel": {"ep": 1}}, "experts", "dispatcher"),
        ({"parallel": {"tp": 4, "tp_2d": True}}, "overlap", "tp"),
        ({"parallel": {"zero": 0}, "overlap": {"fusion": {}}}, "overlap", "dp"),
    ],
)
def test_a_default_that_would_say_nothing_is_not_said(step, tables, table, key):
    assert key not in getattr(step(**tables), table).model_fields_set


def test_keys_of_a_hugging_face_config_may_stand_in_the_scenario():
    keys = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256}  # fmt: skip
    table = {"kind": "train_step", "cluster": "dgx-h100", "batch": {"global": 8, "seq_len": 64}}
    resolved = ResolvedTrain(check_train({**table, "model": {"config": keys}}))
    assert (resolved.spec.num_hidden_layers, resolved.spec.hidden_size) == (2, 64)


def test_unfused_attention_is_no_default_where_scores_are_split(step):
    assert step(parallel={"cp": 2}).attention == "flash"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a": 'base = "b.toml"', "b": 'base = "a.toml"'}, "rests on itself"),
        ({"a": 'base = "b.toml"\n[defaults]\nbucket = {n = 1}', "b": "[defaults]\nbucket = 3"}, "defaults.bucket ="),
    ],
)
def test_what_is_wrong_with_stacks_is_one_line(tmp_path, files, said):
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(f"schema = 2\n{text}\n")
    with pytest.raises(UserError, match=said) as caught:
        stack_defaults(str(tmp_path / "a.toml"))
    assert len(caught.value.faults) == 1


def test_predictions_that_share_a_memo_differ_by_their_attention():
    table = {"kind": "train_step", "cluster": "dgx-h100", "batch": {"global": 8, "seq_len": 4096}, "level": "coarse",
             "model": {"preset": "llama3-8b", "overrides": {"num_hidden_layers": 2}}}  # fmt: skip
    memo = Memo()
    steps = [check_train({**table, "attention": name}) for name in ("flash", "flash-2")]
    flash, older = (ResolvedTrain(step, memo=memo).costs.work_s.sum() for step in steps)
    assert older > flash


def test_other_kernels_of_attention_stay_a_default_where_sequences_are_split():
    table = {"kind": "train_step", "cluster": "dgx-h100", "batch": {"global": 8, "seq_len": 4096}}
    more = {"stack": "torchtitan", "model": {"preset": "llama3-8b"}, "parallel": {"cp": 2}}
    assert check_train(table | more).attention == "flash-2"


@pytest.mark.parametrize(("stack", "tp", "words"), [
    ("generic", 8, 50257), ("torchtitan", 8, 50257), ("megatron-lm", 1, 50304), ("megatron-lm", 8, 51200),
    ("nemo", 2, 50432), ("megatron-deepspeed", 1, 50304),
])  # fmt: skip
def test_megatron_pads_the_vocabulary(step, stack, tp, words):
    """To a multiple of 128 on each rank (--make-vocab-size-divisible-by); 51,200 of GPT-3 are 50,257 on eight."""
    found = step(stack=stack, parallel={"tp": tp}, model=GPT2_WORDS)
    assert (found.parallel.pad_vocab, padded(found)) == (1 if words == 50257 else 128, words)


def test_a_vocabulary_that_is_padded_already_stays(step):
    found = step(stack="megatron-lm", parallel={"tp": 8}, model={"config": CONFIG | {"vocab_size": 51200}})
    assert padded(found) == 51200


CONFIG = {"hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 4096}
GPT2_WORDS = {"config": CONFIG | {"vocab_size": 50257}}


def padded(scenario):
    """The vocabulary that the ranks of a step hold."""
    return ResolvedTrain(scenario).plan.spec.vocab_size
