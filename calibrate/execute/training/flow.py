"""The state of one micro-batch in one stage while its ops are bound: what the next op reads, what backwards need."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .slots import Act, Slot

Made = tuple[Act, list[Slot], Slot | None]  # an op, what it gives, and its record for the backward
Key = tuple[int, str, int]  # layer, label, which of several in the layer


class Op(NamedTuple):
    """What an op reads of a flow (and which parameters, as further arguments), what it gives, and what it does.

    With `learns` its gradients come from a record of its run.
    """

    takes: tuple[str, ...]
    gives: tuple[str, ...]
    work: Callable[..., Any]
    weights: tuple[str, ...] = ()
    learns: bool = False


@dataclass(eq=False)
class Step:
    """An op of a forward as it ran last: what it read and gave, its record, and how to run it again.

    `gradient` is that of what it gave, once the backward has it; `gathered` is what it read, gathered again.
    """

    takes: list[Slot]
    gives: list[Slot]
    record: Slot | None
    make: Callable[[list[Slot]], Made]
    exchanges: bool = False
    gradient: Slot | None = None
    gathered: Slot | None = None


@dataclass(eq=False)
class Flow:
    """One micro-batch in one stage.

    `now` names what the last op gave, on which an exchange acts: `x` (the residual stream), `h` (a branch), `loss` in
    forwards; `dx` or `dh`, their gradients, in backwards. While there is an `s` or `ds`, the branch of shared experts
    beside that of routed ones, networks and exchanges of tensor parallelism act on it. `at` has the slots of all.
    """

    stage: int
    microbatch: int
    at: dict[str, Slot] = field(default_factory=dict)
    now: str = "x"
    steps: dict[Key, Step] = field(default_factory=dict)
    renewed: dict[Slot, Slot] = field(default_factory=dict)
    _counts: dict[str, Counter[tuple[int, str]]] = field(default_factory=dict)

    @property
    def branch(self) -> str:
        """The branch that a dense network is on in a forward."""
        return "s" if "s" in self.at else "h"

    @property
    def back(self) -> str:
        """The gradient that a dense network's backward takes and gives."""
        return "ds" if "ds" in self.at else "dh"

    def next_key(self, way: str, layer: int, label: str) -> Key:
        """The key of the next op of this label: `way` is forward, again (both count up) or backward (counts down)."""
        key = self.peek_key(way, layer, label)
        self._counts[way][layer, label] += 1
        return key

    def peek_key(self, way: str, layer: int, label: str) -> Key:
        """The key that `next_key` will give."""
        place = self._counts.setdefault(way, Counter())[layer, label]
        if way in ("backward", "weights"):
            place = self._counts["forward"][layer, label] - 1 - place
        return layer, label, place

    def newest(self, slot: Slot) -> Slot:
        """What a slot has become by recomputation."""
        while slot in self.renewed:
            slot = self.renewed[slot]
        return slot

    def giver(self, slot: Slot) -> Step | None:
        """The step that gave a slot, as it ran first or last."""
        slot = self.newest(slot)
        return next((step for step in self.steps.values() if slot in step.gives), None)

    def run_again(self, step: Step) -> Act:
        """Bind a step once more, on what it reads by now."""
        before = step.gives
        step.takes = [self.newest(slot) for slot in step.takes]
        work, step.gives, step.record = step.make(step.takes)
        self.renewed.update(zip(before, step.gives, strict=True))
        return work
