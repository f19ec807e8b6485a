"""Spans of training for charts: what it does, week after week, each checkpoint, and the first steps one by one."""

from collections.abc import Mapping

from ..history import CAUSES, Recorder
from ..sync.rounds import Parts
from .saved import Stretch

LANE = "run"
_SHOWN_CHECKPOINTS = 5000  # the first ones
_SHOWN_STEPS = 100  # at the start of a run


class TrainingChart:
    """Writes spans into `recorder`; steps and checkpoints only where the run is `drawn`."""

    def __init__(self, recorder: Recorder, drawn: bool):
        self._recorder, self._checkpoints = recorder, _SHOWN_CHECKPOINTS
        self._steps = _SHOWN_STEPS if drawn else 0

    def work(self, seconds: Mapping[str, float], start_s: float, name: str) -> None:
        """A stretch of steps by cause: these are too short to be seen, so each cause has a span of all its seconds."""
        for cause in CAUSES:
            if cause in seconds:
                self._recorder.span(LANE, cause, start_s, start_s + seconds[cause], name)
                start_s += seconds[cause]

    def lose(self, seconds: Mapping[str, float]) -> None:
        """The last seconds of work by cause are lost."""
        for cause, lost_s in seconds.items():
            self._recorder.turn(LANE, cause, lost_s, "lost")

    def checkpoints(self, stretch: Stretch, lasted_s: float, start_s: float) -> None:
        """When training stood for each checkpoint of a stretch."""
        for begin_s, end_s in stretch.checkpoints(lasted_s)[: self._checkpoints]:
            self._recorder.span("checkpoints", "checkpoint", start_s + begin_s, start_s + end_s)
            self._checkpoints -= 1

    def steps(self, parts: Parts, rounds: int, start_s: float) -> None:
        """The first steps of a run."""
        for i in range(min(rounds, self._steps)):
            for cause in ("input", "compute", "wait", "encode", "exchange", "pause"):
                if cause in parts:
                    end_s = start_s + float(parts[cause][i])
                    self._recorder.span("step", cause, start_s, end_s, f"{cause} {i}")
                    start_s = end_s
        self._steps -= min(rounds, self._steps)
