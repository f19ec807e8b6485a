"""What-ifs that depend on what a scenario says: plans beside a step's own, ways beside an update's own.

A plan beside another one doubles one axis and halves another, so that it has as many GPUs and the same global batch.
What is a choice of one key, whatever the others say, is shipped in data/what-ifs.toml.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from typing import Any

from ...models.awkward import PADDED
from ...scenario import Changes, WhatIf
from ...schedules import SCHEDULES
from ...systems.machines import OnMachines
from ...systems.train_step.resolve import ResolvedTrain
from ...systems.weight_update.methods import METHODS

_AXES = ("tp", "cp", "pp", "dp")  # their product is the number of GPUs
_LEAST_TOKENS = 8192  # of a sequence on a rank, before it is split further


def neighbours(resolved: OnMachines) -> Iterator[WhatIf]:
    """The what-ifs of a scenario of this kind; some may not go with it."""
    for_kind = _OF_KIND[resolved.scenario.kind]
    yield from for_kind(resolved)
    yield from _paddings(resolved)


def _of_step(resolved: ResolvedTrain) -> Iterator[WhatIf]:
    yield from _plans(resolved)
    yield from _experts(resolved)
    yield from _chunks(resolved)
    yield from _recomputed(resolved)


def _plans(resolved: ResolvedTrain) -> Iterator[WhatIf]:
    """One axis doubled, another one halved; tp stays where NVLink reaches, and short sequences are not split."""
    dims, cluster = resolved.dims, resolved.cluster
    domain = sum(cluster.island(gpu) == cluster.island(0) for gpu in range(min(cluster.n_gpus, 1024)))
    for more, less in permutations(_AXES, 2):
        sizes = {more: 2 * getattr(dims, more), less: getattr(dims, less) // 2}
        short = more == "cp" and resolved.scenario.batch.seq_len < _LEAST_TOKENS * sizes["cp"]
        if getattr(dims, less) % 2 or (more == "tp" and sizes["tp"] > domain) or short:
            continue
        about = f"{_AXIS[more]} {sizes[more]} instead of {sizes[more] // 2}, on the same GPUs with the same batch"
        name = ", ".join(f"{axis} {getattr(dims, axis)} to {size}" for axis, size in sizes.items())
        yield WhatIf(name, "plan", about, _sizes(resolved, sizes))


_AXIS = {"tp": "tensor-parallel size", "cp": "context-parallel size", "pp": "pipeline-parallel size",
         "dp": "data-parallel size"}  # fmt: skip


def _sizes(resolved: ResolvedTrain, sizes: Mapping[str, int]) -> Changes:
    """Changes of axes; dp follows from the others unless the scenario gives it."""
    is_free = resolved.scenario.parallel.dp is None
    return {f"parallel.{axis}": size for axis, size in sizes.items() if not (axis == "dp" and is_free)}


def _experts(resolved: ResolvedTrain) -> Iterator[WhatIf]:
    if resolved.spec.moe is None:
        return
    for size in (2 * resolved.dims.ep, resolved.dims.ep // 2):
        if size:
            about = f"{resolved.spec.moe.n_routed_experts} experts over {size} ranks"
            yield WhatIf(f"ep {resolved.dims.ep} to {size}", "plan", about, {"parallel.ep": size})


def _chunks(resolved: ResolvedTrain) -> Iterator[WhatIf]:
    """Twice and half as many chunks per pipeline rank."""
    name, chunks = resolved.scenario.schedule.name, resolved.scenario.schedule.vpp
    if SCHEDULES[name].chunks is not None or chunks is None:
        return
    for other in (2 * chunks, chunks // 2):
        if other > 1:
            about = f"{other} chunks per pipeline rank instead of {chunks}"
            yield WhatIf(f"vpp {chunks} to {other}", "plan", about, {"schedule.vpp": other})


def _recomputed(resolved: ResolvedTrain) -> Iterator[WhatIf]:
    """Selective recomputation of one module more, or one less."""
    own = resolved.scenario.recompute
    if own.mode == "full":
        return
    modules = own.modules if own.mode == "selective" else ()
    for module in ("core_attn", "layernorm", "activation", "mlp"):
        others = [one for one in modules if one != module] if module in modules else [*modules, module]
        if others:
            verb = "kept" if module in modules else "recomputed"
            changes = {"recompute": {"mode": "selective", "modules": others}}
            yield WhatIf(f"{module} is {verb}", "plan", f"the backward recomputes {', '.join(others)}", changes)


def _of_update(resolved: OnMachines) -> Iterator[WhatIf]:
    """Other methods with the same GPUs and stack: each as it is, and with messages by bucket where it has a choice."""
    own = METHODS[resolved.scenario.update.method]
    for method in METHODS.values():
        if method.starts_at_trainers == own.starts_at_trainers and "colocated" not in (method.name, own.name):
            changes = {"update.method": method.name}
            if method is not own:
                yield WhatIf(f"method {method.name}", "update", method.about, changes)
            if method.by_tensor:
                name = f"{f'method {method.name}, ' * (method is not own)}messages by bucket"
                about = "a message for each bucket, not for each tensor"
                yield WhatIf(name, "update", about, changes | {"update.messages": "bucket"})


def _paddings(resolved: OnMachines) -> Iterator[WhatIf]:
    """For each awkward size of a model, the next one that kernels are made for."""
    model = "model.overrides" if resolved.scenario.model.preset else "model.config"
    for one in (each for each in resolved.awkward if each.key):
        changes = {"parallel.pad_vocab": PADDED} if one.key == "vocab_size" else {f"{model}.{one.key}": one.value}
        yield WhatIf(one.text, "plan", "a size that kernels are made for", changes)


_OF_KIND: Mapping[str, Callable[[Any], Iterator[WhatIf]]] = {"train_step": _of_step, "weight_update": _of_update}
