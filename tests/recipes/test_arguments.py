"""The text of a recipe as arguments: shell fragments, YAML-like lines and JSON, none of it run."""

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import parse_recipe
from runcast.simulator.formats.recipes.forms import read_arguments


def values(text):
    return {argument.name: argument.values for argument in read_arguments(text, "x")}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("--num-layers 80", {"num_layers": ("80",)}),
        ("--num-layers=80 --bf16", {"num_layers": ("80",), "bf16": ()}),
        ("python x.py \\\n  --bf16 \\\n  --lr 1e-4", {"program": ("x.py",), "bf16": (), "lr": ("1e-4",)}),
        ("# --fp16 \\\n--bf16 # half", {"bf16": ()}),
        ("TP=8\n--tp $TP", {"tp": ("8",)}),
        ("--tp ${TP:-4}", {"tp": ("4",)}),
        ("TP=2; TP=${TP}; --tp ${TP}", {"tp": ("2",)}),
        ("--tp $((4 * 2)) --bf16", {"tp": ("8",), "bf16": ()}),
        ("--tp `nproc --all` --bf16", {"tp": ("`nproc --all`",), "bf16": ()}),
        ("--tp $(cat $(ls x | head)) --bf16", {"tp": ("$(cat $(ls x | head))",), "bf16": ()}),
        ("A=(--bf16 --lr 1)\nrun ${A[@]}", {"bf16": (), "lr": ("1",)}),
        ('A="--bf16 \\\n --lr 1"\nrun $A --pp 2 | tee x', {"bf16": (), "lr": ("1",), "pp": ("2",)}),
        ("--layout 'E|(t)*3|L' --path 0.5 a", {"layout": ("E|(t)*3|L",), "path": ("0.5", "a")}),
        ("set -e; python -m x --bf16", {"bf16": ()}),
        ("--min -1 --x", {"min": ("-1",), "x": ()}),
        ("num_layers: 80\nbf16: true # yes\nlr: null", {"num_layers": ("80",), "bf16": ("true",)}),
        ("model:\n  num_layers: '80'\n  modules: [a, b]", {"num_layers": ("80",), "modules": ("a", "b")}),
        ("--position-embedding-type: none\nlr: Null", {"position_embedding_type": ("none",)}),
        ("MODEL_ARGS:\n  --position-embedding-type: none", {"position_embedding_type": ("none",)}),
        ("--num-layers: 80\nNCCL_DEBUG: INFO", {"num_layers": ("80",)}),
        ("# --x is not meant: no\n--bf16: true\nRUN: |\n  x --lr 1", {"bf16": ("true",)}),
        ("ENV_VARS:\n  TP: 4\nMODEL_ARGS:\n  --tp: ${TP}\n  --pp: ${PP:-2}", {"tp": ("4",), "pp": ("2",)}),
        ('A=("--bf16" "--lr 1" \'--split "9,1"\')\nrun "${A[@]}"', {"bf16": (), "lr": ("1",), "split": ("9,1",)}),
        ("TOKENIZER_MODEL=a/b\nARGS='--bf16'", {"bf16": (), "tokenizer_model": ("a/b",)}),
        ("model.num_layers=80\n++trainer.bf16=true", {"num_layers": ("80",), "bf16": ("true",)}),
        ('{"model": {"num_layers": 80, "lr": null}, "m": ["a", "b"]}', {"num_layers": (80,), "m": ("a", "b")}),
    ],
)
def test_forms(text, found):
    assert values(text) == found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "x: holds no arguments; expected arguments"),
        ("hello world", "x: holds no arguments"),
        ("--save 'a", "x: is not a shell fragment: no closing quotation"),
        ('{"a": ', "x: is not JSON: Expecting value"),
    ],
)
def test_what_is_no_recipe_is_one_line(text, line):
    with pytest.raises(UserError, match=line) as caught:
        read_arguments(text, "x")
    assert len(caught.value.faults) == 1


def test_nothing_is_run(tmp_path):
    mark = tmp_path / "mark"
    values(f"--tp $(touch {mark}) --pp `touch {mark}`\nX=$(touch {mark})\n--ep $X; touch {mark}")

    assert not mark.exists()


@example("a.:1")
@given(st.text(alphabet="-abT=$(){}[]:'\"\\\n #;|&`,. 1", max_size=60))
def test_any_text_is_read_or_refused(text):
    with suppress(UserError):
        assert all(argument.name for argument in read_arguments(text, "x"))


def test_an_argument_that_is_left_blank_is_told():
    lines = ["num-layers: 4", "hidden-size: 128", "num-attention-heads: 4", "seq-length: 128", "vocab-size: 512"]
    batch = [
        "micro-batch-size: 1",
        "global-batch-size: 8",
        "num-experts: 8",
        "bf16: true",
        "expert-model-parallel-size:",
    ]
    text = "MODEL_ARGS:\n" + "".join(f"  --{line}\n" for line in (*lines, *batch))
    blank = "expert-model-parallel-size has no value: it is read as if it were not there"
    assert blank in parse_recipe(text, "model_config.yaml", "dgx-h100").assumed
    assert blank not in parse_recipe(text.replace("size:\n", "size: null\n"), "a.yaml", "dgx-h100").assumed
