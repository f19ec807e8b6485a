"""The Python API of `runcast explain`: a scenario in, an Explanation out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...report.report import Parts
from ...scenario import parsed
from ...systems.registry import SYSTEMS
from .advice import Refused, Tried, advice, best
from .case import Case, read_case
from .knobs import STEP, Knob
from .sensitivity import Progress, Sensitivity, sensitivities


@dataclass(frozen=True)
class Explanation:
    """Why a step or an update takes `total_s`: its parts, what every number is worth, and what would help.

    The interval holds 90 %. `sensitivities` are ordered by size; `without_effect` names the numbers on which nothing
    rests here. `tried` is ordered by gain; `refused` are the what-ifs that the scenario does not allow. `awkward` says
    which sizes of the model no kernel is made for, and `awkward_s` how much shorter the total were if there were some.
    `quick` left out simulating numbers again and the what-ifs.
    """

    name: str
    kind: str
    question: str
    scenario_hash: str
    total_s: float
    interval_low_s: float
    interval_high_s: float
    parts: Parts
    memory_bytes: int
    device_memory_bytes: int
    sensitivities: tuple[Sensitivity, ...]
    without_effect: tuple[str, ...]
    tried: tuple[Tried, ...]
    refused: tuple[Refused, ...]
    awkward: tuple[str, ...]
    awkward_s: float
    quick: bool

    @property
    def what(self) -> str:
        """What takes `total_s`."""
        return SYSTEMS[self.kind].short

    @property
    def fits(self) -> bool:
        """Whether the case itself fits its devices."""
        return self.memory_bytes <= self.device_memory_bytes

    @property
    def bound_by(self) -> str:
        """The phase that holds most of the critical path."""
        return max(self.parts.path_s, key=lambda phase: self.parts.path_s[phase])

    @property
    def best(self) -> list[Tried]:
        """The three changes of the plan or the update that save most and fit."""
        return best(self.tried, "plan", "update")

    @property
    def best_machines(self) -> list[Tried]:
        """The three changes of the machine that save most and fit."""
        return best(self.tried, "machine")

    @property
    def too_large(self) -> list[Tried]:
        """What would save time but does not fit."""
        return [one for one in self.tried if one.gain > 0 and not one.fits]

    def to_json(self) -> dict[str, Any]:
        """As plain values; durations in seconds, changes of the total in seconds, shares of it as `gain`."""
        return {
            "kind": "explanation",
            "of": self.kind,
            "name": self.name,
            "question": self.question,
            "scenario_hash": self.scenario_hash,
            "total_s": self.total_s,
            "interval_low_s": self.interval_low_s,
            "interval_high_s": self.interval_high_s,
            "bound_by": self.bound_by,
            **self.parts.to_json(),
            "memory_bytes": self.memory_bytes,
            "device_memory_bytes": self.device_memory_bytes,
            "fits": self.fits,
            "turned_by": STEP,
            "sensitivities": [one.to_json() for one in self.sensitivities],
            "without_effect": list(self.without_effect),
            "best": [one.name for one in self.best],
            "best_machines": [one.name for one in self.best_machines],
            "what_ifs": [one.to_json() for one in self.tried],
            "refused": [vars(one) for one in self.refused],
            "awkward": list(self.awkward),
            "awkward_s": self.awkward_s,
            "quick": self.quick,
        }


def explain(
    scenario: Mapping[str, Any] | Path | str,
    changes: Sequence[str] = (),
    *,
    quick: bool = False,
    progress: Progress = lambda line: None,
) -> Explanation:
    """Explain a training step or a weight update, given as a table or a file with `key=value` changes.

    `quick` is first order alone: numbers are not simulated again, what-ifs not at all. `progress` is told what is
    being tried.

    Raises:
        UserError: the scenario says something that is not allowed, or is an RL cycle.
    """
    return explained(read_case(scenario, parsed(changes)), quick, progress)


def explained(case: Case, quick: bool = False, progress: Progress = lambda line: None) -> Explanation:
    """The same of a case that was read."""
    found, without = sensitivities(case, quick, progress)
    tried, refused = ([], []) if quick else advice(case, progress)
    return _explanation(case, found, without, tried, refused, quick)


def first_look(case: Case) -> Explanation:
    """What a case is made of, at the price of one simulation: no numbers, no what-ifs."""
    return _explanation(case, (), (), (), (), quick=True)


def _explanation(
    case: Case,
    found: Sequence[Sensitivity],
    without: Sequence[Knob],
    tried: Sequence[Tried],
    refused: Sequence[Refused],
    quick: bool,
) -> Explanation:
    memory, device = case.prediction.memory
    return Explanation(
        name=case.report.name,
        kind=case.report.kind,
        question=case.report.question,
        scenario_hash=case.report.scenario_hash,
        total_s=case.total_s,
        interval_low_s=case.report.interval_low_s,
        interval_high_s=case.report.interval_high_s,
        parts=case.parts,
        memory_bytes=memory,
        device_memory_bytes=device,
        sensitivities=tuple(found),
        without_effect=tuple(knob.name for knob in without),
        tried=tuple(tried),
        refused=tuple(refused),
        awkward=tuple(one.text for one in case.resolved.awkward),
        awkward_s=case.awkward_s(simulate=not quick),
        quick=quick,
    )
