"""How far a run is: a bar on a terminal, a line now and then elsewhere."""

import sys
import time

_LINE_EVERY_S = 15.0
_WIDTH = 24


def duration(seconds: float) -> str:
    """`42 s`, `3 min`, `1 h 20 min`."""
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """Of `total` visits that were expected to take so long together; the rest is estimated from how that held."""

    def __init__(self, total: int, expected_s: float):
        self.total, self.expected_s = total, expected_s
        self.count, self.spent_s, self.current_s = 0, 0.0, 0.0
        self.started = time.monotonic()
        self.printed = self.started
        self.terminal = sys.stderr.isatty()

    def begin(self, name: str, expected_s: float) -> None:
        """A visit begins."""
        self.current_s = expected_s
        if self.terminal:
            self._draw(name)
        elif time.monotonic() - self.printed > _LINE_EVERY_S:
            self.line(f"{self.count}/{self.total} visits, about {duration(self.left_s())} left")

    def done(self) -> None:
        """A visit has ended."""
        self.count += 1
        self.spent_s += self.current_s

    def left_s(self) -> float:
        """What is left, at the pace so far."""
        took, left = time.monotonic() - self.started, self.expected_s - self.spent_s
        return max(left, 0.0) * (took / self.spent_s if self.spent_s > 1 else 1.0)

    def line(self, text: str) -> None:
        """A line of its own."""
        self._clear()
        print(text, file=sys.stderr, flush=True)
        self.printed = time.monotonic()

    def _draw(self, name: str) -> None:
        full = round(_WIDTH * self.count / max(self.total, 1))
        bar = "#" * full + "." * (_WIDTH - full)
        text = f"[{bar}] {self.count}/{self.total} {duration(self.left_s())} left  {name}"
        print(f"\r\x1b[K{text[:110]}", end="", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
