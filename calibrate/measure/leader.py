"""What rank 0 does beside supervising its worker: the file of records, the plan, and what the user sees."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .cases import all_cases
from .ending import GO_ON, RunEndError
from .environment import identity
from .facts import Facts
from .job import Job
from .plan import Plan, plan
from .progress import Progress, duration
from .records import Record, Writer, key_of, read_records, record_of, visits_in
from .statistics import wide


class Leader:
    """A `Listener`: knows what is done, writes what comes."""

    def __init__(self, job: Job, out: Path, retry: bool):
        self.job, self.out, self.retry = job, out, retry
        self.plan = Plan((), {})
        self.left: list[int] = []
        self.records: list[dict[str, Any]] = []
        self.progress = Progress(0, 0.0)
        self.writer: Writer | None = None

    def heard(self, message: dict[str, Any]) -> None:
        """From this rank's worker."""
        if "facts" in message:
            self._begin(Facts.from_json(message["facts"]), message["environment"])
        elif "begin" in message:
            visit = self.plan.visits[message["begin"]]
            self.progress.begin(visit.case.key, visit.expected_s)
        elif "record" in message:
            self._write(message["position"], message["record"])

    def gave_up(self, position: int, reason: str) -> None:
        """A visit that no rank will finish, unless it has been written already; later rounds spare that case.

        They get a record too, so that neither they nor the same command afterwards run into it again.
        """
        if position not in self.left:
            return
        visits = self.plan.visits
        for later in [left for left in self.left if visits[left].case.key == visits[position].case.key]:
            told = reason if later == position else f"spared, since an earlier round gave up: {reason}"
            self._write(later, record_of(visits[later].case, visits[later].round, told))

    def todo(self, after: int) -> list[int]:
        """Positions that are left."""
        return [position for position in self.left if position > after]

    def close(self) -> None:
        """No more records; say what there is."""
        if self.writer is None:
            return
        self.writer.close()
        for line in self.summary():
            self.progress.line(line)
        for line in self._verdict():
            self.progress.line(line)

    def _verdict(self) -> list[str]:
        """What has been written, whether it can be trusted, and what to do with it."""
        good = [record for record in self.records if "error" not in record]
        shaky = sum(wide(record["samples"]) == "very wide" for record in good)
        done = f"wrote {len(self.records)} records to {self.out}" if self.records else f"nothing to add to {self.out}"
        lines = [f"{shaky} of {len(good)} spreads are very wide: does something else run here?"] * (
            4 * shaky > len(good)
        )
        lines += [done + (f"; {len(self.left)} visits are left: {GO_ON}" if self.left else "")]
        fit = f"runcast calibrate fit {self.out} --out {self.out.stem}.json"
        return lines + [f"next: python -m runcast.calibrate show {self.out}, or {fit}"] * (not self.left)

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
        visits = enumerate(self.plan.visits)
        self.left = [position for position, visit in visits if (visit.case.key, visit.round) not in done]
        if not before:
            self._append(environment)
        self._announce(environment, facts)

    def _check_same_machine(self, before: list[dict[str, Any]], environment: dict[str, Any]) -> None:
        """A file holds records of one machine and one software."""
        if not before:
            return
        for key, value in identity(environment).items():
            known, here = before[0].get(key), json.loads(json.dumps(value))
            if known != here:
                raise ValueError(
                    f"{self.out}: was measured with {key} = {known}, here it is {here}; name another --out"
                )

    def _announce(self, environment: dict[str, Any], facts: Facts) -> None:
        left_s = sum(self.plan.visits[position].expected_s for position in self.left)
        total, ranks = len(self.plan.visits), f"{facts.ranks} rank{'s' if facts.ranks > 1 else ''}"
        self.progress = Progress(len(self.left), left_s)
        self.progress.line(f"{environment['gpu']}, {ranks} on {len(facts.nodes)} node(s), {facts.collectives}")
        load, cpus, here = os.getloadavg()[0], os.cpu_count() or 1, len(facts.nodes[0])
        if load > 0.5 * cpus:
            self.progress.line(f"warning: the load of this node is {load:.1f} on {cpus} CPUs: times will be too long")
        if environment.get("gpus_visible", here) < here:
            self.progress.line("warning: ranks see their own GPU only, and NCCL may not find NVLink: --gpu-bind=none")
        if not facts.cuda and here > cpus:
            self.progress.line(f"warning: {here} ranks on {cpus} CPUs wait for each other")
        for reason, count in self.plan.left_out.items():
            self.progress.line(f"left out: {count} cases: {reason}")
        resumed = f", {total - len(self.left)} of {total} are in {self.out} already" if len(self.left) < total else ""
        self.progress.line(f"{len(self.left)} visits of cases, about {duration(left_s)}{resumed}")

    def _write(self, position: int, record: dict[str, Any]) -> None:
        self._append(record)
        self.records.append(record)
        self.left.remove(position)
        self.progress.done()
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

    def summary(self) -> list[str]:
        """What was measured, by family, and what to look at."""
        lines = []
        for family in sorted({record["group"] for record in self.records}):
            of = [record for record in self.records if record["group"] == family]
            good = [record for record in of if "error" not in record]
            shaky = [wide(record["samples"]) for record in good]
            told = [f"{_cases(good)} cases measured"]
            told += [f"{_cases(of) - _cases(good)} failed"] if _cases(good) < _cases(of) else []
            told += [f"{shaky.count('wide')} of {len(good)} spreads wide"] if "wide" in shaky else []
            told += [f"{shaky.count('very wide')} very wide"] if "very wide" in shaky else []
            wrong = sum(bool(record.get("wrong")) for record in good)
            told += [f"{wrong} with wrong results"] if wrong else []
            lines.append(f"{family:14s} {', '.join(told)}")
        return lines


def _cases(records: Iterable[Record]) -> int:
    return len({key_of(record) for record in records})
