"""What all systems resolve in the same way: model, cluster, devices, profiles, slow nodes, hashes."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import Any, ClassVar, Self

import numpy as np

from ..base.errors import Fault, UserError, fault
from ..base.files import find_beside
from ..base.memo import Memo
from ..base.named_files import find_files, rename_files
from ..costs import LAYOUT, RING_KINDS, Costs
from ..hardware import Cluster, Device, cluster
from ..insight import CriticalPath
from ..models import ModelSpec, from_hf_config, load_hf_config, preset
from ..models.awkward import Awkward
from ..profile import Names, Profile, choose_profiles, devices_of, load_numbers, say_of_all_kernels
from ..program import Program
from ..timeline import Timeline
from .tables import FOR_PEOPLE, Model


def without_route(where: str, error: UserError) -> UserError:
    """The error of a way between machines with its file, and with `cluster` where it names no key of it."""
    lines = (line if isinstance(line, Fault) else f"cluster: {line}" for line in error.faults)
    return UserError(*(f"{where}: {line}" for line in lines))


@dataclass(frozen=True)
class ResolvedScenario:
    """A scenario with what its names stand for; parts are made on first use."""

    scenario: Any
    where: str = "scenario"
    memo: Memo = field(default_factory=Memo, compare=False)

    @property
    def derived(self) -> dict[str, object]:
        """Values that follow from other keys of the scenario."""
        return {}

    @property
    def hash(self) -> str:
        """The hash of everything that the prediction depends on, runcast's release included."""
        raise NotImplementedError

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """What reproduces it: the keys that were set, by the stack too, in SI units; and the files that they name."""
        return inputs_of(self.scenario.model_dump(mode="json", by_alias=True, exclude_unset=True), self.where)

    @property
    def spec(self) -> ModelSpec | None:
        """The shape of its model, if it has one."""
        return None

    @property
    def costs(self) -> Costs | None:
        """The time of each op without contention; None if ops are not priced one by one."""
        return None

    def opening_s(self, timeline: Timeline) -> float:
        """When the reported time begins."""
        return 0.0

    @property
    def machines(self) -> tuple[str, int, str]:
        """The key of everything that the cluster depends on."""
        return repr(self.scenario.cluster), self.scenario.nodes, self.where

    @cached_property
    def cluster(self) -> Cluster:
        """The machines."""
        given = self.scenario
        return self.memo.get("cluster", self.machines, lambda: cluster(given.cluster, given.nodes, self.where))

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """The kinds of GPU in the cluster, the slowest first."""
        return devices_of(self.cluster)

    @cached_property
    def profile_names(self) -> Names:
        """The profile of each device, the slowest device first."""
        return choose_profiles(self.devices, self.scenario.profile, self.where)

    @property
    def profile(self) -> Profile:
        """Device and software parameters together, of no architecture in particular."""
        network = self.cluster.fabric.network
        return load_numbers(self.profile_names, network, "", self.scenario.stack, self.where)

    def _fault(self, key: str, value: object, allowed: str) -> UserError:
        return UserError(fault(self.where, key, value, allowed))


@dataclass(frozen=True)
class OnMachines(ResolvedScenario):
    """A scenario of a Program that runs on GPUs, with their speeds."""

    _of_profile: ClassVar[tuple[str, ...]]
    """The parts that depend on the profile, and the profile."""

    @property
    def program(self) -> Program:
        """The ops of what is simulated."""
        raise NotImplementedError

    @property
    def costs(self) -> Costs:
        """The time of each op without contention."""
        raise NotImplementedError

    @property
    def neat_costs(self) -> Costs:
        """The costs without the extra time of awkward shapes."""
        return self.costs

    @property
    def awkward(self) -> tuple[Awkward, ...]:
        """Sizes of a trained model that no kernel is made for."""
        return ()

    @property
    def factors(self) -> tuple[str, ...]:
        """Parameters whose default is 1."""
        return ()

    def restate(self, values: Mapping[str, float]) -> Self:
        """The scenario with new values of its profile's parameters, equal for all devices."""
        return self._with(self.profile.set_values(say_of_all_kernels(values), "stated"))

    def scale(self, factors: Mapping[str, float]) -> Self:
        """The scenario with its profile's parameters multiplied by factors, for each device."""
        return self._with(self.profile.apply_factors(factors, "stated"))

    def parameters_read(self) -> frozenset[str]:
        """The names of the profile's parameters that pricing asks for: costs rest on no others."""
        read = set[str]()
        _ = self._with(self.profile.noting(read)).costs
        return frozenset(read)

    def _with(self, profile: Profile) -> Self:
        """The scenario with another profile and the same Program; what does not depend on the profile is shared."""
        other, program = type(self)(self.scenario, self.where), self.program
        kept = {name: value for name, value in vars(self).items() if name not in self._of_profile}
        memo = self.memo.share(LAYOUT, *RING_KINDS)
        vars(other).update(kept | {"program": program, "profile": profile, "memo": memo})
        return other

    @cached_property
    def memory_bytes(self) -> int:
        """Device memory of the smallest GPU, which must hold what every GPU holds."""
        return int(min(device.memory_bytes for device in self.devices))

    @cached_property
    def slowness(self) -> np.ndarray:
        """Per rank, how many times longer its own work takes (see `slow`)."""
        factors = np.ones(self.cluster.n_gpus)
        for i, one in enumerate(self.scenario.slow):
            if one.node >= self.cluster.n_nodes:
                allowed = f"there are {self.cluster.n_nodes} nodes, numbered from 0"
                raise self._fault(f"slow.{i}.node", one.node, allowed)
            factors[list(self.cluster.gpus_of(one.node))] *= one.factor
        return factors


def shape_loss_s(resolved: OnMachines, path: CriticalPath) -> float:
    """Seconds that awkward sizes add to the critical path."""
    if not resolved.awkward:
        return 0.0
    now, neat = (costs.uncontended_s[path.ops] for costs in (resolved.costs, resolved.neat_costs))
    return float((path.seconds * (1 - np.divide(neat, now, out=np.ones_like(now), where=now > 0))).sum())


def content_hash(content: Any) -> str:
    """The SHA-256 of plain values, in hex; equal values have equal hashes."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def inputs_of(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The table of a `scenario`, and the `files` that it names, each with the SHA-256 of what it holds.

    Files are named in full, so that the inputs mean the same from any folder.
    """
    scenario = rename_files(dict(table), where, str)
    named = find_files(without_words(scenario), where)
    return {"scenario": scenario, "files": [{"name": name, "sha256": digest} for name, digest in named]}


def without_words(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table without what is for people, which names no files."""
    return {key: value for key, value in table.items() if key not in FOR_PEOPLE}


def stamp(form: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values of an answer, headed by the form that they have (`runcast schema` prints it) and who made them.

    Within a version of a form, keys are only added.
    """
    return {"schema": form_id(form), "version": release(), **content}


def form_id(form: str) -> str:
    """The name of a form with its version: `runcast/train_step/1`."""
    return f"runcast/{form}/1"


def release() -> str:
    """The release of the installed runcast: 0.1.0 of version 0.1.0.post1.dev3+g4a550ed.

    Hashes rest on it and not on the version, which every commit changes.
    """
    return re.sub(r"\.?[^\d.].*", "", version("runcast"))


_WRITTEN_BY_TRANSFORMERS = frozenset({"architectures", "transformers_version"})
"""A table of keys with one of these is a whole config.json: what it says beside sizes is no mistake of a user's."""


def shape_of(model: Model, where: str) -> ModelSpec:
    """The model of a scenario file; a path in it is relative to that file.

    Raises:
        UserError: no such preset or file, a key that is missing or out of range, or totals without a shape.
    """
    approximate = model.unknown == "approximate"
    if model.preset is not None:
        return preset(model.preset, f"{where}: model", model.overrides or None)
    if isinstance(model.config, str):
        return load_hf_config(find_beside(model.config, where, "model.config"), approximate)
    if model.config is not None:
        by_hand = _WRITTEN_BY_TRANSFORMERS.isdisjoint(model.config)
        said = set(model.config) - {"model_type"} if by_hand else ()
        return from_hf_config(model.config, f"{where}: model.config", strict=said, approximate=approximate)
    raise UserError(f"{where}: model.bytes: a model known by totals alone has no shape; give preset or config")
