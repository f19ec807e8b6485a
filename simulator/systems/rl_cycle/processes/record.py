"""What happens in a cycle, written down and given as a Timeline: tables, charts and traces like those of an update."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ....program import ProgramBuilder
from ....timeline import Timeline
from .plan import CyclePlan


@dataclass(frozen=True)
class Span:
    """Something that ran; `after` are the spans whose end let it start."""

    kind: str
    name: str
    lanes: tuple[int, ...]
    start_s: float
    end_s: float
    after: tuple[int, ...]
    step: int


class Record:
    """Lanes: one for each engine, and after them one for the trainer if it has GPUs of its own."""

    def __init__(self, plan: CyclePlan):
        self.plan = plan
        self.engines = tuple(range(plan.rollouts.engines))
        self.trainer = self.engines if plan.switch is not None else (len(self.engines),)
        self.spans: list[Span] = []
        self._last: dict[int, int] = {}  # by lane, its last span
        self._open: dict[int, tuple[str, int, float, tuple[int, ...]]] = {}  # by engine: kind, step, start, after

    def add(
        self, kind: str, name: str, lanes: Sequence[int], start_s: float, end_s: float, after: Sequence[int], step: int
    ) -> int:
        """Write down a span that ended, and give its number."""
        self.spans.append(Span(kind, name, tuple(lanes), start_s, end_s, tuple(after), step))
        self._last.update(dict.fromkeys(lanes, len(self.spans) - 1))
        return len(self.spans) - 1

    def watch(self, engine: int, kind: str, step: int, now_s: float, opening: tuple[int, ...]) -> None:
        """What an engine does from now on, if that is new; `opening` let it start, unless it did something until now.

        An empty kind is nothing.
        """
        if self._open.get(engine, ("",))[0] == kind:
            return
        self.close([engine], now_s)
        if kind:
            last = self._last.get(engine, -1)
            goes_on = last >= 0 and self.spans[last].end_s == now_s
            self._open[engine] = kind, step, now_s, (last,) if goes_on else opening

    def close(self, engines: Iterable[int], now_s: float) -> tuple[int, ...]:
        """Write down what runs on these engines, until now; the numbers of the spans that end."""
        closed = list[int]()
        for engine in engines:
            kind, step, start_s, after = self._open.pop(engine, ("", 0, 0.0, ()))
            if kind and start_s < now_s:
                closed.append(self.add(kind, f"{kind} {step}", [engine], start_s, now_s, after, step))
        return tuple(closed)

    def last_of_engines(self) -> tuple[int, ...]:
        """The last span of every engine that has one."""
        return tuple(self._last[engine] for engine in self.engines if engine in self._last)

    def timeline(self) -> Timeline:
        """All spans as ops of a Program, with their times."""
        builder, plan = ProgramBuilder(), self.plan
        each = plan.rollout_gpus // plan.rollouts.engines
        lanes = [
            builder.lane(builder.place(f"engine {engine}", range(engine * each, (engine + 1) * each)), "gpu")
            for engine in self.engines
        ]
        if plan.switch is None:
            last = plan.rollout_gpus + plan.trainer_gpus
            lanes.append(builder.lane(builder.place("trainer", range(plan.rollout_gpus, last)), "gpu"))
        for span in self.spans:
            builder.op(
                span.kind, [lanes[lane] for lane in span.lanes], span.after, name=span.name, tags={"step": span.step}
            )
        return Timeline(
            program=builder.build(),
            start_s=np.array([span.start_s for span in self.spans]),
            end_s=np.array([span.end_s for span in self.spans]),
            cause=np.array([self._cause(span) for span in self.spans], np.int64),
            cancelled=np.zeros(len(self.spans), bool),
        )

    def _cause(self, span: Span) -> int:
        """Of the spans that it came after, the one that ended last."""
        return max(span.after, key=lambda before: self.spans[before].end_s, default=-1)
