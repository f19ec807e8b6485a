"""Small runs of real processes, and what the simulation says of them: five ways to train on four workers.

The delays are injected: a step is a sleep, a transfer is a sleep of the server. What real messages cost beside them is
measured before each run and given to the simulation. A machine may be busy: a run has three tries to agree.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import pytest
import torch
import torch.distributed as dist
from runcast.simulator.systems.run.spread import Spread
from runcast.simulator.systems.run.sync.compression import Compress, Gpus, Gradient, Message, compress
from runcast.simulator.systems.run.sync.rounds import EachStep, Local, Rounds
from runcast.simulator.systems.run.sync.server import run_servers
from runcast.simulator.systems.run.sync.server_plan import Server, ServerPlan
from runcast.simulator.systems.run.team import Team

from ..make import train
from .processes import run_ranks
from .rounds import VALUES, Trained, loss_gradient, run_local, run_top_k
from .servers import RealRun, replay, run_real

pytestmark = [pytest.mark.slow, pytest.mark.alone]

TRIES = 3
WORKERS = 4
JITTER = Spread(kind="lognormal", spread=0.25)
TEAM = Team(WORKERS, step_s=0.03, samples=1.0, jitter=JITTER)
PUSHING = replace(TEAM, gradient_bytes=8e6)  # 4 ms each on the server's link
UNEQUAL = replace(PUSHING, speeds=(1.0, 1.0, 1.0, 1.6))
LINK_BYTES_PER_S = 2e9
SERVERS = {
    "synchronous": ServerPlan(PUSHING, 60, Server(update="synchronous"), LINK_BYTES_PER_S),
    "asynchronous": ServerPlan(TEAM, 400, Server(rpc=0.001, apply=0.004)),
    "stale": ServerPlan(UNEQUAL, 300, Server(update="stale", bound=2), LINK_BYTES_PER_S),
}
ROUNDS, INNER = 40, 4  # of local SGD
STEPS, DENSITY = 100, 1 / 128  # of top-k


@dataclass(frozen=True)
class Pair:
    """A real run beside its simulation: updates per second and mean staleness, as (real, simulated)."""

    real: Any
    per_s: tuple[float, float]
    stale: tuple[float, float] = (0.0, 0.0)

    def __repr__(self) -> str:
        (real, simulated), (is_stale, stale) = self.per_s, self.stale
        gap = f"{real:.2f} updates/s real, {simulated:.2f} simulated ({real / simulated - 1:+.1%})"
        return f"{gap}; {is_stale:.3f} and {stale:.3f} updates behind"

    @property
    def agrees(self) -> bool:
        """Whether throughput is within 10 % of the simulated one, and staleness within 0.1."""
        return abs(self.per_s[0] / self.per_s[1] - 1) < 0.1 and abs(self.stale[0] - self.stale[1]) < 0.1


def try_to_agree(name: str, run: Callable[[], Pair]) -> Pair:
    """The first try that agrees, or the last one; each is printed."""
    for _ in range(TRIES):
        pair = run()
        print(f"{name}: {pair}")
        if pair.agrees:
            break
    return pair


def in_ms(costs_s: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {1e3 * seconds:.2f} ms" for name, seconds in costs_s.items())


# Parameter servers


@pytest.fixture(scope="module", params=SERVERS)
def server(request):
    return try_to_agree(request.param, lambda: compare_servers(SERVERS[request.param]))


def compare_servers(plan: ServerPlan) -> Pair:
    real = run_real(plan)
    simulated = run_servers(real.measured)
    print_costs(real)
    print_histograms(real.served.staleness, simulated.staleness)
    per_s = plan.steps / real.served.wall_s, simulated.steps / simulated.wall_s
    return Pair(real, per_s, (mean_age(real.served.staleness), simulated.staleness_mean))


def mean_age(ages: Mapping[int, int]) -> float:
    return sum(age * count for age, count in ages.items()) / sum(ages.values())


def print_costs(real: RealRun) -> None:
    team, server = real.measured.team, real.measured.server
    costs_s = {"latency": team.latency_s, "rpc": server.rpc, "apply": server.apply}
    print(f"measured: {in_ms(costs_s)}; {in_ms({'steps end late by': real.late_s})}")


def print_histograms(real: Mapping[int, int], simulated: Mapping[int, int]) -> None:
    for age in sorted(real | simulated):
        shares = [ages.get(age, 0) / sum(ages.values()) for ages in (real, simulated)]
        print("  {:2d} updates behind: {:6.1%} real, {:6.1%} simulated".format(age, *shares))


def test_a_real_server_is_as_fast_as_simulated_and_gradients_are_as_stale(server):
    assert server.agrees, server


def test_parameters_are_the_sum_of_what_was_pushed(server):
    served, pushed = server.real.served, server.real.pushed
    total = torch.stack([pushed[one.worker][one.step] for one in served.applied]).sum(0)
    assert torch.allclose(served.parameters, -total, rtol=1e-9)


def test_one_process_gets_the_same_parameters(server):
    """It computes each gradient on the version that the worker says to have read: gradients are as stale as counted."""
    served = server.real.served
    assert torch.allclose(served.parameters, replay(served.applied), rtol=1e-9)


def test_no_worker_is_further_ahead_than_it_may_be(server):
    """By one step more, when it has pushed and the slowest has not."""
    done, ahead = [0] * WORKERS, 0
    for one in server.real.served.applied:
        done[one.worker] += 1
        ahead = max(ahead, max(done) - min(done))
    assert ahead <= server.real.measured.server.most_ahead + 1


# Rounds


@pytest.fixture(scope="module")
def local():
    return try_to_agree("local SGD", lambda: compare_rounds(run_local(TEAM, ROUNDS, INNER), ROUNDS * INNER, averaging))


@pytest.fixture(scope="module")
def top_k():
    count = round(DENSITY * VALUES)
    return try_to_agree("top-k", lambda: compare_rounds(run_top_k(TEAM, STEPS, count), STEPS, gathering))


def compare_rounds(real: list[Trained], steps: int, rounds_of: Callable[[Mapping[str, float]], Rounds]) -> Pair:
    """Many more steps are simulated, so that only those of the real run are few."""
    costs_s = {name: fmean(one.costs_s[name] for one in real) for name in real[0].costs_s}
    print(f"measured: {in_ms(costs_s)}; {in_ms({'steps end late by': fmean(one.late_s for one in real)})}")
    simulated = train(rounds_of(costs_s), ranks=WORKERS, workers=WORKERS, jitter=JITTER, steps=50 * steps)
    return Pair(real, (steps / max(one.wall_s for one in real), simulated.steps / simulated.wall_s))


def averaging(costs_s: Mapping[str, float]) -> Rounds:
    return Local(TEAM.step_s, INNER, costs_s["exchange"])


def gathering(costs_s: Mapping[str, float]) -> Rounds:
    message = top_k_message(costs_s)
    return EachStep(TEAM.step_s, costs_s["exchange"], message.encode_s + message.decode_s)


def top_k_message(costs_s: Mapping[str, float]) -> Message:
    """From rates as users give them: bytes of gradient per second, where they are decoded per message."""
    size = 4.0 * VALUES
    rates = {"encode": size / costs_s["encode"], "decode": WORKERS * size / costs_s["decode"]}
    keys = Compress(method="top_k", density=DENSITY, error_feedback=True, **rates)
    return compress(keys, Gradient(size, 4), WORKERS, Gpus(1, memory_bytes_per_s=1.0, flop_per_s=1.0))


def test_real_local_sgd_is_as_fast_as_simulated(local):
    assert local.agrees, local


def test_models_are_averaged_after_their_own_steps(local):
    """One process that makes the steps of all workers in turn gets the same parameters; the first 1000 are enough."""
    gradients = [loss_gradient(worker, 1000) for worker in range(WORKERS)]
    parameters = torch.zeros(1000)
    for _ in range(ROUNDS):
        models = [parameters] * WORKERS
        for _ in range(INNER):
            models = [model - gradient(model) for model, gradient in zip(models, gradients, strict=True)]
        parameters = torch.stack(models).mean(0)
    assert all(torch.allclose(one.parameters[:1000], parameters, atol=1e-5) for one in local.real)


def test_real_top_k_is_as_fast_as_simulated(top_k):
    assert top_k.agrees, top_k


def test_what_was_sent_and_what_is_left_are_all_gradients(top_k):
    sent = -top_k.real[0].parameters
    left, gradients = (sum(getattr(one, name) for one in top_k.real) for name in ("left", "gradients"))
    assert torch.allclose(sent + left, gradients, atol=1e-4)
    assert not torch.allclose(sent, gradients, atol=1e-2)


def test_a_real_message_has_as_many_bytes_as_simulated(top_k):
    assert top_k.real[0].sent_bytes == top_k_message(top_k.real[0].costs_s).wire_bytes


def test_all_workers_have_the_same_parameters(local, top_k):
    assert all(torch.equal(one.parameters, run.real[0].parameters) for run in (local, top_k) for one in run.real)


# Processes


def fail():
    """One rank fails, and the other waits for it."""
    if dist.get_rank() == 0:
        raise RuntimeError(f"process group {os.getpgrp()}")
    dist.recv(torch.empty(1), 0)


def test_no_process_is_left_where_a_rank_fails():
    with pytest.raises(AssertionError, match="RuntimeError: process group") as failure:
        run_ranks(2, fail)
    group = int(re.search(r"process group (\d+)", str(failure.value))[1])
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)
