"""What rank 0 does beside supervising its worker: the file of records, the plan, and the progress that the user sees.

Progress is a bar on a terminal, and a line now and then elsewhere.
"""

import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .case import Facts
from .cases import all_cases
from .environment import IDENTITY
from .job import Job
from .messages import RunEndError, closing_lines, duration, opening_lines, say
from .plan import Plan, plan
from .records import Writer, read_records, visits_in

_LINE_EVERY_S = 15.0
_BAR_WIDTH = 24


class Leader:
    """Knows what is done, writes what comes."""

    def __init__(self, job: Job, out: Path, retry: bool):
        self.job, self.out, self.retry = job, out, retry
        self.plan = Plan((), {})
        self.left: list[int] = []
        self.records: list[dict[str, Any]] = []
        self.writer: Writer | None = None
        self.total, self.total_s = 0, 0.0  # of what was left in the beginning
        self.start_s = self.last_line_s = time.monotonic()

    def handle(self, message: dict[str, Any]) -> None:
        """A message of this rank's worker."""
        if "facts" in message:
            self._begin(Facts.from_json(message["facts"]), message["environment"])
        elif "begin" in message:
            self._show_progress(self.plan.visits[message["begin"]].case.key)
        elif "record" in message:
            self._write(message["position"], message["record"])

    def give_up(self, position: int, reason: str) -> None:
        """No rank will finish this visit, unless it has been written already; later rounds spare that case.

        They get a record too, so that neither they nor the same command afterwards run into it again.
        """
        if position not in self.left:
            return
        visits = self.plan.visits
        for later in [left for left in self.left if visits[left].case.key == visits[position].case.key]:
            error = reason if later == position else f"spared, since an earlier round gave up: {reason}"
            self._write(later, visits[later].case.record(visits[later].round, error))

    def todo(self, after: int) -> list[int]:
        """Positions that are left after that one."""
        return [position for position in self.left if position > after]

    def close(self) -> None:
        """No more records; say what there is."""
        if self.writer is not None:
            self.writer.close()
            self._say(closing_lines(self.records, len(self.left), self.out))

    def _begin(self, facts: Facts, environment: dict[str, Any]) -> None:
        """Once the first worker knows the machine: what there is to do here."""
        try:
            self.plan = plan(facts, self.job.options, all_cases(facts, self.job.modules))
            before = read_records(self.out) if self.out.exists() else []
            self._check_same_machine(before, environment)
            self._check_same_budget(before)
            self.writer = Writer(self.out)
        except ValueError as error:
            raise RunEndError(2, str(error)) from None
        except OSError as error:
            raise RunEndError(2, f"--out = {str(self.out)!r}: {error.strerror}") from None
        done = visits_in(before, failed_too=not self.retry)
        visits = self.plan.visits
        self.left = [position for position, visit in enumerate(visits) if (visit.case.key, visit.round) not in done]
        if not before:
            self._append(environment | self._budget)
        self.total, self.total_s, self.start_s = len(self.left), self._left_s(), time.monotonic()
        self._say(opening_lines(environment, facts, self.plan, self.total, self.total_s, self.out))

    def _check_same_machine(self, before: list[dict[str, Any]], environment: dict[str, Any]) -> None:
        """A file holds records of one machine and one software."""
        for key in IDENTITY if before else ():
            known, here = before[0].get(key), json.loads(json.dumps(environment.get(key)))
            if known != here:
                raise ValueError(
                    f"{self.out}: was measured with {key} = {known}, here it is {here}; name another --out"
                )

    @property
    def _budget(self) -> dict[str, Any]:
        """How long a visit lasts, and whether it leaves out what --quick does; as files of records have it."""
        options = self.job.options
        return {"quick": options.quick, "budget_ms": float(f"{1e3 * options.budget_s:g}")}

    def _check_same_budget(self, before: list[dict[str, Any]]) -> None:
        """A file holds visits of one budget, unless it is of a release that did not note it."""
        here = _flags(self._budget)
        there = _flags(before[0]) if before and "budget_ms" in before[0] else here
        if there != here:
            raise ValueError(
                f"{self.out}: was measured with {there}, here it is {here}; name another --out, or give the same flags"
            )

    def _write(self, position: int, record: dict[str, Any]) -> None:
        self._append(record)
        self.records.append(record)
        self.left.remove(position)
        key = self.plan.visits[position].case.key
        if "error" in record:
            self._say([f"failed: {key}: {record['error']}"])
        elif record.get("wrong"):
            self._say([f"wrong: {key}: {record['wrong']} elements of the result are wrong"])

    def _append(self, record: dict[str, Any]) -> None:
        assert self.writer is not None
        try:
            self.writer.append(record)
        except OSError as error:
            raise RunEndError(1, f"cannot write {self.out}: {error.strerror}") from None

    def _left_s(self) -> float:
        return sum(self.plan.visits[position].expected_s for position in self.left)

    def _show_progress(self, name: str) -> None:
        """How much is done, and how long the rest takes at the pace so far."""
        left_s, now = self._left_s(), time.monotonic()
        spent_s = self.total_s - left_s
        left = duration(left_s * ((now - self.start_s) / spent_s if spent_s > 1 else 1.0))
        done = self.total - len(self.left)
        if sys.stderr.isatty():
            bar = "#" * round(_BAR_WIDTH * done / max(self.total, 1))
            text = f"[{bar:.<{_BAR_WIDTH}}] {done}/{self.total} {left} left  {name}"
            print(f"\r\x1b[K{text[:110]}", end="", file=sys.stderr, flush=True)
        elif now - self.last_line_s > _LINE_EVERY_S:
            self._say([f"{done}/{self.total} visits, about {left} left"])

    def _say(self, lines: Iterable[str]) -> None:
        """Lines in place of the bar."""
        for line in lines:
            say(f"\r\x1b[K{line}" if sys.stderr.isatty() else line)
        self.last_line_s = time.monotonic()


def _flags(budget: Mapping[str, Any]) -> str:
    """The flags that give a budget."""
    return f"{'--quick ' if budget.get('quick') else ''}--budget-ms {budget['budget_ms']}"
