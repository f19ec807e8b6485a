"""Megatron-LM's log: a line per logged iteration, and the arguments that it prints when it starts.

A line gives the mean of the iterations since the line before. Its form is that of megatron/training/training.py.
"""

import re
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from ..lines import clean_line
from .log import NUMBER, SIGNED, Format, Line, number_of

_ITERATION = re.compile(rf"iteration\s+(\d+)\s*/\s*\d+.*?elapsed time per iteration \(ms\):\s*({SIGNED})(.*)")
_RATE = re.compile(rf"(?:throughput per GPU \(TFLOP/s/GPU\):|\|)\s*({NUMBER})\s*(?:\||$|MODEL_TFLOP/s/GPU)")
_BATCH = re.compile(r"global batch size:\s*(\d+)")
_BLOCK = re.compile(r"-+ arguments -+\s*\n(.*?)^[^\n]*- end of arguments -", re.DOTALL | re.MULTILINE)
_ARGUMENT = re.compile(r"(?:\S*:)?\s*([a-z]\w*) [.]* ?(.*)")
_VOCABULARY = re.compile(r"padded vocab \(size: (\d+)\)")
_TIMER = re.compile(rf"(?<!\S)([a-z][a-z0-9-]+) \.{{2,}}: \(({NUMBER}), ({NUMBER})\)")
_MEMORY = re.compile(rf"memory \(MB\) \| allocated: {NUMBER} \| max allocated: ({NUMBER}) \| reserved: {NUMBER}"
                     rf"(?: \| max reserved: ({NUMBER}))?")  # fmt: skip
_HEADER = re.compile(r"using world size:.*")
"""The line with which Megatron-LM starts, with or without its arguments."""
_MARKS = re.compile(r"using world size:|- arguments -|iteration\s+(\d+)\s*/\s*\d+.*?elapsed time per iteration")
_OF_HEADER = {
    "world_size": "world size", "dp": "data-parallel size", "cp": "context-parallel size",
    "tp": "tensor-model-parallel size", "pp": "pipeline-model-parallel size",
}  # fmt: skip
_SIZES = {
    "world_size": "world_size", "tensor_model_parallel_size": "tp", "context_parallel_size": "cp",
    "pipeline_model_parallel_size": "pp", "data_parallel_size": "dp", "expert_model_parallel_size": "ep",
    "virtual_pipeline_model_parallel_size": "vpp", "seq_length": "seq_len", "micro_batch_size": "micro_batch",
    "global_batch_size": "global_batch", "num_layers": "layers",
}  # fmt: skip


def _lines(text: str) -> dict[int, Line]:
    found = {}
    for line in text.splitlines():
        if match := _ITERATION.search(line):
            rate, batch = _RATE.search(match[3]), _BATCH.search(line)
            says: dict[str, float] = {"flop_per_s_per_gpu": number_of(rate[1]) * 1e12} if rate else {}
            says |= {"global_batch": int(batch[1])} if batch else {}
            found[int(match[1])] = Line(number_of(match[2]) / 1e3, says)
    return found


def read_facts(text: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Facts from the header, the arguments, and the lines of memory and timers; bytes and seconds."""
    header = _HEADER.search(text)
    line = header[0] if header else ""
    sizes = {fact: re.search(rf"(?<!encoder-){words}:\s*(\d+)", line) for fact, words in _OF_HEADER.items()}
    found: dict[str, Any] = {fact: int(match[1]) for fact, match in sizes.items() if match}
    found |= {fact: int(arguments[name]) for name, fact in _SIZES.items() if arguments.get(name, "").isdigit()}
    if arguments.get("virtual_pipeline_model_parallel_size") == "None":
        found["vpp"] = 1
    if precision := _computes_in(arguments):
        found["precision"] = precision
    if memory := _MEMORY.findall(text):
        found["memory_bytes"] = max(number_of(allocated) for allocated, _ in memory) * 2**20
        found["reserved_bytes"] = max(number_of(reserved or allocated) for allocated, reserved in memory) * 2**20
    timers: dict[str, list[float]] = {}  # of the slowest rank
    for match in _TIMER.finditer(text):
        timers.setdefault(match[1], []).append(number_of(match[3]) / 1e3)
    if timers:
        found["timers_s"] = {name: median(seconds) for name, seconds in timers.items()}
    return found


MEGATRON = Format("megatron_log", "Megatron-LM", _lines, _MARKS)


def read_arguments(text: str) -> dict[str, str]:
    """The block that Megatron-LM prints when it starts: `  seq_length ...... 4096`; the vocabulary stands behind it."""
    block = _BLOCK.search(text)
    lines = map(clean_line, block[1].splitlines()) if block else ()
    found = {match[1]: match[2] for match in map(_ARGUMENT.match, lines) if match}
    vocabulary = _VOCABULARY.search(text)
    if found and vocabulary and found.get("vocab_size", "None") == "None":
        found["vocab_size"] = vocabulary[1]
    return found


_TYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.uint8": "fp8"}
_NOTHING = ("None", "", "[]", "{}")
_REPEATED = (
    "encoder_num_layers", "encoder_seq_length", "virtual_pipeline_model_parallel_size", "data_parallel_size",
    "transformer_pipeline_model_parallel_size", "params_dtype", "main_params_dtype", "rank",
    "consumed_train_samples", "consumed_valid_samples",
)  # fmt: skip
_ON_BY_DEFAULT = ("add_bias_linear", "overlap_p2p_comm")
_OF_EXPERTS = ("moe_", "expert_model_", "expert_tensor_")
_OF_LATENTS = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")


def _computes_in(arguments: Mapping[str, str]) -> str | None:
    """The type of GEMMs, however 8 or 4 bits are scaled; None where nothing tells it: those of fp32 may be in tf32."""
    types = ("fp4", "fp8", "fp16", "bf16")
    return next((name for name in types if arguments.get(name, "None") not in (*_NOTHING, "False")), None)


def as_recipe(arguments: Mapping[str, str]) -> str:
    """Printed arguments as lines of `key: value`, which `recipes.read_recipe` reads."""
    given = {name: _TYPES.get(value, value) for name, value in arguments.items() if value not in _NOTHING}
    unused = set(_unused(given))
    return "".join(f"{name}: {value}\n" for name, value in given.items() if name not in unused)


def _unused(given: Mapping[str, str]) -> Iterator[str]:
    """Names of arguments that another one makes meaningless."""
    yield from _REPEATED
    yield from (name for name, value in given.items() if value == "False" and name not in _ON_BY_DEFAULT)
    if "num_experts" not in given:
        yield from (name for name in given if name.startswith(_OF_EXPERTS))
    if given.get("multi_latent_attention") != "True":
        yield from _OF_LATENTS
    if given.get("group_query_attention") != "True":
        yield "num_query_groups"
    if "fp8" not in given and "fp8_format" not in given:
        yield from (name for name in given if name.startswith("fp8_"))
    if given.get("optimizer_cpu_offload") != "True":
        yield "optimizer_offload_fraction"
