"""What a trainer on Hugging Face models says of a step, and how it shares the model over GPUs without DeepSpeed.

Without FSDP too it is DistributedDataParallel, which holds the whole model on each GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .arguments import Arguments, Machine

Tables = dict[str, dict[str, Any]]
"""Tables of a scenario by their names."""

HALF = ("bf16", "fp16")
TRAINER_MICRO = 8  # per_device_train_batch_size of transformers' TrainingArguments
WITHIN_SAMPLES = "attention spans whole sequences here; batch.documents says how long packed samples are"
WEIGHTS_STAY = "weights stay on the GPUs: in host memory they leave room, and gathers take longer"


@dataclass(frozen=True)
class Training:
    """A step by a trainer's own keys, whoever shares the model over the GPUs.

    `micro` sequences of `seq_len` tokens go through a replica at once, `accumulation` times per step; None is what the
    file leaves open. `lean`: weights, gradients and moments are in the type of the model, in 16 bits. `axes` are those
    of `[parallel]`, with `cp_type`; `more` is what goes into a scenario as it is: tables and keys.

    `total` sequences of a step may be given in place of `accumulation`, and `chunk` layers of each stage of a pipeline,
    whose number of stages `rounds_up`, or down, to a multiple of the ranks. `at_once` sequences of a replica go through
    the pipeline before it is emptied; None is all of them.
    `reduce` is the type in which gradients travel where that is not the one of computation. `towers` is what each tower
    of the model says; None where the file has text alone.
    """

    seq_len: int
    micro: int | None
    accumulation: int | None
    compute: str | None
    lean: bool = False
    moments: str = "fp32"
    axes: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    total: int | None = None
    chunk: int | None = None
    rounds_up: bool = False
    at_once: int | None = None
    reduce: str | None = None
    towers: Mapping[str, Any] | None = None

    @property
    def is_half(self) -> bool:
        """Whether weights are gathered, and gradients made, in 16 bits."""
        return self.compute not in ("fp32", "tf32")


def share_by_ddp(training: Training) -> Tables:
    """DistributedDataParallel: gradients are reduced in the type in which they are kept, beside the last backward."""
    return {"parallel": {"zero": 0}, "precision": _types(training)}


def has_fsdp(args: Arguments) -> bool:
    """Whether the file asks for FSDP: by the distributed_type of accelerate's config, else by its own keys."""
    kind = args.choice("distributed_type", "", ("", "NO", "MULTI_GPU", "FSDP", "DEEPSPEED"))
    if kind:
        return kind == "FSDP"
    return args.gives("fsdp") or args.has("dp_shard_size") or args.has_section("fsdp_config")


def let_fsdp_decide(args: Arguments) -> None:
    """Let the key `fsdp` alone ask for FSDP: transformers reads fsdp_config beside it only (training_args.py)."""
    asks = args.gives("fsdp")
    if not asks and args.has_section("fsdp_config"):
        args.assumed.append("fsdp_config has no effect without fsdp; accelerate's own config may ask for FSDP")
    args.imply("distributed_type", "FSDP" if asks else "NO")


def share_by_fsdp(args: Arguments, training: Training, machine: Machine, ranks: int, replicas: int) -> Tables:
    """FSDP as accelerate sets it up, over `ranks` of dp and cp, of which `replicas` groups hold the model each.

    Gradients of a step's micro-batches are added up before they are reduced, unless `sync_each_batch` (transformers'
    trainer.py: no_sync). They travel in the type of computation (accelerate's utils/dataclasses.py: reduce_dtype), and
    those of 16 bits are added up so, too, by FSDP 1 and 2 (torch's _FSDPParam: no copy where both types are one).
    """
    zero, reshard, per_node = _strategy(args)
    parallel: dict[str, Any] = {"zero": zero}
    if zero == 3:
        parallel["reshard"] = reshard
        if (training.accumulation or 1) > 1 and not args.switch("sync_each_batch"):
            parallel["sync_each_microbatch"] = False
        parallel |= _backward_prefetch(args)
        if replicas > 1:
            parallel["shard"] = ranks // replicas
        elif per_node and ranks % machine.gpus_per_node == 0 and ranks > machine.gpus_per_node:
            parallel["shard"] = machine.gpus_per_node
    found: Tables = {"parallel": parallel, "precision": _types(training)}
    if training.is_half and not training.lean:
        found["precision"]["reduce"] = "bf16"
    if training.reduce:
        found["precision"]["reduce"] = training.reduce
    if parallel.get("sync_each_microbatch") is False and found["precision"]["reduce"] == "bf16":
        found["precision"]["gradients"] = "bf16"
    if args.switch("fsdp_config.offload_params") or "offload" in args.texts("fsdp"):
        found["offload"] = {"optimizer": True}
        args.not_modelled.append(f"{args.spelling('fsdp_config.offload_params')}: {WEIGHTS_STAY}")
    if args.switch("fsdp_config.activation_checkpointing"):
        found["recompute"] = {"mode": "full", "early_stop": True}
    return found


def _backward_prefetch(args: Arguments) -> dict[str, Any]:
    """How far a backward gathers ahead; FSDP 2 has its own way (accelerate 1, utils/dataclasses.py).

    BACKWARD_POST gathers behind the gradients of a layer, which hides as little as no gather ahead (NO_PREFETCH).
    """
    name = "fsdp_config.backward_prefetch"
    policy = args.choice(name, "BACKWARD_PRE", ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH", "1", "2"))
    if args.has(name) and args.whole("fsdp_version") == 2:
        args.assumed.append(f"{args.spelling(name)} has no effect with fsdp_version 2")
        return {}
    return {} if policy in ("BACKWARD_PRE", "1") else {"prefetch_backward": 0}


FSDP_STRATEGIES = {
    "FULL_SHARD": (3, True, False),
    "SHARD_GRAD_OP": (3, False, False),
    "HYBRID_SHARD": (3, True, True),
    "HYBRID_SHARD_ZERO2": (3, False, True),
    "_HYBRID_SHARD_ZERO2": (3, False, True),
    "NO_SHARD": (0, False, False),
}
"""torch's names: (zero, whether weights are dropped after the forward, whether copies are per node)."""
_NUMBERED = ("", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")


def _strategy(args: Arguments) -> tuple[int, bool, bool]:
    """By FSDP's own key, in words or by its number, or a word of Trainer's `fsdp`; FSDP2 says it by resharding.

    With FSDP 1 accelerate also takes the strategy as `reshard_after_forward`.
    """
    key, policy = "fsdp_config.sharding_strategy", "fsdp_config.reshard_after_forward"
    words = [word.upper() for word in (*args.texts(policy), *args.texts("fsdp")) if word.upper() in FSDP_STRATEGIES]
    if (number := args.text(key)).isdigit() and 1 <= int(number) < len(_NUMBERED):
        name = _NUMBERED[int(number)]
    else:
        name = args.choice(key, words[0] if words else "FULL_SHARD", FSDP_STRATEGIES)
    zero, reshard, per_node = FSDP_STRATEGIES[name]
    return zero, reshard if args.text(policy).upper() in FSDP_STRATEGIES else args.switch(policy, reshard), per_node


def _types(training: Training) -> dict[str, Any]:
    """Types in which gradients, moments and weights are kept outside DeepSpeed."""
    if not training.lean:
        return {"moments": training.moments, "reduce": "fp32"}
    moments = "bf16" if training.moments == "fp32" else training.moments
    return {"gradients": "bf16", "reduce": "bf16", "moments": moments, "master": False}
