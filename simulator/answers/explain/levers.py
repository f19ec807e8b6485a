"""Levers of a run: the what-ifs of subject `run`, and those that depend on what a scenario says.

Levers may multiply what a scenario leaves out (`servers x2`, of one by default): `spell_out` says the product.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import ceil, inf
from typing import Any

from ...base.errors import UserError
from ...base.units import format_count, format_seconds
from ...scenario import Changes, WhatIf, value_at, what_ifs
from ...scenario.changes import multiplies, multiply
from ...systems.machines import ResolvedScenario
from ...systems.run.resolve import ResolvedRun

_SPARES, _POOL = 0.002, 0.1  # of the nodes: more spare ones, more for jobs
REPAIRED = ("failures.repair", "failures.cause.*.repair", "failures.trace.*.repair")
"""Keys of nodes that are away for a while."""


def levers(resolved: ResolvedRun) -> Iterator[WhatIf]:
    """All levers of a run; not all of them go with it."""
    yield from (one for one in what_ifs().values() if one.subject == "run")
    yield from _more_reliable(resolved)
    yield from _more_spares(resolved)
    yield from _more_nodes(resolved)
    yield from _daly_interval(resolved)


def is_of_use(lever: WhatIf, table: Mapping[str, Any]) -> bool:
    """Whether a scenario's table gives one of the keys that a lever needs, if it needs any."""
    return not lever.needs or any(_gives(table, key) for key in lever.needs)


def _gives(table: Any, key: str) -> bool:
    """Whether a table has a key, or with `key=value` this value of it; `.*.` is any item of a list."""
    before, star, after = key.partition(".*.")
    if star:
        return any(_gives(one, after) for one in value_at(table, before) or ())
    name, _, wanted = key.partition("=")
    value = value_at(table, name)
    return value == wanted if wanted else value is not None


def _more_reliable(resolved: ResolvedRun) -> Iterator[WhatIf]:
    """One for each cause of failures."""
    said = resolved.scenario.failures
    for i, one in enumerate(said.cause if said is not None else ()):
        changes = {f"failures.cause.{i}.mtbf": {"times": 2}}
        yield WhatIf(f"{one.name}: half as often", "run", "twice the mean time between these failures", changes)


def _more_spares(resolved: ResolvedRun) -> Iterator[WhatIf]:
    """Spare nodes beyond those that there are; as many train as before."""
    said, nodes = resolved.scenario.failures, resolved.scenario.nodes
    if said is None or not resolved.mode.takes("failures.spares"):
        return
    more = max(round(_SPARES * nodes), 1)
    changes = {"nodes": nodes + more, "failures.spares": said.spares + more}
    about = "added to the cluster, to replace failed ones"
    yield WhatIf(format_count(more, "more spare node"), "run", about, changes, REPAIRED)


def _more_nodes(resolved: ResolvedRun) -> Iterator[WhatIf]:
    """A larger pool for jobs that wait."""
    more = ceil(_POOL * resolved.scenario.nodes)
    changes = {"nodes": resolved.scenario.nodes + more}
    yield WhatIf(format_count(more, "more node"), "run", "a pool that is a tenth larger", changes, ("jobs",))


def _daly_interval(resolved: ResolvedRun) -> Iterator[WhatIf]:
    """The interval between checkpoints that is taken where none is given."""
    said = resolved.scenario
    if said.checkpoint is None or said.checkpoint.interval is None:
        return
    free = said.checkpoint.model_copy(update={"interval": None})
    other = share_step(resolved, replace(resolved, scenario=said.model_copy(update={"checkpoint": free})))
    if (work_s := other.work_s) is not None:
        about = f"{format_seconds(work_s)} of work between two of them, as if none were given"
        yield WhatIf("Daly's checkpoint interval", "run", about, {"checkpoint.interval": work_s})


def share_step(of: ResolvedRun, other: ResolvedRun) -> ResolvedRun:
    """The other run with the predicted step of the first one, if its workers' step is the same."""
    is_same = of.step is not None and _step_scenario(of) == _step_scenario(other)
    return replace(other, shared_step=of.step if is_same else None)


def _step_scenario(resolved: ResolvedRun) -> object:
    """What a predicted step depends on; residuals of compression lie in its memory."""
    return resolved.scenario.train_step(resolved.worker_nodes), resolved.residual_bytes


def spell_out(lever: WhatIf, resolved: ResolvedScenario, table: Mapping[str, Any], where: str) -> WhatIf:
    """The lever as it can be applied to the scenario: with the product where it multiplies what that leaves out.

    A key without a value stays, and is refused as it is changed.

    Raises:
        UserError: what it multiplies is no quantity.
    """
    silent = _silent_values(resolved, table, lever.changes)
    products = {key: multiply(said, lever.changes[key], key, where) for key, said in silent.items()}
    return replace(lever, changes={**lever.changes, **products})


def _silent_values(resolved: ResolvedScenario, table: Mapping[str, Any], changes: Changes) -> Mapping[str, Any]:
    """The values of keys that changes multiply and that the scenario's table leaves out, as far as they have one."""
    silent = [key for key, value in changes.items() if multiplies(value) and value_at(table, key) is None]
    if not silent:
        return {}
    defaults = resolved.scenario.model_dump(mode="json", by_alias=True)
    values = {key: value_at(defaults, key) for key in silent}
    derived = {key: _DERIVED[key](resolved) for key in silent if key in _DERIVED and values[key] is None}
    return {key: value for key, value in (values | derived).items() if value not in (None, inf)}


def _link_bytes_per_s(resolved: ResolvedRun) -> float:
    """The rate of workers' links; a UserError where a rate that is said would end that the cluster prices exchanges."""
    if resolved.mode.in_step and resolved.is_priced:
        raise UserError("exchanges take what the cluster says, not links of workers: change cluster.nic")
    return resolved.link_bytes_per_s


_DERIVED: Mapping[str, Callable[[Any], float | int | None]] = {
    "update.bucket": lambda resolved: resolved.plan.bucket_bytes,
    "checkpoint.interval": lambda resolved: None if resolved.saved_every is None else resolved.saved_every.seconds,
    "sync.bandwidth": lambda resolved: _link_bytes_per_s(resolved) if resolved.mode.has_workers else None,
    "sync.server.bandwidth": lambda resolved: resolved.node_bytes_per_s,
    "sync.server.servers": lambda _: 1,
}
"""What a run or an update takes for keys without a value."""
