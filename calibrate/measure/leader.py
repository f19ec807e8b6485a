"""What rank 0 does beside supervising its worker: the file of records, the plan, and what the user sees."""

import json
from pathlib import Path
from typing import Any

from . import messages
from .case import Facts
from .cases import all_cases
from .environment import identity
from .job import Job
from .messages import Progress, RunEndError
from .plan import Plan, plan
from .records import Writer, read_records, visits_in


class Leader:
    """Knows what is done, writes what comes."""

    def __init__(self, job: Job, out: Path, retry: bool):
        self.job, self.out, self.retry = job, out, retry
        self.plan = Plan((), {})
        self.left: list[int] = []
        self.records: list[dict[str, Any]] = []
        self.progress = Progress(0, 0.0)
        self.writer: Writer | None = None

    def handle(self, message: dict[str, Any]) -> None:
        """A message of this rank's worker."""
        if "facts" in message:
            self._begin(Facts.from_json(message["facts"]), message["environment"])
        elif "begin" in message:
            visit = self.plan.visits[message["begin"]]
            self.progress.begin(visit.case.key, visit.expected_s)
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
            verdict = messages.verdict(self.records, len(self.left), self.out)
            self._say([*messages.summary(self.records), *verdict])

    def _begin(self, facts: Facts, environment: dict[str, Any]) -> None:
        """Once the first worker knows the machine: what there is to do here."""
        try:
            self.plan = plan(facts, self.job.options, all_cases(facts, self.job.modules))
            before = read_records(self.out) if self.out.exists() else []
            self._check_same_machine(before, environment)
            self.writer = Writer(self.out)
        except ValueError as error:
            raise RunEndError(2, str(error)) from None
        except OSError as error:
            raise RunEndError(2, f"--out = {str(self.out)!r}: {error.strerror}") from None
        done = visits_in(before, failed_too=not self.retry)
        visits = self.plan.visits
        self.left = [position for position, visit in enumerate(visits) if (visit.case.key, visit.round) not in done]
        if not before:
            self._append(environment)
        left_s = sum(visits[position].expected_s for position in self.left)
        self.progress = Progress(len(self.left), left_s)
        self._say(
            [
                messages.machine_line(environment, facts),
                *messages.warnings(environment, facts),
                *messages.left_out(self.plan.left_out),
                messages.work_line(len(self.left), len(visits) - len(self.left), left_s, self.out),
            ]
        )

    def _check_same_machine(self, before: list[dict[str, Any]], environment: dict[str, Any]) -> None:
        """A file holds records of one machine and one software."""
        for key, value in identity(environment).items() if before else ():
            known, here = before[0].get(key), json.loads(json.dumps(value))
            if known != here:
                raise ValueError(
                    f"{self.out}: was measured with {key} = {known}, here it is {here}; name another --out"
                )

    def _write(self, position: int, record: dict[str, Any]) -> None:
        self._append(record)
        self.records.append(record)
        self.left.remove(position)
        self.progress.end()
        key = self.plan.visits[position].case.key
        if "error" in record:
            self.progress.line(f"failed: {key}: {record['error']}")
        elif record["wrong"]:
            self.progress.line(f"wrong: {key}: {record['wrong']} elements of the result are wrong")

    def _append(self, record: dict[str, Any]) -> None:
        assert self.writer is not None
        try:
            self.writer.append(record)
        except OSError as error:
            raise RunEndError(1, f"cannot write {self.out}: {error.strerror}") from None

    def _say(self, lines: list[str]) -> None:
        for line in lines:
            self.progress.line(line)
