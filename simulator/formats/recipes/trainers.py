"""Recipes of trainers on Hugging Face models as scenarios: Axolotl, LLaMA-Factory, TRL, NeMo AutoModel, DeepSpeed.

A trainer says what a step is (`Training`); DeepSpeed, FSDP or DistributedDataParallel say how GPUs share it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...base.errors import UserError
from ...base.files import MOST_SETTINGS, read_text
from ...models.shard import ALL_LINEAR
from ...program.parallel import ParallelDims
from ...systems.train_step.checks import indivisible
from . import deepspeed
from .additions import Additions
from .arguments import Arguments, Machine
from .automodel import read_automodel
from .axolotl import read_axolotl
from .finetuning import fit_adapters
from .forms import is_json
from .hugging_face import find_model
from .llamafactory import read_llamafactory
from .recipe import Recipe
from .shapes import Shape
from .tables import find_file, read_table, to_arguments
from .training import Tables, Training, has_fsdp, share_by_ddp, share_by_fsdp
from .trl import read_trl


@dataclass(frozen=True)
class TrainerForm:
    """A form of recipes: the pattern of a key that it cannot do without, and what reads it.

    `model_key` names its model. `read` takes its arguments and tokens of a sequence in place of the file's.
    """

    name: str
    mark: str
    model_key: str
    read: Callable[[Arguments, int | None], Training]
    is_json: bool = False


_DEEPSPEED = r'"(zero_optimization|train_(micro_)?batch_size(_per_gpu)?)"\s*:|"(bf16|fp16)"\s*:\s*\{'
_NAMED = r"^model_name_or_path\s*:"
_TRL = (
    "(torch_)?dtype|attn_implementation|datasets|dataset_(name|config|text_field|train_split)|use_peft|lora_r|load_in_4bit"
    "|packing_strategy|(assistant|completion)_only_loss|max_(prompt|completion)_length|num_generations|use_vllm|beta"
)
"""Keys that TRL's scripts have and LLaMA-Factory has not."""
_FORMS = (
    TrainerForm("axolotl", r"^base_model\s*:", "base_model", read_axolotl),
    TrainerForm("trl", rf"^max_(seq_)?length\s*:|(?s:\A(?=.*{_NAMED}).*^({_TRL})\s*:)", "model_name_or_path", read_trl),
    TrainerForm("llamafactory", _NAMED, "model_name_or_path", read_llamafactory),
    TrainerForm("automodel", r"nemo_automodel\.|^step_scheduler\s*:", "model.name", read_automodel),
    TrainerForm("deepspeed", _DEEPSPEED, "--model", deepspeed.read_alone, is_json=True),
)
TRAINERS = {form.name: form for form in _FORMS}
"""Forms of recipes that are read here, by name."""
_SIZES = {
    "parallel.tp": ("tensor_parallel_size", "tensor_parallel.autotp_size"),
    "parallel.cp": ("context_parallel_size", "sequence_parallel_size"),
    "parallel.pp": ("pipeline.stages", "pipeline_parallel_size"),
    "parallel.ep": ("expert_parallel_size",),
    "parallel.etp": ("tensor_parallel_size", "tensor_parallel.autotp_size"),
    "batch.seq_len": ("sequence_len", "cutoff_len", "seq_len", "max_length"),
    "batch.global": ("step_scheduler.global_batch_size",),
}
STACK = "transformers"
_PLUGIN_STAGE = 2  # zero_stage of accelerate's DeepSpeedPlugin


@dataclass(frozen=True)
class Files:
    """The arguments of a recipe's files: its own, DeepSpeed's, and accelerate's.

    DeepSpeed's are the same object as its own if the recipe is DeepSpeed's.
    """

    own: Arguments
    zero: Arguments | None
    launcher: Arguments | None

    @property
    def all(self) -> list[Arguments]:
        """Those of each file, once."""
        return list(dict.fromkeys(filter(None, (self.own, self.zero, self.launcher))))

    def check(self) -> None:
        """Raise UserError with a line for each fault that was noted in a file."""
        if faults := [line for source in self.all for line in source.faults]:
            raise UserError(*dict.fromkeys(faults))

    def account(self) -> dict[str, tuple[str, ...]]:
        """What became of every argument of all files."""
        parts = [source.account() for source in self.all]
        return {kind: tuple(line for part in parts for line in part[kind]) for kind in parts[0]}


def recognize_trainer(text: str) -> str | None:
    """The form of a trainer's file by its mark; None if it is of no trainer known here."""
    forms = [form for form in TRAINERS.values() if form.is_json == is_json(text)]
    return next((form.name for form in forms if re.search(form.mark, text, re.MULTILINE)), None)


def read_trainer(form: str, text: str, where: str, machine: Machine, additions: Additions) -> Recipe:
    """A trainer's file, with the files that belong to it, as a scenario; a UserError with a line for each fault."""
    _check_flags(form, where, additions)
    keys = read_table(text, where)
    own = to_arguments(keys, form, where)
    zero = own if form == "deepspeed" else _open_deepspeed(own, keys.get("deepspeed"), where)
    launcher = _open_launcher(Path(additions.accelerate)) if additions.accelerate else None
    if zero is None and launcher is not None:
        zero = _find_launched_deepspeed(launcher)
        if zero is not None:
            own.imply("deepspeed", additions.accelerate)
    if launcher is not None:
        own.imply("mixed_precision", launcher.text("mixed_precision", "no"))
    files = Files(own, zero, launcher)
    for file in files.all:
        file.check_readable()
    shape = find_model(own, TRAINERS[form].model_key, additions.model)
    training = TRAINERS[form].read(own, additions.seq_len)
    files.check()
    table = TrainerStep(files, machine, shape, training).table()
    files.check()
    return Recipe.of(form, table, shape.config, files.account())


def _check_flags(form: str, where: str, additions: Additions) -> None:
    """Ask for the flags that DeepSpeed's file cannot do without."""
    missing = [flag for flag in ("--model", "--seq-len") if flag not in additions.flags]
    if form == "deepspeed" and missing:
        raise UserError(f"{where}: says neither model nor length of sequences; give {' and '.join(missing)}")


def _open(form: str, file: Path) -> Arguments:
    return to_arguments(read_table(read_text(file, most_bytes=MOST_SETTINGS), str(file)), form, str(file))


def _open_deepspeed(own: Arguments, named: Any, where: str) -> Arguments | None:
    """The arguments of DeepSpeed's file, or of its keys where the recipe holds them itself."""
    if isinstance(named, Mapping):
        return to_arguments(named, "deepspeed", where)
    if not own.has("deepspeed"):
        return None
    return _open_named(own, "deepspeed")


def _open_named(args: Arguments, key: str) -> Arguments:
    """The arguments of the file of DeepSpeed's that a key names; a fault is raised."""
    file = find_file(args.text(key), args.where)
    if file is None:
        args.fault(key, "no such file here, beside the recipe, or in a folder above it")
        args.check()
    assert file is not None
    return _open("deepspeed", file)


def _open_launcher(file: Path) -> Arguments:
    """The arguments of accelerate's config; with DeepSpeed they are those of DeepSpeed's file in other words."""
    table = read_table(read_text(file, most_bytes=MOST_SETTINGS), str(file))
    launched = str(table.get("distributed_type")).upper() == "DEEPSPEED"
    return to_arguments(table, "accelerate_deepspeed" if launched else "accelerate", str(file))


def _find_launched_deepspeed(launcher: Arguments) -> Arguments | None:
    """The file that accelerate's config names, or that config itself; None where it launches without DeepSpeed."""
    if launcher.text("distributed_type").upper() != "DEEPSPEED":
        return None
    if launcher.has(key := "deepspeed_config.deepspeed_config_file"):
        return _open_named(launcher, key)
    if not launcher.has(deepspeed.STAGE):
        launcher.imply(deepspeed.STAGE, _PLUGIN_STAGE)
    return launcher


class TrainerStep:
    """A step on a machine; faults are noted on the file that has the key."""

    def __init__(self, files: Files, machine: Machine, shape: Shape, training: Training):
        self.files, self.machine, self.shape, self.training = files, machine, shape, training
        self.axes = dict(training.axes) | (deepspeed.read_axes(files.zero) if files.zero else {})

    def table(self) -> dict[str, Any]:
        """The table of the scenario."""
        training, args = self.training, self.files.own
        tables, keys = self._share(self._replicas())
        self._check_model(tables)
        found: dict[str, Any] = {"stack": STACK, "model": dict(self.shape.model), **training.more, **keys}
        for name, table in tables.items():
            found[name] = dict(found.get(name, {})) | table
        found |= self._towers() | self._freeze() | self._adapters()
        found["parallel"] = self._parallel(found.get("schedule", {})) | found["parallel"]
        if self.shape.spec.moe:
            args.assumed.append("experts.routing = balanced: each expert gets as many tokens")
            if {"up", "gate_proj", "up_proj", ALL_LINEAR}.intersection(
                training.more.get("lora", {}).get("targets", ())
            ):
                args.not_modelled.append("lora.targets: routed experts have no adapters here; theirs would take time")
        launcher = self.files.launcher
        if launcher and launcher.whole("num_processes", self.machine.gpus) != self.machine.gpus:
            args.assumed.append(f"{self.machine}: accelerate's config starts {launcher.text('num_processes')}")
        args.assumed.append(f"stack = {STACK}: eager PyTorch; how this trainer issues its kernels was not measured")
        return found

    def _towers(self) -> Tables:
        """What the model's towers read, where the file has more than text."""
        names, args = [tower.name for tower in self.shape.spec.towers], self.files.own
        if self.training.towers is None or not names:
            return {}
        said = ", ".join(f"towers.{name}.inputs = 1" for name in names)
        args.assumed.append(f"{said}: how many a sequence has, and of which size, the data says")
        return {"towers": {name: dict(self.training.towers) for name in names}}

    def _adapters(self) -> Tables:
        said = self.training.more.get("lora")
        return {} if said is None else {"lora": fit_adapters(self.files.own, said, self.shape.spec)}

    def _freeze(self) -> Tables:
        """What is frozen of this model: of the layers that it has; of a tied matrix nothing that has a trained name."""
        said, spec, args = self.training.more.get("freeze"), self.shape.spec, self.files.own
        if said is None:
            return {}
        found, layers = dict(said), said.get("layers", 0)
        first = layers.partition("-")[0] if isinstance(layers, str) else str(-layers)
        if first.isdigit() and int(first) >= spec.num_hidden_layers:  # so many are trained
            found["layers"] = 0
        if spec.tie_word_embeddings:
            found["embedding"] = found["head"] = said.get("embedding", False) and said.get("head", True)
        tower = self.training.towers or {"frozen": True, "frozen_projector": True}
        rest = tower.get("frozen") and (tower.get("frozen_projector") or not spec.towers)
        if rest and found == {"layers": "all", "embedding": True, "head": True}:
            args.faults.append(f"{args.where}: freezes all of {spec.name}; expected something that is trained")
        return {"freeze": found}

    def _share(self, dp: int) -> tuple[Tables, dict[str, Any]]:
        """Who shares the step: DeepSpeed, FSDP, or DistributedDataParallel where nothing is said."""
        training, args = self._count_accumulation(dp), self.files.launcher or self.files.own
        if self.files.zero is not None:
            return deepspeed.share_by_deepspeed(self.files.zero, training, self.shape.spec.hidden_size, dp)
        sharded = has_fsdp(args)
        ranks, replicas = dp * self.axes.get("cp", 1), self._copies(dp)
        tables = share_by_fsdp(args, training, self.machine, ranks, replicas) if sharded else share_by_ddp(training)
        if not sharded and not self.files.launcher and self.machine.gpus > 1:
            args.assumed.append("parallel.zero = 0: no file names DeepSpeed or FSDP; accelerate's own config may")
        micro, accumulation = training.micro or 1, training.accumulation or 1
        tables["batch"] = {"global": micro * accumulation * dp, "micro": micro, "seq_len": training.seq_len}
        tables["precision"]["compute"] = training.compute
        return tables, self._pipeline(training)

    def _count_accumulation(self, dp: int) -> Training:
        """What the trainer says, with its accumulation where it gives a step's sequences."""
        training, micro = self.training, self.training.micro or 1
        if training.total is None:
            return training
        local = training.at_once or micro
        if training.total % (local * dp):
            self._fault("batch.global", f"local {local} x dp {dp} = {local * dp} must divide it", training.total)
        return replace(training, accumulation=max(training.total // (micro * dp), 1))

    def _pipeline(self, training: Training) -> dict[str, Any]:
        """The schedule: chunks per rank of `chunk` layers at most, and passes where not all goes through at once."""
        pp, chunk = self._size("pp"), training.chunk
        if pp == 1:
            return {}
        found: dict[str, Any] = {}
        stages = -(-self.shape.spec.num_hidden_layers // chunk) if chunk else pp
        vpp = max(-(-stages // pp) if training.rounds_up else stages // pp, 1)
        if vpp > 1:
            found = {"name": "interleaved", "vpp": vpp}
        replica = (training.micro or 1) * (training.accumulation or 1)
        if training.at_once and replica > training.at_once:
            found["passes"] = replica // training.at_once
        return {"schedule": found} if found else {}

    def _copies(self, dp: int) -> int:
        """Groups of ranks that hold a whole model each, by Axolotl's sizes, which must fit the machine."""
        args, cp = self.files.own, self.axes.get("cp", 1)
        copies, shard = args.whole("dp_replicate_size"), args.optional("dp_shard_size")
        if dp % copies or (shard is not None and shard * copies != dp):
            name = "dp_shard_size" if shard is not None else "dp_replicate_size"
            product = f"dp_replicate_size {copies} x dp_shard_size {shard or '?'}"
            args.fault(name, f"{product} must be {dp}: {self.machine} with tp {self._size('tp')} x cp {cp}")
            return 1
        return copies

    def _size(self, axis: str) -> int:
        return int(self.axes.get(axis, 1))

    def _replicas(self) -> int:
        """dp, if the axes fit the machine; else a fault is raised."""
        tp, cp, pp = map(self._size, ("tp", "cp", "pp"))
        model = tp * cp * pp
        if self.machine.gpus % model:
            largest = max(("tp", "cp", "pp"), key=self._size)
            allowed = f"tp {tp} x cp {cp} x pp {pp} = {model} must divide {self.machine}"
            self._fault(f"parallel.{largest}", allowed, self._size(largest))
            self.files.check()
        return self.machine.gpus // model

    def _parallel(self, schedule: Mapping[str, Any]) -> dict[str, Any]:
        tp, cp = self._size("tp"), self._size("cp")
        found: dict[str, Any] = {axis: self._size(axis) for axis in ("tp", "cp", "pp", "ep")}
        stages, layers = self._size("pp") * schedule.get("vpp", 1), self.shape.spec.num_hidden_layers
        if layers % stages:  # the first ones have one more
            found["layers"] = [layers // stages + (stage < layers % stages) for stage in range(stages)]
        if tp > 1:
            found["sequence_parallel"] = False
        return found | ({"cp_type": self.axes["cp_type"]} if cp > 1 else {})

    def _check_model(self, tables: Tables) -> None:
        """Note what a scenario would refuse: sizes of the model that the axes do not divide."""
        spec, tp, cp, ep = self.shape.spec, self._size("tp"), self._size("cp"), self._size("ep")
        ulysses = self.axes.get("cp_type") == "ulysses"
        dims = ParallelDims(tp=tp, cp=cp, ep=ep, etp=tp)
        for one in indivisible(spec, dims, tables["batch"]["seq_len"], sequence_parallel=False, ulysses=ulysses):
            self._fault(one.key, one.allowed, one.value)
        stage = self.machine.gpus // self._size("pp")
        if spec.moe and stage % (ep * tp):
            self._fault("parallel.ep", f"must divide the {stage // tp} ranks of a stage", ep)
        if spec.moe and tp > 1:
            self._fault("parallel.tp", "not modelled for experts without sequence parallelism", tp)

    def _fault(self, key: str, allowed: str, value: object) -> None:
        """Note a fault with the key of the file that says it."""
        names = [(source, name) for source in self.files.all for name in _SIZES[key] if source.has(name)]
        source, name = names[0] if names else (self.files.own, key)
        source.fault(name, allowed, value)
