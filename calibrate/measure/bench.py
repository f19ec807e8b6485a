"""What a case is given to measure with: the device, the ranks of its team, a budget, and random numbers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from .device import Device
from .facts import Facts


@dataclass
class Bench:
    """`rank` is this one's in the world; `group` is the process group of the case's team, None where it is alone."""

    device: Device
    facts: Facts
    budget_s: float
    rank: int = 0
    team: tuple[int, ...] = (0,)
    group: Any = None
    exchange: Callable[[str], list[str]] = field(default=lambda text: [text])
    """All ranks of the team give a text and get everybody's, in the team's order."""

    def rand(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Random normal values on the device: zeros and constants draw less power and raise clocks."""
        return torch.randn(*shape, device=self.device.torch_device, dtype=torch.float32).to(dtype)

    def empty(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Memory of the device, unwritten."""
        return torch.empty(*shape, device=self.device.torch_device, dtype=dtype)

    def slowest(self, seconds: float) -> float:
        """The largest of what the ranks of the team give: they must agree on counts of collectives."""
        if self.group is None:
            return seconds
        value = torch.tensor([seconds], dtype=torch.float32, device=self.device.torch_device)
        dist.all_reduce(value, dist.ReduceOp.MAX, group=self.group)
        return float(value.item())

    def align(self) -> Callable[[], object] | None:
        """An act after which all ranks of the team are equally far; None where there is one."""
        if self.group is None:
            return None
        token = torch.zeros(1, device=self.device.torch_device)
        return lambda: dist.all_reduce(token, group=self.group)
