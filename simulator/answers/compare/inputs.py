"""Everything that went into a prediction, by keys with dots: the checked scenario, and what its names stand for."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from ...base.errors import UserError
from ...hardware import described, resolved
from ...models import ModelSpec
from ...predict import AnyPrediction
from ...systems.tables import FOR_PEOPLE

_NAMES = ("base", "node", "about")
"""Of machines: what their other keys stand for."""


def inputs_of(prediction: AnyPrediction) -> dict[str, object]:
    """Keys as `--set` takes them; below `cluster` and `model` what the names stand for, the names themselves too."""
    given = prediction.resolved
    said = given.scenario.model_dump(mode="json", by_alias=True, exclude={*FOR_PEOPLE, "cluster"})
    found = dict(_flat(said))
    found |= _machines(given.scenario.cluster, given.scenario.nodes, given.where)
    if found["profile"] is None:  # that of the device; a joined profile is called by it and by its stack
        found["profile"] = given.profile.name.partition(" + ")[0]
    return found | given.derived | _shape(given.spec)


def _machines(cluster: str | Mapping[str, Any], nodes: int, where: str) -> dict[str, object]:
    """Every key of the machines; of several kinds of node all that they resolve to."""
    name = {"cluster": cluster} if isinstance(cluster, str) else {"cluster": cluster.get("base", cluster.get("node"))}
    try:
        keys = described(cluster, where)
    except UserError:  # a mix, which has no one value per key
        keys = resolved(cluster, nodes, where) if isinstance(cluster, str) else dict(cluster)
    return name | dict(_flat({"cluster": {key: value for key, value in keys.items() if key not in _NAMES}}))


def _shape(spec: ModelSpec | None) -> dict[str, object]:
    if spec is None:
        return {}
    shape = {key: value for key, value in asdict(spec).items() if key not in ("name", "assumptions")}
    return dict(_flat({"model": shape}))


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Leaves of nested tables; lists are leaves."""
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(item) if isinstance(item, tuple) else item
