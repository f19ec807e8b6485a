"""Costs of the ops of a step: the profile's numbers for this layout, whole stages as places, slow nodes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import log2, prod, sqrt
from typing import TYPE_CHECKING

from ...base.errors import UserError
from ...costs import EXCHANGES, GEMM_PHASES, Costs, cost
from ...profile import ATTENTION, ATTENTION_OF, Profile
from ...program import Place, Program
from .flash_attention import FLASH2_KERNELS, measures_flash2, slower_by
from .lower import Coarse
from .lower.coarse import HOSTS, KIND
from .pieces import CoarseCosts, cost_coarse

if TYPE_CHECKING:
    from .resolve import ResolvedTrain


def price(resolved: "ResolvedTrain", program: Program) -> Costs:
    """The costs of each op without contention; a stage is as slow as its slowest node.

    Raises:
        UserError: the profile has no model for an op, or the cluster has no route for an exchange.
    """
    with _faults_of(resolved):
        places, profile = _whole_stages(resolved), profile_of_layout(resolved)
        costs = cost(program, resolved.cluster, profile, resolved.choice, places=places, memo=resolved.memo)
    return _slowed(resolved, costs, program, EXCHANGES)


def price_coarse(resolved: "ResolvedTrain", step: Coarse) -> CoarseCosts:
    """Costs at the coarser level.

    Raises:
        UserError: as `price`.
    """
    with _faults_of(resolved):
        places = _whole_stages(resolved)
        profile = profile_of_layout(resolved)
        found = cost_coarse(step, resolved.cluster, profile, resolved.choice, resolved.slowness, places, resolved.memo)
    return found._replace(costs=_slowed(resolved, found.costs, step.program, (*EXCHANGES, KIND, HOSTS)))


def profile_of_layout(resolved: "ResolvedTrain") -> Profile:
    """The profile with the numbers of this layout. Layouts with equal numbers get the same object."""
    every = resolved.profile, *resolved.profile.others.values()
    stated = [_stated(resolved, profile) for profile in every]

    def make() -> Profile:
        own, *others = (
            _with_kernels(resolved, profile.set_values(numbers, "this layout") if numbers else profile)
            for profile, numbers in zip(every, stated, strict=True)
        )
        return replace(own, others=dict(zip(resolved.profile.others, others, strict=True)))

    key = id(resolved.profile), resolved.scenario.attention, tuple(tuple(numbers.items()) for numbers in stated)
    # The cached pair keeps `resolved.profile` alive, so that its id stays unique.
    return resolved.memo.get("laid out", key, lambda: (resolved.profile, make()))[1]


def _with_kernels(resolved: "ResolvedTrain", profile: Profile) -> Profile:
    """The profile with FlashAttention-2's kernels, if it has measured them and the step takes these or older ones."""
    if resolved.scenario.attention in ("flash-1", "flash-2") and measures_flash2(profile):
        return profile.prefer(*FLASH2_KERNELS)
    return profile


def _stated(resolved: "ResolvedTrain", profile: Profile) -> dict[str, float]:
    """The numbers of a profile that depend on the layout.

    A host runs ahead of kernels, so it matters little which layers have experts.
    """
    stated = dict[str, float]()
    more_s = _blocked_s(resolved) if resolved.tp_in_far_pipeline else 0.0
    if of_experts_s := profile.value_or("layer.experts_s", 0.0):
        spec = resolved.spec
        more_s += of_experts_s * sum(spec.kind(number).moe for number in range(spec.n_layers)) / spec.n_layers
    if more_s:
        stated["layer.s"] = profile.value_or("layer.s", 0.0) + more_s
    kernels = resolved.scenario.attention
    names = ATTENTION_OF.get(kernels, ATTENTION), *slower_by(kernels, profile)
    if (slower := prod(profile.value_or(name, 1.0) for name in names)) != 1.0:
        stated[ATTENTION] = slower
    slower = profile.value_or(f"time_factor.gemm.{resolved.gemm_type}", 1.0)
    if slower != 1.0:
        factors = [f"time_factor.{phase}" for phase in GEMM_PHASES]
        stated |= {name: profile.value_or(name, 1.0) * slower for name in factors}
    if (fusion := resolved.scenario.overlap.fusion) is not None:
        stated["fusion.cycle_s"] = fusion.cycle
    return stated


def _blocked_s(resolved: "ResolvedTrain") -> float:
    """Extra host seconds per pass over a layer, in a pipeline over several nodes.

    They are host work for each rank of the tensor-parallel group, and waiting for exchanges between nodes. The host
    factor must not scale the waiting, so the waiting is divided by it here.
    """
    profile = resolved.profile
    exchanges = 4 if resolved.shard.sequence_parallel else 2  # all-gathers and reduce-scatters, or all-reduces
    waits = profile.value_or("exchange.s", 0.0) * exchanges * resolved.tp_between_nodes
    work = profile.value_or("layer.tp_s", 0.0) * _slowest_of(len(resolved.cluster.nodes))
    return work * resolved.dims.tp + waits / profile.value_or("time_factor.host", 1.0)


def _slowest_of(nodes: int) -> float:
    """Relative delay of the slowest of n nodes: sqrt(1 + log2 n), which is 1 for one node.

    The maximum of n equal normal errors lies sqrt(2 ln n) deviations above the mean (Cramér, Mathematical Methods of
    Statistics, 28.6), so it grows as sqrt(log n). The fitted `layer.tp_s` gives its size.
    """
    return sqrt(1 + log2(nodes))


def _whole_stages(resolved: "ResolvedTrain") -> list[Place]:
    """One Place per stage with all its ranks: they act at the same time and share NICs, on whatever machines."""
    ranks = resolved.dims.table("pp").T.tolist()
    return [Place(f"pp {stage}", tuple(of)) for stage, of in enumerate(ranks)]


def _slowed(resolved: "ResolvedTrain", costs: Costs, program: Program, but: Sequence[str]) -> Costs:
    """Lengthen the ops of slow nodes, but those of these kinds."""
    for place, at in enumerate(program.places):
        factor = float(resolved.slowness[list(at.ranks)].max())
        if factor > 1:
            costs = costs.scale(program.only_at([place]) & ~program.is_kind(*but), factor)
    return costs


@contextmanager
def _faults_of(resolved: "ResolvedTrain") -> Iterator[None]:
    """Name this scenario in every UserError that is raised inside."""
    try:
        yield
    except UserError as error:
        raise UserError(*(f"{resolved.where}: {line}" for line in error.faults)) from None
