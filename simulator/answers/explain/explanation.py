"""The Python API of `runcast explain`: a scenario in, an Explanation out; and what would help.

What would help are the shipped what-ifs that a scenario allows, and padding what is awkward in the shape of its model.
Each is simulated. Training steps are compared by seconds per token, so that a step of twice the sequences is no loss.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...base.errors import UserError
from ...base.memo import Memo
from ...report.answer import Answer
from ...report.report import Parts
from ...scenario import Changes, Given, WhatIf, open_table, what_ifs
from ...systems.machines import stamp
from ...systems.registry import SYSTEMS, system_of
from ...systems.system import System
from ...uncertainty import difference
from .case import Case, Refused, make_case
from .cycle import CycleCase, CycleExplanation, explain_cycle, make_cycle_case
from .levers import spell_out
from .neighbours import neighbours
from .run import RunCase, RunExplanation, explain_run, make_run_case
from .sensitivity import STEP, Knob, Progress, Sensitivity, sensitivities

if TYPE_CHECKING:
    import pandas as pd

    from ...figures import Section

_MOST = 8  # changes of the plan or the update that are recommended
_LEAST = 5e-4  # of a gain that texts show

AnyCase = Case | RunCase | CycleCase


@dataclass(frozen=True)
class Tried:
    """A what-if that was simulated; `gain` is the share of the time per token, or per update, that it saves.

    `gain_interval` is the 90 % interval of the gain, and `helps` the probability that it saves anything.
    `fits` says whether there is enough memory, that of hosts too, of which the bytes are those of the fullest device.
    `fits_probability` is None for updates, whose memory has no interval.
    """

    name: str
    subject: str
    about: str
    changes: Changes
    total_s: float
    gain: float
    gain_interval: tuple[float, float]
    helps: float
    memory_bytes: int
    device_memory_bytes: int
    fits: bool
    fits_probability: float | None

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        low, high = self.gain_interval
        words = {name: value for name, value in vars(self).items() if name != "gain_interval"}
        return words | {"changes": dict(self.changes), "gain_low": low, "gain_high": high}


@dataclass(frozen=True)
class Explanation(Answer):
    """Why a step or an update takes `total_s`: its parts, what every number is worth, and what would help.

    The interval holds 90 %. `sensitivities` are ordered by size; `without_effect` names the numbers on which nothing
    rests here. `tried` is ordered by gain; `refused` are the what-ifs that the scenario does not allow. `awkward` says
    which sizes of the model no kernel is made for, and `awkward_s` how much shorter the total were if there were some.
    `not_in_interval` is as in reports. `inputs` reproduce it. `quick` left out simulating numbers again and the
    what-ifs.
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
    fits: bool
    sensitivities: tuple[Sensitivity, ...]
    without_effect: tuple[str, ...]
    tried: tuple[Tried, ...]
    refused: tuple[Refused, ...]
    awkward: tuple[str, ...]
    awkward_s: float
    not_in_interval: tuple[str, ...]
    quick: bool
    inputs: Mapping[str, Any]

    @property
    def system(self) -> System:
        """The system of the scenario."""
        return SYSTEMS[self.kind]

    @property
    def what(self) -> str:
        """The thing that takes `total_s`, in words."""
        return self.system.short

    @property
    def bound_by(self) -> str:
        """The phase that holds most of the critical path."""
        return max(self.parts.path_s, key=lambda phase: self.parts.path_s[phase])

    @property
    def best(self) -> list[Tried]:
        """The changes of the plan or the update that save most and fit."""
        return best_of(self.tried, "plan", "update", most=_MOST)

    @property
    def best_machines(self) -> list[Tried]:
        """The three changes of the machine that save most and fit."""
        return best_of(self.tried, "machine")

    @property
    def too_large(self) -> list[Tried]:
        """The changes that save time but do not fit into memory."""
        return [one for one in self.tried if one.gain > 0 and not one.fits]

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain values: durations and changes of the total in seconds, shares as `gain`."""
        own = ("name", "question", "scenario_hash", "total_s", "interval_low_s", "interval_high_s", "memory_bytes",
               "device_memory_bytes", "fits", "bound_by", "awkward_s", "quick")  # fmt: skip
        content = {
            "kind": "explanation",
            "of": self.kind,
            **{name: getattr(self, name) for name in own},
            **self.parts.to_json(),
            "turned_by": STEP,
            "sensitivities": [one.to_json() for one in self.sensitivities],
            "without_effect": list(self.without_effect),
            "best": [one.name for one in self.best],
            "best_machines": [one.name for one in self.best_machines],
            "what_ifs": [one.to_json() for one in self.tried],
            "refused": [vars(one) for one in self.refused],
            "awkward": list(self.awkward),
            "not_in_interval": list(self.not_in_interval),
            "inputs": self.inputs,
        }
        return stamp("explanation", content)

    def frame(self) -> "pd.DataFrame":
        """A row per what-if that was simulated, largest gain first."""
        import pandas as pd

        return pd.DataFrame([one.to_json() for one in self.tried])

    def lines(self) -> Iterator[str]:
        """What `runcast explain` prints."""
        from .text import lines

        return lines(self)

    def page(self) -> "tuple[str, list[Section]]":
        """The title and the sections of its page."""
        from .text import page

        return page(self)


AnyExplanation = Explanation | RunExplanation | CycleExplanation


def explain(
    scenario: Given,
    changes: Sequence[str] | Changes = (),
    *,
    quick: bool = False,
    progress: Progress = lambda phase, done, total, name: None,
) -> AnyExplanation:
    """Explain a step, an update, a run or an RL cycle, given as a table, a file or a shipped name, with changes.

    `quick` simulates nothing again: numbers are known to first order, what-ifs not at all. `progress` is called with
    what is being tried. A UserError if the scenario says something that is not allowed.
    """
    return explain_case(open_case(*open_table(scenario, changes)), quick, progress)


def open_case(table: Mapping[str, Any], where: str) -> AnyCase:
    """What is to be explained, from a table that is from `where`; a UserError as `explain`."""
    return _way(system_of(table).kind).open(table, where, Memo())


def explain_case(
    case: AnyCase, quick: bool = False, progress: Progress = lambda phase, done, total, name: None
) -> AnyExplanation:
    """Explain a case that is already read."""
    return _way(case.system.kind).explain(case, quick, progress)


class _Way(NamedTuple):
    """How systems are explained: a case from a table, and the case explained."""

    open: Callable[[Mapping[str, Any], str, Memo], AnyCase]
    explain: Callable[[Any, bool, Progress], AnyExplanation]


def _way(kind: str) -> _Way:
    """Levers where there is no critical path on which numbers could be weighed."""
    by_levers = {"run": _Way(make_run_case, explain_run), "rl_cycle": _Way(make_cycle_case, explain_cycle)}
    return by_levers.get(kind, _Way(make_case, _explain_path))


def _explain_path(case: Case, quick: bool, progress: Progress) -> Explanation:
    found, without = sensitivities(case, quick, progress)
    tried, refused = ([], []) if quick else _try_what_ifs(case, progress)
    return _explanation(case, found, without, tried, refused, quick)


def first_look(case: Case) -> Explanation:
    """A quick explanation from one simulation: the parts of a case, without sensitivities and what-ifs."""
    return _explanation(case, quick=True)


def _explanation(
    case: Case,
    found: Sequence[Sensitivity] = (),
    without: Sequence[Knob] = (),
    tried: Sequence[Tried] = (),
    refused: Sequence[Refused] = (),
    quick: bool = False,
) -> Explanation:
    report, (memory_bytes, device_memory_bytes) = case.report, case.prediction.memory
    return Explanation(
        name=report.name,
        kind=report.kind,
        question=report.question,
        scenario_hash=report.scenario_hash,
        total_s=case.total_s,
        interval_low_s=report.interval_low_s,
        interval_high_s=report.interval_high_s,
        parts=case.parts,
        memory_bytes=memory_bytes,
        device_memory_bytes=device_memory_bytes,
        fits=bool(case.prediction.fits),
        sensitivities=tuple(found),
        without_effect=tuple(knob.name for knob in without),
        tried=tuple(tried),
        refused=tuple(refused),
        awkward=tuple(one.text for one in case.resolved.awkward),
        awkward_s=case.awkward_s(simulate=not quick),
        not_in_interval=report.not_in_interval,
        quick=quick,
        inputs=case.resolved.inputs,
    )


def _try_what_ifs(case: Case, progress: Progress) -> tuple[list[Tried], list[Refused]]:
    """All what-ifs of the kind of a case: those simulated, the greatest gain first, and those refused."""
    tried, refused = list[Tried](), list[Refused]()
    shipped = [one for one in what_ifs().values() if one.subject in case.system.what_ifs]
    every = [*shipped, *neighbours(case.resolved)]
    for i, named in enumerate(every):
        progress("what-ifs", i, len(every), f": {named.name}")
        try:
            one = spell_out(named, case.resolved, case.table, case.where)
            tried.append(_tried(one, case, _differing(case, one.changes)))
        except UserError as error:
            refused.append(Refused(named.name, named.subject, error.faults[0]))
    return sorted(tried, key=lambda one: -one.gain), refused


def _differing(case: Case, changes: Changes) -> Case:
    """The case with changes; a UserError if they do not go with it, or change nothing."""
    other = case.variant(changes)
    if other.resolved.hash == case.resolved.hash:
        raise UserError("it changes nothing here")
    return other


def _tried(one: WhatIf, case: Case, other: Case) -> Tried:
    """The result of a what-if that makes `other` of a case."""
    now, then = case.report, other.report
    found = difference(now.per_unit_s, then.per_unit_s, now.budget, then.budget)
    memory_bytes, device_memory_bytes = other.prediction.memory
    return Tried(
        one.name,
        one.subject,
        one.about,
        one.changes,
        total_s=other.total_s,
        gain=1 - found.ratio,
        gain_interval=found.saving_interval,
        helps=found.faster_probability,
        memory_bytes=memory_bytes,
        device_memory_bytes=device_memory_bytes,
        fits=bool(other.prediction.fits),
        fits_probability=then.fits_probability,
    )


def best_of(tried: Iterable[Tried], *subjects: str, most: int = 3) -> list[Tried]:
    """The changes that save most time and fit into memory; of several with equal results, the first."""
    fitting = [one for one in tried if one.subject in subjects and one.fits and one.gain >= _LEAST]
    distinct = {(one.total_s, one.memory_bytes): one for one in reversed(fitting)}
    return [one for one in fitting if distinct[one.total_s, one.memory_bytes] is one][:most]
