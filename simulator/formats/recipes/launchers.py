"""Scripts that start a trainer whose plan is in another file: which file to give in place of the script."""

import re

from ...base.errors import UserError

_OF_MEGATRON = re.compile(r"--(num-layers|hidden-size)\b|\bpretrain_\w+\.py\b")
_TITAN = re.compile(r"torchtitan\.train\b|--job\.config[-_]file\b|\bCONFIG_FILE=")
_ACCELERATE = re.compile(r"\baccelerate\s+launch\b")
_SFT_OF_VERL = re.compile(r"\bverl[./]trainer[./](fsdp_)?sft_trainer\w*")
_DEEPSPEED = re.compile(r"--deepspeed(_config)?[= ]+\S+\.json\b|(^|\s)deepspeed\s[^\n]*\.py\b", re.MULTILINE)


def check_launcher(text: str, where: str) -> None:
    """Raise UserError for a script that starts torchtitan, accelerate, DeepSpeed or verl's SFT; one line."""
    joined = re.sub(r"\\\r?\n", " ", text)
    if _OF_MEGATRON.search(joined):
        return
    if found := _SFT_OF_VERL.search(joined):
        raise UserError(f"{where}: starts {found[0]}, which is not read: of verl's trainers main_ppo is")
    if _TITAN.search(joined):
        file = _find(joined, "toml")
        raise UserError(f"{where}: starts torchtitan; give its config in place of the script: {file}")
    if _ACCELERATE.search(joined):
        file = _find(joined, "yaml", "yml")
        raise UserError(
            f"{where}: starts a trainer by accelerate; give the trainer's own file, and {file} by --accelerate"
        )
    if _DEEPSPEED.search(joined):
        file = _find(joined, "json")
        raise UserError(f"{where}: starts a trainer by DeepSpeed; give {file} with --model and --seq-len")


def _find(text: str, *suffixes: str) -> str:
    """The first file with such a name, or what it is."""
    found = re.search(rf"[\w./-]+\.({'|'.join(suffixes)})\b", text)
    return found[0] if found else f"its .{suffixes[0]} file"
