"""What a search must know of a kind of scenario, as a record; `steps` and `updates` have one each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...base.memo import Memo
from ...scenario import Changes, changed, check_question
from .found import Measured, Row
from .space import Space
from .wanted import Wanted


@dataclass(frozen=True)
class Subject:
    """A kind of scenario that can be searched.

    `objectives` may be asked for, the first one is the default. Plans are tried at the first of `levels` and the best
    ones checked at the last, if predictions have any. `speed` is what a simulation says, in words, under the heading
    `speed_name`. `resolve` finds what a scenario's names stand for, `space` makes the space of plans of that.
    `states_bytes` is what a plan needs at least, before its scenario is made; `screened` what is known of that scenario
    without a simulation, given these; `measured` what a report says of it. `export` gives it as Megatron-LM's
    arguments, to be printed.
    """

    objectives: tuple[str, ...]
    levels: tuple[str, ...]
    speed_name: str
    speed: Callable[[Measured], str]
    resolve: Callable[[Any, str], Any]
    space: Callable[[Mapping[str, Any], Any, Wanted], Space]
    states_bytes: "Callable[[Asked, Changes, Memo], float]"
    screened: "Callable[[Asked, Changes, Any, float, Memo], Row]"
    measured: "Callable[[Asked, Any], Measured]"
    export: Callable[[Any, str], object] | None = None


@dataclass(frozen=True)
class Asked:
    """The question: a scenario as a table, where it stands, what is wanted, the memory that a plan may take, and the
    levels of predictions of its kind, coarsest first.
    """

    table: Mapping[str, Any]
    where: str
    objective: str
    memory_bytes: float
    levels: tuple[str, ...]

    def scenario(self, changes: Changes, finest: bool = False) -> Any:
        """The scenario of a plan, at the coarsest level or at the finest.

        Raises:
            UserError: it says what is not allowed.
        """
        extra = {"level": self.levels[-1 if finest else 0]} if self.levels else {}
        return check_question(changed(self.table, {**changes, **extra}, self.where), self.where)
