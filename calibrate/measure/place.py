"""Where this process stands among those of the run, as torchrun or Slurm say it; alone where neither does."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

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
        """torchrun's variables win over Slurm's, since torchrun may run under srun.

        Raises:
            ValueError: a variable that is needed is missing, or no number; one line.
        """
        if "RANK" in env and "WORLD_SIZE" in env:
            return cls._of_torchrun(env)
        if "SLURM_PROCID" in env and "SLURM_STEP_NODELIST" in env:  # a batch script itself is no task of a step
            return cls._of_slurm(env)
        return cls()

    @classmethod
    def _of_torchrun(cls, env: Mapping[str, str]) -> "Place":
        rank, local = _number(env, "RANK"), _number(env, "LOCAL_RANK", 0)
        here = _number(env, "LOCAL_WORLD_SIZE", 1)
        return cls(
            rank,
            _number(env, "WORLD_SIZE"),
            local,
            _number(env, "GROUP_RANK", rank // here),
            env.get("MASTER_ADDR", "127.0.0.1"),
            _number(env, "MASTER_PORT"),
            env.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
            _number(env, "TORCHELASTIC_RESTART_COUNT", 0),
        )

    @classmethod
    def _of_slurm(cls, env: Mapping[str, str]) -> "Place":
        job = _number(env, "SLURM_JOB_ID", 0)
        return cls(
            _number(env, "SLURM_PROCID"),
            _number(env, "SLURM_NTASKS"),
            _number(env, "SLURM_LOCALID", 0),
            _number(env, "SLURM_NODEID", 0),
            env.get("MASTER_ADDR") or first_host(env["SLURM_STEP_NODELIST"]),
            _number(env, "MASTER_PORT", 20_000 + job % _SLURM_PORTS),
        )


def first_host(nodes: str) -> str:
    """The first host of a Slurm node list: `gpu007` of `gpu[007-010,12],cpu1`."""
    found = re.match(r"([^\[,]*)(?:\[(\w+)[^\]]*\]([^,\[]*))?", nodes)
    assert found is not None
    return "".join(part or "" for part in found.groups())


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name, "" if default is None else str(default))
    if not text.isdigit():
        raise ValueError(f"{name} = {text!r}: expected a number in the environment, as torchrun and srun set it")
    return int(text)
