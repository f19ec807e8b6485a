"""What the worker of a rank is started with, and where this process stands among those of the run."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from .plan import Options

RESTART = 3
"""Exit code of a worker after a case that left the ranks out of step."""

_SLURM_PORTS = 12_000  # a job's port is 20000 + its number modulo this: below what Linux gives to outgoing connections


@dataclass(frozen=True)
class Place:
    """Ranks count from 0 over all nodes, local ranks on each node. `host` and `port` are those of the key-value store.

    `served`: the launcher holds the store; otherwise rank 0 does. `epoch`: how often the launcher has restarted all.
    """

    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    node: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    served: bool = False
    epoch: int = 0

    @classmethod
    def from_environment(cls, env: Mapping[str, str] = os.environ) -> "Place":
        """The place from torchrun's or Slurm's variables, else alone. torchrun may run under srun, so it goes first.

        Raises:
            ValueError: a variable that is needed is missing, or no number; one line.
        """
        if "RANK" in env and "WORLD_SIZE" in env:
            rank, ranks_here = _number(env, "RANK"), _number(env, "LOCAL_WORLD_SIZE", 1)
            return cls(
                rank,
                _number(env, "WORLD_SIZE"),
                _number(env, "LOCAL_RANK", 0),
                _number(env, "GROUP_RANK", rank // ranks_here),
                env.get("MASTER_ADDR", "127.0.0.1"),
                _number(env, "MASTER_PORT"),
                env.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
                _number(env, "TORCHELASTIC_RESTART_COUNT", 0),
            )
        if "SLURM_PROCID" in env and "SLURM_STEP_NODELIST" in env:  # a batch script itself is no task of a step
            return cls(
                _number(env, "SLURM_PROCID"),
                _number(env, "SLURM_NTASKS"),
                _number(env, "SLURM_LOCALID", 0),
                _number(env, "SLURM_NODEID", 0),
                env.get("MASTER_ADDR") or first_host(env["SLURM_STEP_NODELIST"]),
                _number(env, "MASTER_PORT", 20_000 + _number(env, "SLURM_JOB_ID", 0) % _SLURM_PORTS),
            )
        return cls()


def first_host(nodes: str) -> str:
    """The first host of a Slurm node list: `gpu007` of `gpu[007-010,12],cpu1`."""
    match = re.match(r"([^\[,]*)(?:\[(\w+)[^\]]*\]([^,\[]*))?", nodes)
    assert match is not None
    return "".join(part or "" for part in match.groups())


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name, "" if default is None else str(default))
    if not text.isdigit():
        raise ValueError(f"{name} = {text!r}: expected a number in the environment, as torchrun and srun set it")
    return int(text)


@dataclass(frozen=True)
class Job:
    """What a worker is started with. `attempt` counts the workers of a rank; `stop_at` is a wall clock, 0 for never."""

    place: Place
    kind: str
    options: Options
    modules: tuple[str, ...] = ()
    attempt: int = 0
    stop_at: float = 0.0

    def to_text(self) -> str:
        """The job as text that `from_text` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Job":
        """The job from the text of `to_text`, in which JSON turned tuples into lists."""
        values = json.loads(text)
        options = values["options"] | {"only": tuple(values["options"]["only"])}
        own = {"place": Place(**values["place"]), "options": Options(**options), "modules": tuple(values["modules"])}
        return cls(**values | own)
