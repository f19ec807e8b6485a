"""Logs of training runs as step times: lines of Megatron-LM, of Megatron Bridge, of torchtitan.

The first three lines are warm-up, or the first half of fewer than six; the step is the median of the others. A line of
Megatron-LM gives the mean of the iterations since the line before. Lines whose time is not above zero are left out.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ...base.errors import UserError
from .run import Run, list_steps

WARM_UP = 3
_NUMBER = r"\d+(?:\.\d+)?"
_SIGNED = rf"-?{_NUMBER}"
_THOUSANDS = r"\d[\d,]*(?:\.\d+)?"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ITERATION = re.compile(rf"iteration\s+(\d+)\s*/\s*\d+.*?elapsed time per iteration \(ms\):\s*({_SIGNED})(.*)")
_RATE = re.compile(rf"(?:throughput per GPU \(TFLOP/s/GPU\):|\|)\s*(?P<tflops>{_NUMBER})\s*(?:\||$|MODEL_TFLOP/s/GPU)")
_BATCH = re.compile(r"global batch size:\s*(?P<batch>\d+)")
_BRIDGE = re.compile(
    rf"Step Time\s*:\s*({_SIGNED})\s*s\b.*?GPU utilization:\s*(?P<tflops>{_NUMBER})\s*MODEL_TFLOP/s/GPU"
)
_TITAN = re.compile(
    rf"\bstep:\s*(\d+)\s+loss:.*?memory:\s*(?P<gib>{_NUMBER})GiB.*?tps:\s*(?P<tps>{_THOUSANDS})"
    rf"(?:.*?tflops:\s*(?P<tflops>{_THOUSANDS}))?"
)
_SAYS: dict[str, tuple[str, float]] = {
    "tflops": ("flop_per_s_per_gpu", 1e12), "batch": ("global_batch", 1), "tps": ("tokens_per_s_per_gpu", 1.0),
    "gib": ("memory_bytes", 2.0**30),
}  # fmt: skip
"""What the named groups of a line say, and their units."""
_CLOCK = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[,.](\d{1,6})")
_BLOCK = re.compile(r"-+ arguments -+\n(.*?)-+ end of arguments -+", re.DOTALL)
_ARGUMENT = re.compile(r"^(?:\S*:)?[ \t]*([a-z]\w*) [.]* ?(.*?)[ \t\r]*$", re.MULTILINE)
_VOCABULARY = re.compile(r"padded vocab \(size: (\d+)\)")
_TIMER = re.compile(rf"^\s*([a-z][a-z0-9-]+) \.{{2,}}: \(({_NUMBER}), ({_NUMBER})\)")
_MEMORY = re.compile(rf"memory \(MB\) \| allocated: {_NUMBER} \| max allocated: ({_NUMBER}) \| reserved: {_NUMBER}"
                     rf"(?: \| max reserved: ({_NUMBER}))?")  # fmt: skip
_HEADER = re.compile(r"using world size:.*")
_OF_HEADER = {
    "world_size": "world size", "dp": "data-parallel size", "cp": "context-parallel size",
    "tp": "tensor-model-parallel size", "pp": "pipeline-model-parallel size",
}  # fmt: skip
"""The line with which Megatron-LM starts, with or without its arguments."""
_SIZES = {
    "world_size": "world_size", "tensor_model_parallel_size": "tp", "context_parallel_size": "cp",
    "pipeline_model_parallel_size": "pp", "data_parallel_size": "dp", "expert_model_parallel_size": "ep",
    "virtual_pipeline_model_parallel_size": "vpp", "seq_length": "seq_len", "micro_batch_size": "micro_batch",
    "global_batch_size": "global_batch", "num_layers": "layers",
}  # fmt: skip


class Line(NamedTuple):
    """A step as the log tells it: seconds, and what else its line says."""

    seconds: float
    says: Mapping[str, float]


def read_log(path: Path, text: str, step: int | None) -> Run:
    """The run of a log; a UserError if no line tells the time of a step, or not that of the step asked for."""
    plain = _COLOUR.sub("", text)
    for form, find in _FORMS.items():
        if lines := find(plain):
            return _run(path, form, lines, plain, step)
    raise UserError(f"{path}: is neither a trace (JSON) nor a log with lines such as `elapsed time per iteration (ms)`")


def _run(path: Path, form: str, lines: Mapping[int, Line], text: str, step: int | None) -> Run:
    steps = {number: line for number, line in lines.items() if line.seconds > 0}
    if not steps:
        raise UserError(f"{path}: tells of {len(lines)} steps, but of none a time above zero")
    numbers = list(steps)
    if step is not None and step not in steps:
        raise UserError(f"{path}: holds no step {step}; it has {list_steps(numbers)}")
    warm_up = min(WARM_UP, len(numbers) // 2)
    counted = numbers[warm_up:] if step is None else [step]
    arguments = _arguments(text)
    return Run(
        path=path,
        form=form,
        steps=tuple(numbers),
        steps_s=tuple(steps[number].seconds for number in numbers),
        step_s=median(steps[number].seconds for number in counted),
        facts=_facts(arguments, text, steps, [steps[number].says for number in counted]),
        notes=tuple(_notes(form, numbers, warm_up, step, len(lines) - len(steps))),
        arguments=_as_recipe(arguments) if arguments else None,
    )


def _notes(form: str, numbers: Sequence[int], warm_up: int, step: int | None, left_out: int) -> Iterator[str]:
    if step is None and warm_up:
        yield f"steps {', '.join(map(str, numbers[:warm_up]))} are warm-up"
    if len(numbers) == 1:
        yield "one step only: it is likely warm-up"
    if left_out:
        yield f"{left_out} {'lines tell' if left_out > 1 else 'line tells'} no time above zero: left out"
    if form == "torchtitan_log":
        yield "seconds of a step are those between the times of two lines over the steps between them"


def _megatron(text: str) -> dict[int, Line]:
    found = {}
    for line in text.splitlines():
        if match := _ITERATION.search(line):
            says = _says(_RATE.search(match[3]), _BATCH.search(line))
            found[int(match[1])] = Line(float(match[2]) / 1e3, says)
    return dict(sorted(found.items()))


def _titan(text: str) -> dict[int, Line]:
    """Steps between the clocks of two lines; the first line has no step before it."""
    found: dict[int, Line] = {}
    before: tuple[int, datetime] | None = None
    for line in text.splitlines():
        match, clock = _TITAN.search(line), _CLOCK.search(line)
        if not match or not clock:
            continue
        number, now = int(match[1]), datetime.fromisoformat(f"{clock[1]} {clock[2]}.{clock[3]:0<6}")
        if before and number > before[0]:
            found[number] = Line((now - before[1]).total_seconds() / (number - before[0]), _says(match))
        before = (number, now) if before is None or number > before[0] else before
    return found


_FORMS: Mapping[str, Callable[[str], dict[int, Line]]] = {
    "megatron_log": _megatron,
    "megatron_bridge_log": lambda text: {
        number: Line(float(match[1]), _says(match)) for number, match in enumerate(_BRIDGE.finditer(text), 1)
    },
    "torchtitan_log": _titan,
}
"""How the steps of a log are found, by form."""


def _says(*matches: re.Match[str] | None) -> dict[str, float]:
    """The values of the named groups of a line, in SI units."""
    texts = {name: text for match in matches if match for name, text in match.groupdict().items() if text}
    units = {name: _SAYS[name] for name in texts}
    return {fact: type(unit)(texts[name].replace(",", "")) * unit for name, (fact, unit) in units.items()}


def _facts(
    arguments: Mapping[str, str], text: str, steps: Mapping[int, Line], counted: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Facts from the header, arguments and other lines, and medians over the lines of counted steps.

    Tokens are known where the file says both the batch and the length of sequences.
    """
    header = _HEADER.search(text)
    line = header[0] if header else ""
    sizes = {fact: re.search(rf"(?<!encoder-){words}:\s*(\d+)", line) for fact, words in _OF_HEADER.items()}
    found: dict[str, Any] = {fact: int(match[1]) for fact, match in sizes.items() if match}
    found |= {fact: int(arguments[name]) for name, fact in _SIZES.items() if arguments.get(name, "").isdigit()}
    if arguments.get("virtual_pipeline_model_parallel_size") == "None":
        found["vpp"] = 1
    memory = _MEMORY.findall(text)
    if memory:
        found["memory_bytes"] = max(float(allocated) for allocated, _ in memory) * 2**20
        found["reserved_bytes"] = max(float(reserved or allocated) for allocated, reserved in memory) * 2**20
    timers: dict[str, list[float]] = {}  # of the slowest rank
    for match in filter(None, map(_TIMER.match, text.splitlines())):
        timers.setdefault(match[1], []).append(float(match[3]) / 1e3)
    if timers:
        found["timers_s"] = {name: median(seconds) for name, seconds in timers.items()}
    names = sorted({name for line in counted for name in line})
    found |= {name: median(line[name] for line in counted if name in line) for name in names}
    batches = [step.says["global_batch"] for step in steps.values() if "global_batch" in step.says]
    if batches and (length := arguments.get("seq_length", "")).isdigit():
        found["tokens"] = int(batches[-1]) * int(length)
    return found


def _arguments(text: str) -> dict[str, str]:
    """The block that Megatron-LM prints when it starts: `  seq_length ...... 4096`; the vocabulary stands behind it."""
    block = _BLOCK.search(text)
    found = dict(_ARGUMENT.findall(block[1])) if block else {}
    vocabulary = _VOCABULARY.search(text)
    if found and vocabulary and found.get("vocab_size", "None") == "None":
        found["vocab_size"] = vocabulary[1]
    return found


_TYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.uint8": "fp8"}
_NOTHING = ("None", "", "[]", "{}")
_REPEATED = (
    "encoder_num_layers", "encoder_seq_length", "virtual_pipeline_model_parallel_size", "data_parallel_size",
    "transformer_pipeline_model_parallel_size", "params_dtype", "main_grads_dtype", "main_params_dtype", "rank",
    "consumed_train_samples", "consumed_valid_samples",
)  # fmt: skip
_ON_BY_DEFAULT = ("add_bias_linear", "overlap_p2p_comm")
_OF_EXPERTS = ("moe_", "expert_model_", "expert_tensor_")
_OF_LATENTS = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")


def _as_recipe(arguments: Mapping[str, str]) -> str:
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
