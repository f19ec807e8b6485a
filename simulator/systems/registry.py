"""All systems, by the `kind` of their scenario files. A new system adds its folder to `_FOLDERS`.

A system is imported when it is asked for: whoever predicts an update need not wait for those that simulate runs.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from ..base.memo import Memo
from .machines import ResolvedScenario
from .system import System, SystemPrediction
from .tables import OnCluster

_FOLDERS = ("weight_update", "train_step", "rl_cycle", "run", "collective")
"""Each is named as the kind of its scenarios."""


class _Systems(Mapping[str, System]):
    """The `SYSTEM` of each folder; Python imports a module once."""

    def __getitem__(self, kind: str) -> System:
        if kind not in _FOLDERS:
            raise KeyError(kind)
        found: System = import_module(f".{kind}.system", __package__).SYSTEM
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_FOLDERS)

    def __len__(self) -> int:
        return len(_FOLDERS)

    def __contains__(self, kind: object) -> bool:
        return kind in _FOLDERS


SYSTEMS: Mapping[str, System] = _Systems()

# A scenario of any kind: checked, resolved, predicted.
AnyScenario = OnCluster
AnyResolved = ResolvedScenario
AnyPrediction = SystemPrediction


def resolve(scenario: AnyScenario, where: str = "scenario", memo: Memo | None = None) -> AnyResolved:
    """Resolve a checked scenario. Its parts, such as `hash`, are computed on first use and may then raise UserError."""
    found: AnyResolved = SYSTEMS[scenario.kind].resolve(scenario, where, memo or Memo())
    return found


def system_of(table: Mapping[str, Any]) -> System:
    """The system of a scenario table; weight updates if the table has no known `kind`."""
    kind = table.get("kind")
    return SYSTEMS[kind if isinstance(kind, str) and kind in SYSTEMS else "weight_update"]
