"""Real workers that exchange models or compressed gradients: what `Local` and `EachStep` simulate.

Each rank is a worker. A step is a real gradient and a sleep for the rest of its time. What an exchange, an encoder and
a decoder take is measured before.
"""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist
from runcast.simulator.systems.run.team import Team

from .processes import run_ranks
from .steps import sleep_until, step_times_s

Tensor = torch.Tensor
Message = tuple[Tensor, Tensor]  # values, and their positions
VALUES = 2**18  # of the model
_TIMES = 20  # that each cost is measured


class Trained(NamedTuple):
    """What a worker saw. `costs_s` are seconds by name, measured before; `late_s` is how late steps ended on average.

    `gradients` is the sum of its own, `left` what error feedback still holds of them.
    """

    wall_s: float
    costs_s: dict[str, float]
    late_s: float
    parameters: Tensor
    gradients: Tensor
    left: Tensor | None = None
    sent_bytes: int = 0  # per step


def run_local(team: Team, rounds: int, steps: int) -> list[Trained]:
    """Local SGD: so many rounds of so many steps, after each of which the models are averaged."""
    return run_ranks(team.workers, _train_local, team, rounds, steps)


def run_top_k(team: Team, steps: int, count: int) -> list[Trained]:
    """Steps after each of which workers gather the `count` largest values of the gradients of all."""
    return run_ranks(team.workers, _train_top_k, team, steps, count)


def loss_gradient(worker: int, values: int = VALUES) -> Callable[[Tensor], Tensor]:
    """From the first parameters to their gradient of a worker's quadratic loss, times the learning rate."""
    at = torch.arange(values) * (worker + 1)
    curvature, best = 1 + torch.sin(at), torch.cos(at) ** 3
    return lambda parameters: 0.05 * curvature * (parameters - best)


class _Steps:
    """The steps of a worker: their gradients, their sum, and how late they end."""

    def __init__(self, team: Team):
        worker = dist.get_rank()
        self._times_s: Iterator[float] = iter(step_times_s(team, worker))
        self._gradient = loss_gradient(worker)
        self.gradients, self._lates_s = torch.zeros(VALUES), list[float]()

    def take(self, parameters: Tensor) -> Tensor:
        """Make a step; returns its gradient."""
        begun_s = time.perf_counter()
        gradient = self._gradient(parameters)
        self.gradients += gradient
        self._lates_s.append(sleep_until(begun_s + next(self._times_s)))
        return gradient

    @property
    def late_s(self) -> float:
        """How late steps have ended on average."""
        return sum(self._lates_s) / len(self._lates_s)


def _train_local(team: Team, rounds: int, steps: int) -> Trained:
    own, parameters = _Steps(team), torch.zeros(VALUES)
    costs_s = {"exchange": _seconds(lambda: _average(torch.zeros(VALUES)))}
    dist.barrier()
    begun_s = time.perf_counter()
    for _ in range(rounds):
        for _ in range(steps):
            parameters -= own.take(parameters)
        _average(parameters)
    return Trained(time.perf_counter() - begun_s, costs_s, own.late_s, parameters, own.gradients)


def _average(parameters: Tensor) -> None:
    dist.all_reduce(parameters)
    parameters /= dist.get_world_size()


def _train_top_k(team: Team, steps: int, count: int) -> Trained:
    own, parameters, left = _Steps(team), torch.zeros(VALUES), torch.zeros(VALUES)
    costs_s, message = _top_k_costs_s(own.take(parameters).clone(), count)
    own.gradients.zero_()
    dist.barrier()
    begun_s = time.perf_counter()
    for _ in range(steps):
        left += own.take(parameters)
        message = _encode(left, count)
        parameters -= _decode(_gather(message))
    wall_s, sent_bytes = time.perf_counter() - begun_s, sum(one.nbytes for one in message)
    return Trained(wall_s, costs_s, own.late_s, parameters, own.gradients, left, sent_bytes)


def _encode(left: Tensor, count: int) -> Message:
    """Take the largest values out of what is left."""
    positions = torch.topk(left.abs(), count, sorted=False).indices
    values = left[positions]
    left[positions] = 0
    return values, positions.int()


def _gather(message: Message) -> list[Message]:
    """The messages of all workers."""
    values, positions = ([torch.empty_like(one) for _ in range(dist.get_world_size())] for one in message)
    dist.all_gather(values, message[0])
    dist.all_gather(positions, message[1])
    return list(zip(values, positions, strict=True))


def _decode(messages: list[Message]) -> Tensor:
    """The sum of messages."""
    dense = torch.zeros(VALUES)
    for values, positions in messages:
        dense[positions.long()] += values
    return dense


def _top_k_costs_s(gradient: Tensor, count: int) -> tuple[dict[str, float], Message]:
    """What parts of a step take, and a message.

    Encoders run one after another: the slowest worker of a step, for which all others wait, has the cores for itself.
    All decode at once.
    """
    encode_s = [_seconds(lambda: _encode(gradient.clone(), count), rank) for rank in range(dist.get_world_size())]
    message = _encode(gradient.clone(), count)
    messages = _gather(message)
    costs_s = {"exchange": _seconds(lambda: _gather(message)), "decode": _seconds(lambda: _decode(messages))}
    return costs_s | {"encode": encode_s[dist.get_rank()]}, message


def _seconds(work: Callable[[], object], rank: int | None = None) -> float:
    """The median of what some work takes when all ranks begin it at once, or one rank alone."""
    times_s = []
    for _ in range(_TIMES):
        dist.barrier()
        if rank in (None, dist.get_rank()):
            begun_s = time.perf_counter()
            work()
            times_s.append(time.perf_counter() - begun_s)
    return median(times_s) if times_s else 0.0
