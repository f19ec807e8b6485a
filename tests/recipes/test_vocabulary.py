"""The vocabulary of a recipe that gives none."""

import tomllib
from pathlib import Path

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import read_recipe
from runcast.simulator.formats.recipes.arguments import loose
from runcast.simulator.models import preset, preset_names

TABLE = tomllib.loads((Path(__file__).parents[2] / "data/recipes/tokenizers.toml").read_text())
TINY = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --micro-batch-size 1 --bf16 "


@pytest.fixture
def read(tmp_path):
    def recipe(text):
        (tmp_path / "r.sh").write_text(text)
        return read_recipe(tmp_path / "r.sh", "dgx-h100")

    return recipe


@pytest.mark.parametrize(
    ("more", "size", "note"),
    [
        ("--vocab-size 1000", 1000, None),
        ("--tokenizer-type NullTokenizer --vocab-size 131073", 131073, None),
        ("--tokenizer-type GPT2BPETokenizer", 50257, "that of GPT2BPETokenizer"),
        ("--vocab-file v.json --merge-file m.txt", 50257,
         "that of GPT2BPETokenizer, pretrain_gpt.py's for a vocabulary with merges"),
        ("", 50257, "that of GPT2BPETokenizer, pretrain_gpt.py's where no tokenizer is given"),
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model $D/tokenizer.model", 32000, "that of Llama2Tokenizer"),
        ("--tokenizer-type TikTokenizer --tokenizer-model $T", 131072, "that of TikTokenizer"),
        ("--tokenizer-library sentencepiece --tokenizer-model ${D}/nemotron_2_256k.model", 256000,
         "that of the tokenizer ${D}/nemotron_2_256k.model"),
        ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model unsloth/Meta-Llama-3.1-8B", 128256,
         "that of the tokenizer unsloth/Meta-Llama-3.1-8B"),
        ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen2.5-72B", 152064,
         "that of the tokenizer Qwen/Qwen2.5-72B"),
        ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen2.5-Coder-7B-Instruct", 152064,
         "that of the tokenizer Qwen/Qwen2.5-Coder-7B-Instruct"),
        ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model $T", 128256,
         "that of Llama 3, as $T is not known; --set vocab-size=TOKENS gives another"),
    ],
)  # fmt: skip
def test_the_vocabulary_and_whose_it_is(read, more, size, note):
    recipe = read(TINY + more)
    said = [line for line in recipe.assumed if line.startswith("vocab_size")]

    assert (recipe.config["vocab_size"], said) == (size, [f"vocab_size = {size}: {note}"] if note else [])


def test_the_shape_of_a_preset_tells_the_vocabulary_of_a_tokenizer_without_a_name(read):
    shape = (
        "--num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32 --kv-channels 128 "
        "--group-query-attention --num-query-groups 4 --swiglu --normalization RMSNorm --disable-bias-linear "
        "--position-embedding-type rope --untie-embeddings-and-output-weights --qk-layernorm --num-experts 128 "
        "--moe-router-topk 8 --moe-ffn-hidden-size 768 --seq-length 4096 --micro-batch-size 1 --bf16 "
    )
    recipe = read(shape + "--tokenizer-type HuggingFaceTokenizer")

    assert recipe.table["model"] == {"preset": "qwen3-30b-a3b"}
    assert "vocab_size = 151936: that of preset qwen3-30b-a3b, which has this shape" in recipe.assumed


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ("--swiglu", r"--swiglu = .*: not read of BERT, which .* without --merge-file"),
        ("--normalization RMSNorm", r"--normalization = 'RMSNorm': expected one of layernorm"),
        ("; torchrun pretrain_gpt.py", r"--vocab-file = 'vocab\.txt': without --merge-file it is of WordPiece"),
    ],
)
def test_a_vocabulary_of_word_pieces_is_no_decoders(read, more, line):
    with pytest.raises(UserError, match=line):
        read(f"{TINY}--vocab-file vocab.txt {more}")


def test_a_tokenizer_that_tells_no_vocabulary_is_refused(read):
    with pytest.raises(UserError, match="--vocab-size: is missing; expected the number of tokens, which NullTok"):
        read(TINY + "--tokenizer-type NullTokenizer")


def test_the_table_agrees_with_the_presets():
    parts = {name: [part for part in TABLE["models"] if part in loose(name)] for name in preset_names()}
    large = ("qwen2.5-7b", "qwen2.5-14b", "qwen2.5-32b", "qwen2.5-72b", "qwen2.5-vl-7b")  # 128 more rows than others
    large += ("qwen2.5-vl-32b", "qwen2.5-vl-72b")
    large += ("gemma3-4b", "gemma3-12b", "gemma3-27b")  # 64 more for images
    sizes = ("llama-30b", "megatron-gpt-22b")  # 30b and 22b look like versions, and a preset's own name counts first
    sizes += ("deepseek-r1-distill-qwen-1.5b",)  # so it does here: Qwen's tokens
    sizes += ("nemotron-3-8b", "nemotron-3-22b")  # of 2023: other tokens than Nemotron 3 Nano's
    wrong = {
        name: preset(name).vocab_size
        for name, found in parts.items()
        if found and name not in large + sizes and TABLE["models"][max(found, key=len)] != preset(name).vocab_size
    }

    assert wrong == {}
