"""The vocabulary of a recipe that gives none: that of its tokenizer (data/recipes/tokenizers.toml), or a usual one."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from ...base.files import read_toml
from ...models import preset, preset_names
from .arguments import Arguments, loose
from .model_names import preset_of

_GPT2, _WORD_PIECE = "GPT2BPETokenizer", "BertWordPieceLowerCase"
_USUAL = "llama3"  # of tokenizers since 2024 most have 128k to 152k tokens


def stated_vocabulary(args: Arguments) -> int | None:
    """Tokens that the arguments give."""
    return args.optional("padded_vocab_size") or args.optional("vocab_size")


def tokenizer_vocabulary(args: Arguments) -> int | None:
    """Tokens of the tokenizer, with a note of whose they are; None where the arguments do not tell.

    A fault is noted where the tokenizer has no tokens of its own.
    """
    model, kind = args.hint("tokenizer_model"), _kind(args)
    sizes = {name.lower(): size for name, size in _table("types").items()}
    if not kind and is_bert(args):
        return _note(args, _table("types")[_WORD_PIECE], f"that of {_WORD_PIECE}, pretrain_bert.py's")
    if kind == "NullTokenizer":
        args.note_missing("vocab_size", "the number of tokens, which NullTokenizer leaves open")
    elif (named := _find_by_name(model)) is not None:
        return _note(args, named, f"that of the tokenizer {model}")
    elif kind.lower() in sizes:
        return _note(args, sizes[kind.lower()], f"that of {kind}")
    elif not kind and args.has("vocab_file"):
        return _note(args, _table("types")[_GPT2], f"that of {_GPT2}, pretrain_gpt.py's for a vocabulary with merges")
    return None


def is_t5(args: Arguments) -> bool:
    """Whether these are arguments of pretrain_t5.py: by its name, or sizes of a decoder behind an encoder."""
    return "pretrain_t5" in args.hint("program") or args.has("decoder_num_layers") or args.has("decoder_seq_length")


def is_bert(args: Arguments) -> bool:
    """Whether these are arguments of pretrain_bert.py: by its name, or a vocabulary of WordPiece, without merges."""
    if is_t5(args):
        return False
    named = "pretrain_bert" in args.hint("program") or args.has("bert_no_binary_head")
    words = not _kind(args) and args.has("vocab_file") and not args.has("merge_file")
    return named or words or _kind(args).startswith("BertWordPiece")


def usual_vocabulary(args: Arguments) -> int:
    """Tokens to assume where neither the tokenizer nor the model's shape tells, with a note of whose they are."""
    named = args.hint("tokenizer_model") or _kind(args)
    if not named:
        return _note(args, _table("types")[_GPT2], f"that of {_GPT2}, pretrain_gpt.py's where no tokenizer is given")
    why = f"that of Llama 3, as {named} is not known; --set vocab-size=TOKENS gives another"
    return _note(args, _table("models")[_USUAL], why)


def _kind(args: Arguments) -> str:
    return args.hint("tokenizer_type") or args.hint("tokenizer_library")


def _note(args: Arguments, tokens: int, whose: str) -> int:
    args.assumed.append(f"vocab_size = {tokens}: {whose}")
    return tokens


def _find_by_name(tokenizer: str) -> int | None:
    """Tokens of the model that the tokenizer's name is, or of the preset or family with the longest name in it."""
    if (known := preset_of(tokenizer)) is not None:
        return preset(known).vocab_size
    sizes = _sizes_by_name()
    named = [name for name in sizes if name in loose(tokenizer)]
    return sizes[max(named, key=len)] if named else None


@cache
def _sizes_by_name() -> Mapping[str, int]:
    """Tokens of families and of presets, by names in small letters and digits."""
    return dict(_table("models")) | {loose(name): preset(name).vocab_size for name in preset_names()}


@cache
def _table(section: str) -> Mapping[str, int]:
    table: Mapping[str, int] = read_toml(files("runcast.data") / "recipes" / "tokenizers.toml")[section]
    return table
