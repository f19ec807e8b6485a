"""Columns that reports of a kind may have, so that a name that is none is found before anything is simulated.

Those of every report are read off one that takes milliseconds; those that a report leaves out where they are nothing
are made of the names of phases, provenances and owners of memory.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...base.errors import did_you_mean
from ...costs import PHASES
from ...predict import simulate
from ...profile import PROVENANCE
from ...scenario import check_question
from ...systems.rl_cycle import report as cycle_report
from ...systems.weight_update import report
from .columns import flat_columns

_SMALL: Mapping[str, Mapping[str, Any]] = {
    "weight_update": {
        "cluster": "dgx-h100",
        "model": {"bytes": "8 MiB", "tensors": 8},
        "update": {"bucket": "1 MiB"},
    },
    "train_step": {
        "cluster": "dgx-h100",
        "level": "coarse",
        "model": {"preset": "llama3-8b"},
        "batch": {"global": 8, "seq_len": 1024},
        "run": {"tokens": 1e9},
    },
    "rl_cycle": {
        "cluster": "dgx-h100",
        "cycle": {"train_time": "1 s", "update_time": "1 s", "steps": 1},
        "rollout": {
            "requests": 8,
            "engines": 1,
            "slots": 8,
            "token_time": "10 ms",
            "length": {"kind": "fixed", "tokens": 8},
        },
    },
}
_COUNTED = 100  # of what has a number in its name: buffers, versions behind
_BUFFERS = ("resident weights", "engine beside its weights", "ipc0", "ipc1", "h2d", "flat")
_STATES = (
    "weights", "quantized copies", "gradients", "master weights", "optimizer moments", "gathered weights",
    "gradients on their way", "exchange buffers", "layer at work", "context and libraries", "fragmentation",
)  # fmt: skip
_KEPT = (
    "embedding", "layernorm", "qkv", "mla_up_proj", "core_attn", "proj", "residual", "router", "moe", "shared_experts",
    "mlp", "activation", "lora", "head",
)  # fmt: skip
_SPARSE: Mapping[str, Mapping[str, Iterable[str]]] = {
    "weight_update": {
        "exposed": report.PHASES,
        "provenance": PROVENANCE,
        "peak_memory_by_owner_bytes": (*_BUFFERS, *(f"{n}{i}" for n in ("send", "receive") for i in range(_COUNTED))),
    },
    "train_step": {
        "exposed": PHASES,
        "provenance": PROVENANCE,
        "memory_by_owner_bytes": (*_STATES, *(f"activations: {part}" for part in _KEPT)),
    },
    "rl_cycle": {
        "exposed": cycle_report.PHASES,
        "provenance": ("given", *PROVENANCE),
        "staleness": tuple(map(str, range(_COUNTED))),
    },
}


@dataclass(frozen=True)
class Columns:
    """`usual` are columns with a value that they may have; `sparse` are left out of a row where they are nothing."""

    usual: Mapping[str, Any]
    sparse: frozenset[str]

    def __contains__(self, name: object) -> bool:
        return name in self.usual or name in self.sparse

    def hint(self, name: str, others: Iterable[str] = ()) -> str:
        """The nearest columns or `others`, or those that every report has."""
        near = did_you_mean(name, [*others, *self.usual, *sorted(self.sparse)])
        return near or f"known: {', '.join(self.usual)}"


@cache
def columns_of(kind: str) -> Columns:
    """The columns of reports of a kind of scenario."""
    sparse = set(flat_columns({table: dict.fromkeys(names) for table, names in _SPARSE[kind].items()}))
    small = simulate(check_question({"kind": kind, **_SMALL[kind]})).report
    usual = {name: value for name, value in flat_columns(small.to_json()).items() if name not in sparse}
    if kind == "rl_cycle":  # whose update may be simulated
        update = columns_of("weight_update")
        usual |= {f"update_{name}": value for name, value in update.usual.items()}
        sparse |= {f"update_{name}" for name in update.sparse}
    return Columns(usual, frozenset(sparse))
