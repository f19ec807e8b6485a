"""A worker: runs the cases of a plan in step with the workers of the other ranks, and tells its supervisor.

It may hang, crash or be killed at any time; its supervisor starts another one for the cases that are left. It has the
device, the process groups and the tensors; the supervisor has none of them.
"""

import ctypes
import gc
import hashlib
import itertools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .case import Facts
from .cases import all_cases
from .device import Device, pick_device
from .environment import environment, gpu_hash, machine_facts
from .job import RESTART, Job
from .meeting import Board
from .plan import Plan, Visit, call_s, plan
from .timing import Bench, Measurement, TooSlowError

_PATIENCE = 5.0  # times the expected duration, before a visit counts as hanging
_FIRST_S = 100.0
"""More for the first visit of a team: it loads cuBLAS and cuDNN, and connects NCCL (55 s once, NVIDIA/nccl#1646)."""

_PR_SET_PDEATHSIG = 1


class Worker:
    """One rank's part of a run."""

    def __init__(self, job: Job, tell: Callable[[dict[str, Any]], object]):
        self.job, self.tell, self.place = job, tell, job.place
        self.board = Board(job.place)
        self.device: Device = pick_device(job.kind, job.place.local_rank)
        self.facts = self._agree_on_facts()
        self.met: set[tuple[int, ...]] = set()
        self.slower: dict[tuple[str, str, str], float] = {}  # than expected, what was left out: by kind

    def run(self) -> int:
        """Visit what is to be done; returns the exit code."""
        todo = self.board.read(f"todo/{self.job.attempt}")
        the_plan = plan(self.facts, self.job.options, all_cases(self.facts, self.job.modules))
        self._check_same(the_plan)
        self.groups = self._join_groups(the_plan)
        torch.manual_seed(self.job.options.seed + self.place.rank)
        for position in todo:
            verdict = self._visit(position, the_plan.visits[position])
            if verdict != "go":
                return RESTART if verdict == "restart" else 0
        return 0

    def _agree_on_facts(self) -> Facts:
        """Rank 0's, with the ranks of every node."""
        if self.job.attempt == 0:
            at = self.board.gather("at", [self.place.node, gpu_hash(self.device), self.job.kind])
            if at:
                nodes = _ranks_by_node(at)
                facts = machine_facts(self.job.kind, nodes, len(nodes[0]))
                self.board.post("facts", asdict(facts))
                self.tell({"facts": asdict(facts), "environment": environment(facts)})
        return Facts.from_json(self.board.read("facts"))

    def _check_same(self, the_plan: Plan) -> None:
        """All ranks must have the same plan, or they would wait for each other for ever."""
        keys = "\n".join(f"{visit.round} {visit.case.key}" for visit in the_plan.visits)
        name = f"plan/{self.job.attempt}"
        plans = self.board.gather(name, hashlib.sha256(keys.encode()).hexdigest())
        if plans:
            other = next((rank for rank, of in enumerate(plans) if of != plans[0]), 0)
            if other:
                needed = "the same flags and the same runcast are needed on all ranks"
                raise ValueError(f"rank {other} would measure other cases than rank 0: {needed}")
            self.board.post(name, True)
        self.board.read(name)

    def _join_groups(self, the_plan: Plan) -> Mapping[tuple[int, ...], Any]:
        """A process group for each team of several ranks; all ranks do this with the same teams."""
        teams = {visit.case.team for visit in the_plan.visits if len(visit.case.team) > 1}
        if not teams:
            return {}
        store = self.board.prefix_store(f"groups/{self.job.attempt}")
        timeout = timedelta(seconds=10 * self.job.options.timeout_s)  # later than the supervisor's own
        place, backend = self.place, self.device.collectives
        dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.ranks, timeout=timeout)
        return {team: dist.new_group(list(team), timeout=timeout) for team in sorted(teams)}

    def _visit(self, position: int, visit: Visit) -> str:
        """Measure with the other ranks; returns `go`, `stop` or `restart`."""
        team, rank = visit.case.team, self.place.rank
        if self._expected_s(visit) > visit.longest_s:
            if rank == 0:
                outcome = TooSlowError(self._expected_s(visit))
                self.tell({"record": visit.case.record(visit.round, outcome), "position": position})
            return "go"
        limit_s = max(self.job.options.timeout_s, _PATIENCE * visit.expected_s)
        if self.facts.cuda and team not in self.met:
            limit_s += _FIRST_S
        self.met.add(team)
        self.tell({"begin": position, "limit_s": limit_s})
        began = time.time()
        mine = self._measure(position, visit) if rank in team else None
        if mine is not None and "error" in mine:
            self.tell({"failed": position, "reason": mine["error"]})
        self.tell({"waiting": position})
        name = f"{self.job.attempt}/{position}"
        if mine is not None and rank:
            self.board.post(f"part/{name}/{rank}", mine)
        if rank == 0:
            self.board.post(f"verdict/{name}", self._judge(name, position, visit, mine, began))
        verdict, slow_s = self.board.read(f"verdict/{name}")
        if slow_s:
            self.slower[_kind(visit)] = slow_s / call_s(visit.case, self.facts)
        return str(verdict)

    def _expected_s(self, visit: Visit) -> float:
        """Of a call, once another of its kind was too slow; the same on all ranks."""
        return self.slower.get(_kind(visit), 1.0) * call_s(visit.case, self.facts)

    def _measure(self, position: int, visit: Visit) -> dict[str, Any]:
        """This rank's samples, or what went wrong and whether the device still works."""
        team, rank, counts = visit.case.team, self.place.rank, itertools.count()

        def exchange(value: Any) -> list[Any]:
            name = f"exchange/{self.job.attempt}/{position}/{next(counts)}"
            self.board.post(f"{name}/{rank}", value)
            return [self.board.read(f"{name}/{other}") for other in team]

        budget_s = self.job.options.budget_s
        bench = Bench(self.device, budget_s, rank, team, self.groups.get(team), exchange, visit.longest_s)
        try:
            return asdict(visit.case.measure(bench))
        except TooSlowError as error:
            return {"slow_s": error.call_s}
        except Exception as error:  # a broken case must not end the run
            lines = str(error).strip().splitlines()
            reason = f"{type(error).__name__}: {lines[0][:300] if lines else 'no message'}"
        finally:
            if self.facts.cuda and self._device_works():
                torch.cuda.empty_cache()  # the next case may need all memory
        gc.collect()  # a traceback holds tensors
        return {"error": reason, "broken": not self._device_works()}

    def _device_works(self) -> bool:
        try:
            self.device.synchronize()
        except Exception:
            return False
        return True

    def _judge(
        self, name: str, position: int, visit: Visit, mine: dict[str, Any] | None, began: float
    ) -> tuple[str, float]:
        """Rank 0 collects all parts, tells the record, and says whether the ranks are still in step.

        And how long a call takes that was too slow, else 0.
        """
        parts = {rank: self.board.read(f"part/{name}/{rank}") for rank in visit.case.team if rank}
        for rank in parts:
            self.board.forget(f"part/{name}/{rank}")
        if mine is not None:
            parts[0] = mine
        when = {"began": round(began, 1), "took_s": round(time.time() - began, 3)}
        outcome = join_parts(parts)
        self.tell({"record": visit.case.record(visit.round, outcome) | when, "position": position})
        failed = [part for part in parts.values() if "error" in part]
        if failed and (len(failed) < len(parts) or any(part["broken"] for part in failed)):
            return "restart", 0.0
        over = self.job.stop_at and time.time() > self.job.stop_at
        return "stop" if over else "go", outcome.call_s if isinstance(outcome, TooSlowError) else 0.0


def _kind(visit: Visit) -> tuple[str, str, str]:
    """What is alike slow: family, name and cost class, which has the data type."""
    return visit.case.family, visit.case.name, visit.case.cost_class


def _ranks_by_node(at: list[list[Any]]) -> tuple[tuple[int, ...], ...]:
    """The ranks of each node, from every rank's node, GPU and kind of device."""
    for rank, (node, gpu, kind) in enumerate(at):
        if gpu and [node, gpu, kind] in at[:rank]:
            raise ValueError(f"ranks {at.index([node, gpu, kind])} and {rank} share a GPU: start one rank per GPU")
        if kind != at[0][2]:
            raise ValueError(f"rank 0 measures {at[0][2]}, but rank {rank} {kind}: no GPU there? Give --device")
    nodes = [node for node, _, _ in at]
    return tuple(tuple(rank for rank, of in enumerate(nodes) if of == node) for node in sorted(set(nodes)))


_LEFT = "Connection closed by peer"
"""What Gloo says on the ranks that another one has left."""


def join_parts(parts: Mapping[int, dict[str, Any]]) -> Measurement | TooSlowError | str:
    """One measurement of all ranks: the mean of their times, as nccl-tests has it; the sum of wrong elements.

    Where ranks have different numbers of samples, as beside a noise, all of them stand side by side.
    """
    errors = {rank: part["error"] for rank, part in sorted(parts.items()) if "error" in part}
    if errors:
        rank = min(errors, key=lambda rank: _LEFT in errors[rank])  # the first one that is no consequence of another's
        return errors[rank] if len(parts) == 1 else f"rank {rank}: {errors[rank]}"
    first = parts[min(parts)]
    if "slow_s" in first:
        return TooSlowError(first["slow_s"])
    times = [part["samples_s"] for part in parts.values()]
    alike = len({len(samples) for samples in times}) == 1
    samples = [sum(row) / len(row) for row in zip(*times, strict=True)] if alike else [s for own in times for s in own]
    wrong = [part["wrong"] for part in parts.values() if part["wrong"] is not None]
    return Measurement(tuple(samples), sum(wrong) if wrong else None, first["more"])


def main(arguments: list[str]) -> int:
    """`... worker PARENT FD JOB`: what it tells goes to that file descriptor, which no process of its own inherits."""
    parent, descriptor, job = int(arguments[0]), int(arguments[1]), Job.from_text(arguments[2])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # Linux ends this process when its supervisor ends
    if os.getppid() != parent:  # it has ended already
        os._exit(1)
    os.set_inheritable(descriptor, False)
    pipe = os.fdopen(descriptor, "w", buffering=1)

    def tell(message: dict[str, Any]) -> None:
        pipe.write(json.dumps(message) + "\n")

    try:
        code = Worker(job, tell).run()
    except ConnectionError:  # its supervisor sees that too, and says so
        return 1
    except ValueError as error:  # a mistake of the user's: visits have errors of their own
        tell({"mistake": str(error)})
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    pipe.flush()
    return code


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main(sys.argv[1:]))  # libraries' own farewells may wait for ranks that are gone
