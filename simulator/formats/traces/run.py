"""What is known of a real run: its steps, and where the time of one of them goes if the file is a trace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...timeline import Timeline


@dataclass(frozen=True)
class Run:
    """A run as a file tells it; seconds and bytes.

    `form` is kineto, chrome, runcast (a simulation's trace), megatron_log, megatron_bridge_log or torchtitan_log.
    `steps_s` are all steps found in the order of their numbers `steps`; `step_s` is the step that was asked for, else
    the typical one: in a trace the lower median of the steps that another step follows (a mean over ranks), in a log
    the median of those left without the first three, or the first half of fewer than six.

    `timeline` holds that step alone, from zero: a place per rank, `compute` the lane of its kernels, a lane per
    axis for exchanges, `host` where nothing runs. `split_s` has the seconds of that step by the names of
    `costs.PHASES`, mean over ranks, and sums to `step_s`; `exposed_s` is the part of it that kernels wait for exchanges
    and copies, by axis. Both are None and empty for logs.

    `facts` are what the file says beside times: world_size, ranks, step, device, tp, cp, pp, dp, ep, global_batch,
    seq_len, tokens, flop_per_s_per_gpu, memory_bytes, communication_s (seconds of exchanges by axis, hidden ones too),
    and more; `arguments` is the text of Megatron-LM's arguments that `recipes.read_recipe` reads; `notes` are what was
    assumed or not understood.
    """

    path: Path
    form: str
    steps: tuple[int, ...]
    steps_s: tuple[float, ...]
    step_s: float
    timeline: Timeline | None = None
    split_s: Mapping[str, float] | None = None
    exposed_s: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    arguments: str | None = None
