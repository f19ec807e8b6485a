"""From a script of slime, which trains with Megatron-LM and rolls out with SGLang, to a step and a weight update."""

import re
from collections.abc import Mapping
from typing import Any

from ...models import ModelSpec, preset
from .additions import Additions
from .arguments import Arguments, Machine
from .finetuning import read_adapters
from .hugging_face import find_model
from .layers import GATED_DELTA
from .megatron import read_megatron
from .model_names import last_part, preset_of
from .reinforcement import (
    ADAPTERS_ALONE,
    LOG_PROBABILITIES,
    Engines,
    Lengths,
    align,
    describe_update,
    fit_micro,
    is_in_eight_bits,
    spread_attention,
)
from .shapes import Shape

_SFT = ("sft_loss",)
_SIXTEEN_BITS = re.compile(r"bf16|bfloat16|fp16", re.IGNORECASE)
_FOUR_BITS = re.compile(r"int4|w4a16|awq|gptq|fp4", re.IGNORECASE)


def read_slime(
    args: Arguments, machine: Machine, additions: Additions
) -> tuple[dict[str, Any], Mapping[str, Any] | None, dict[str, Any] | None]:
    """The step that the arguments write, the model's config where it is no preset, and the update; faults are noted."""
    if args.choice("train_backend", "megatron", ("megatron", "fsdp")) == "fsdp":
        args.fault("train_backend", "expected megatron: slime on FSDP is not read")
        args.check()
    shape = _model(args, additions.model)
    _imply(args)
    _imply_batch(args, machine, additions.seq_len)
    args.check()
    table, config = read_megatron(args, machine, shape)
    table |= _adapters(args)
    if _rolls_out(args):
        args.not_modelled.append(LOG_PROBABILITIES)
    if args.text("advantage_estimator") == "ppo":
        args.not_modelled.append(
            f"{args.spelling('advantage_estimator')} ppo: the critic's own step takes as long again"
        )
    if reason := _why_no_update(args):
        args.assumed.append(f"no weight update: {reason}")
        return table, config, None
    return table, config, _update(args, machine, table)


def _model(args: Arguments, stated: str | None) -> Shape | None:
    """The model of `--model`, or of the checkpoint's name if arguments do not say another one; None where they say it.

    Scripts compute some arguments of a model in loops, which a name says too.
    """
    if stated:
        return find_model(args, "hf_checkpoint", stated)
    checkpoint = args.hint("hf_checkpoint")
    found = preset_of(checkpoint)
    if found is not None and _agrees(args, preset(found)):
        args.assumed.append(f"model.preset = {found}: the shape of {last_part(checkpoint)}, by its name")
        return find_model(args, "hf_checkpoint", found)
    if not args.has("num_layers"):
        args.fault("hf_checkpoint", "no preset goes by this name, and no arguments say the sizes; give --model")
        args.check()
    return None


def _agrees(args: Arguments, spec: ModelSpec) -> bool:
    """Whether the sizes that the arguments say are the model's."""
    sizes = {"num_layers": spec.num_hidden_layers, "hidden_size": spec.hidden_size}
    return all(args.whole(name, size) == size for name, size in sizes.items())


def _imply(args: Arguments) -> None:
    """What slime gives to Megatron-LM itself (backends/megatron_utils/arguments.py)."""
    for name in ("use_distributed_optimizer", *(() if args.switch("fp16") else ("bf16",))):
        if not args.has(name):
            args.imply(name, "true")
    if args.text("moe_token_dispatcher_type", "allgather") == "allgather":
        args.imply("moe_token_dispatcher_type", "alltoall")
    if args.has("linear_attention_freq") and not args.has("experimental_attention_variant"):
        args.imply("experimental_attention_variant", GATED_DELTA)  # by the plug-in that --spec names


def _adapters(args: Arguments) -> dict[str, Any]:
    if not args.switch("use_lora"):
        return {}
    targets = "lora_target_modules"
    args.require("lora_rank", "the rank of the adapters")
    if not args.has(targets):
        named = args.text("lora_target_preset", "no modules are given")
        args.assumed.append(f"lora.targets = all GEMMs of a layer: {named}")
        return {"lora": {"rank": args.whole("lora_rank")}}
    return {"lora": read_adapters(args, "lora_rank", targets, all_linear=False)}


def _imply_batch(args: Arguments, machine: Machine, stated: int | None) -> None:
    tp, cp, pp = (args.whole(f"{axis}_parallel_size") for axis in ("tensor_model", "context", "pipeline_model"))
    dp = max(machine.gpus // (tp * cp * pp), 1)
    packed = args.optional("max_tokens_per_gpu") if args.switch("use_dynamic_batch_size") else None
    sequence = align(stated or _sequence(args, packed, cp), tp, cp)
    total = _total(args)
    args.imply("seq_length", sequence, "rollout lengths")
    if not args.has("max_position_embeddings"):
        args.imply("max_position_embeddings", sequence)
    args.imply("global_batch_size", total, args.spelling("global_batch_size"))
    if packed is not None:
        micro = fit_micro(args, total, dp, Lengths(sequence, packed * cp), "max_tokens_per_gpu")
        args.imply("micro_batch_size", micro, args.spelling("max_tokens_per_gpu"))
    elif not args.has("micro_batch_size"):
        args.imply("micro_batch_size", 1)


def _sequence(args: Arguments, packed: int | None, cp: int) -> int:
    """Tokens of the longest sequence that the lengths allow."""
    context, prompt, answer = (args.optional(f"rollout_max_{part}_len") for part in ("context", "prompt", "response"))
    if context:
        args.assumed.append(f"batch.seq_len = {context}: every sequence is as long as rollouts allow")
        return context
    if answer:
        both = answer + (prompt or 0)
        prompts = "" if prompt else "; no length of prompts is given, and they count as none"
        args.assumed.append(f"batch.seq_len = {both}: every answer is as long as rollouts allow{prompts}")
        return both
    length = args.optional("seq_length") or (packed or 0) * cp
    if not length:
        args.note_missing("rollout_max_response_len", "the longest answer, or give --seq-len")
        return 1
    args.assumed.append(f"batch.seq_len = {length}: sequences fill what a GPU may hold")
    return length


def _total(args: Arguments) -> int:
    """Sequences of an optimizer's step."""
    if args.has("global_batch_size"):
        return args.whole("global_batch_size")
    answers = args.require("rollout_batch_size", "prompts of a rollout") * args.whole("n_samples_per_prompt")
    steps = args.whole("num_steps_per_rollout")
    args.assumed.append(f"batch.global = {answers // steps}: {answers} answers of a rollout in {steps} steps")
    return max(answers // steps, 1)


def _rolls_out(args: Arguments) -> bool:
    return args.text("loss_type") not in _SFT and not args.switch("debug_train_only")


def _why_no_update(args: Arguments) -> str:
    """Why there is no weight update to write; empty where there is one."""
    if not _rolls_out(args):
        return "nothing is rolled out"
    if args.switch("use_lora"):
        return ADAPTERS_ALONE
    if args.text("update_weight_mode") == "delta":
        return "only what changed is sent, and nothing says how much that is"
    if args.has("rollout_external_engine_addrs") or not (args.switch("colocate") or _rollout(args)):
        return "nothing says on how many GPUs engines run (--rollout-num-gpus)"
    if args.switch("colocate") and args.text("update_weight_transport") == "disk":
        return "engines on the trainer's GPUs read from a file system, which no method here does"
    return ""


def _rollout(args: Arguments) -> int:
    """GPUs that engines have for themselves."""
    return args.whole("rollout_num_gpus", 0, minimum=0)


def _engine_axes(args: Arguments, experts: bool) -> tuple[int, int]:
    """tp and ep of an engine of SGLang, which may have copies of attention (layers/dp_attention.py).

    With some ways to send tokens to experts, ep is tp whatever else is said (srt/server_args.py).
    """
    gpus, copies = args.whole("rollout_num_gpus_per_engine"), args.whole("sglang_dp_size")
    sends = args.text("sglang_moe_a2a_backend", "none") != "none"
    dealt = sends or any(map(args.switch, ("sglang_enable_deepep_moe", "sglang_enable_ep_moe")))
    ep = gpus if experts and dealt else args.whole("sglang_ep_size")
    if copies == 1 or not args.switch("sglang_enable_dp_attention"):
        return gpus, ep
    if experts:
        return spread_attention(args, gpus, copies, ep, "sglang_dp_size")
    args.not_modelled.append(f"{args.spelling('sglang_dp_size')} {copies}: attention is split over all its GPUs")
    return gpus, ep


def _update(args: Arguments, machine: Machine, step: Mapping[str, Any]) -> dict[str, Any]:
    """On the trainers' GPUs, through a file system, or broadcast by the head of each pipeline stage."""
    disk = args.text("update_weight_transport") == "disk"
    apart = not args.switch("colocate")
    tp, ep = _engine_axes(args, experts=bool(step["experts"]))
    update: dict[str, Any] = {"method": "file_system" if disk else "stage_heads"}
    if not apart:
        update = {"method": "colocated", "messages": "bucket"}
    if not disk and (bucket := args.optional("update_weight_buffer_size")):  # else 512 MiB, as by default here
        update["bucket"] = bucket
    checkpoint = last_part(args.hint("hf_checkpoint"))
    in_eight_bits = "fp8" in args.hint("hf_checkpoint").lower() or is_in_eight_bits(step["model"])
    if in_eight_bits and not _SIXTEEN_BITS.search(checkpoint):
        update["quantize"] = "before"  # as the checkpoint's own quantization_config says
    elif _FOUR_BITS.search(checkpoint):
        why = "engines take weights in 4 bits: packing takes time, and a quarter of the bytes travel"
        args.not_modelled.append(f"{args.spelling('hf_checkpoint')}: {why}")
    engines = Engines(tp, ep, _rollout(args) if apart else None)
    return describe_update(step, machine, engines, update, "slime")
