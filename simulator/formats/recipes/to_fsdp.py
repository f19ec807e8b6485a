"""From a training scenario to the YAML of Hugging Face's trainer, which sets FSDP up through accelerate.

Keys are those of transformers' TrainingArguments and of TRL's SFTConfig and ModelConfig (`trl sft --config FILE`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ...base.errors import UserError, fault
from ...models import ModelSpec
from ...program.parallel import ORDER
from ...systems.train_step.resolve import ResolvedTrain
from ...systems.train_step.scenario import TrainScenario
from .model_names import id_of

_KERNELS = {"flash": "flash_attention_3", "flash-2": "flash_attention_2", "unfused": "eager"}
_MODULES = {"proj": "o_proj", "down": "down_proj"}
_COMPUTE = {"fp32": {"bf16": False}, "tf32": {"bf16": False, "tf32": True}, "bf16": {"bf16": True}}
_COMPUTES: Mapping[str, Mapping[str, bool]] = {**_COMPUTE, "fp16": {"bf16": False, "fp16": True}}
_ONE = ("tp", "cp", "pp", "ep")

REASONS: Mapping[str, str] = {
    "lora.targets": "PEFT has an adapter of each module: name modules (q_proj, up_proj, ...), or all-linear",
    "model.mtp": "multi-token prediction is not trained",
    "parallel.zero": "FSDP shards weights, gradients and states (3), or nothing is sharded (0)",
    "parallel.shard": "copies are whole, or of a node each",
    "parallel.prefetch": "how far ahead weights are gathered is FSDP's",
    "parallel.prefetch_backward": "backwards gather as far ahead as forwards, or not at all (0)",
    "parallel.shard_embedding": "FSDP shards the embedding as all weights",
    "parallel.pad_vocab": "the vocabulary is not padded",
    "parallel.sync_each_microbatch": "gradients of the only micro-batch are reduced at once",
    "precision.reduce": "gradients travel in the type of computation under FSDP, and as they are kept without it",
    "precision.gradients": "gradients have the type of the weights; "
    "those that are summed until the last micro-batch have the type in which they are reduced",
    "precision.moments": "moments have the type of the weights, or 8 bits",
    "precision.master": "the weights that are kept are those of the optimizer",
    "precision.activations": "inputs are kept as the software has it",
    "recompute.mode": "whole layers are recomputed, or nothing",
    "recompute.modules": "whole layers are recomputed, or nothing",
    "recompute.layers": "all layers are recomputed, or none",
    "offload.activations": "activations stay on the device",
    "offload.optimizer": "FSDP offloads weights with the optimizer",
    "overlap.dp": "gradients are reduced beside the backward",
    "overlap.wgrad": "weight gradients are not held back",
    "overlap.fusion": "buckets of gradients wait for no tick",
    "bucket": "each layer is a unit; DistributedDataParallel has torch's own buckets",
    "experts.capacity": "experts take all tokens that are sent to them",
    "schedule.name": "there is no pipeline",
}
"""Why Hugging Face's trainer does not do what a scenario says, by key."""


def write(asked: ResolvedTrain, spec: ModelSpec) -> list[str]:
    """The arguments with which the trainer trains as the scenario says, or nearly so.

    A UserError if no arguments say this model, these axes or this type; one line each.
    """
    import yaml

    scenario = asked.scenario
    if faults := list(_impossible(scenario, asked.where)):
        raise UserError(*faults)
    batch, name = scenario.batch, id_of(scenario.model.preset or "")
    table: dict[str, Any] = {
        "model_name_or_path": name,
        "attn_implementation": _KERNELS[scenario.attention],
        "max_length": batch.seq_len,
        "packing": True,
        "per_device_train_batch_size": batch.micro,
        "gradient_accumulation_steps": batch.global_ // (batch.micro * asked.dims.dp),
        **_COMPUTES[scenario.precision.compute],
        **_types(scenario),
        **_recompute(scenario),
        "use_liger_kernel": scenario.loss == "fused" and not scenario.memory.logits,
        **({"loss_type": "nll"} if scenario.loss == "passes" else {}),
        **_adapters(scenario),
        **(_sharding(scenario) if scenario.parallel.zero else {}),
    }
    return str(yaml.safe_dump(table, sort_keys=False)).strip().splitlines()


def _impossible(scenario: TrainScenario, where: str) -> Iterator[str]:
    p, model = scenario.parallel, scenario.model
    if id_of(model.preset or "") is None or model.overrides:
        said = f"{model.preset or 'a config'}{' with overrides' * bool(model.overrides)}"
        yield f"{where}: model: no model of Hugging Face is known by the name of {said}"
    for axis in _ONE:
        if (size := getattr(p, axis)) > 1:
            yield fault(
                where, f"parallel.{axis}", size, "expected 1: only data parallelism is written, with FSDP or without"
            )
    if scenario.attention not in _KERNELS:
        yield fault(where, "attention", scenario.attention, f"the trainer has {', '.join(_KERNELS)}")
    if p.order != ORDER:
        yield fault(where, "parallel.order", p.order, f"expected {ORDER}")
    if scenario.freeze is not None:
        yield f"{where}: freeze: the trainer's file trains all layers"
    for name in (name for name, tower in scenario.towers.items() if tower.frozen and scenario.lora is None):
        yield f"{where}: towers.{name}.frozen: the trainer's file trains all of the model"
    if scenario.precision.compute not in _COMPUTES:
        yield fault(where, "precision.compute", scenario.precision.compute, f"the trainer has {', '.join(_COMPUTES)}")


def _types(scenario: TrainScenario) -> dict[str, Any]:
    precision, frozen = scenario.precision, scenario.lora is not None
    lean = not precision.master and precision.gradients == "bf16" and not frozen
    return {
        **({"dtype": "bfloat16"} if lean else {}),
        "optim": "adamw_bnb_8bit" if precision.moments == "fp8" else "adamw_torch_fused",
    }


def _recompute(scenario: TrainScenario) -> dict[str, Any]:
    again = scenario.recompute
    if again.mode != "full":
        return {"gradient_checkpointing": False}
    return {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": not again.early_stop},
    }


def _adapters(scenario: TrainScenario) -> dict[str, Any]:
    if (lora := scenario.lora) is None:
        return {}
    modules = [_MODULES.get(target, target) for target in lora.targets]
    packed = {"load_in_4bit": True, "use_bnb_nested_quant": lora.base == "nf4-double"} if lora.base else {}
    return {"use_peft": True, "lora_r": lora.rank, "lora_target_modules": modules, **packed}


def _sharding(scenario: TrainScenario) -> dict[str, Any]:
    """FSDP; the nearest to ZeRO 1 and 2 keeps the weights that it has gathered until the backward ends."""
    p = scenario.parallel
    reshard = p.reshard and p.zero == 3
    config: dict[str, Any] = {"fsdp_version": 2, "reshard_after_forward": reshard}
    if p.shard is not None or p.prefetch_backward == 0:  # words of FSDP 1
        strategy = f"{'HYBRID_SHARD' if p.shard is not None else 'FULL_SHARD'}"
        config = {"fsdp_version": 1, "sharding_strategy": strategy, "reshard_after_forward": reshard}
        config |= {"backward_prefetch": "BACKWARD_POST"} if p.prefetch_backward == 0 else {}
    accumulates = {"accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}}}
    return {
        "fsdp": f"{'full_shard' if p.zero == 3 else 'shard_grad_op'} auto_wrap",
        "fsdp_config": config,
        **(accumulates if p.sync_each_microbatch and p.zero > 1 else {}),
    }
