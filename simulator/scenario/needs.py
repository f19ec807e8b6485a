"""Keys of a scenario that say something only beside others, and what each of them goes with.

One list for three uses: a file that gives such a key alone is refused (`check`); a change that takes away what a key of
the file goes with leaves the key out, with a note (`changes`); a stack's default is left out (`defaults`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from ..errors import fault
from ..schedules import SCHEDULES
from .schema import FROM_TRAINERS, PUT_IN_PLACE, REGISTERED, SERVED, TENSOR_BY_TENSOR, Scenario
from .schemas import SCHEMAS
from .training import Activations
from .write import toml_value


class Said:
    """What a scenario says of keys with dots: what its table gives, or what silence means for its kind."""

    def __init__(self, table: Mapping[str, Any]):
        kind = table.get("kind")
        self.given = dict(_flat(table))
        self._silence = _flat_silence(kind if isinstance(kind, str) else "")

    def gives(self, key: str) -> bool:
        """Whether the table itself has a value for the key."""
        return key in self.given

    def __getitem__(self, key: str) -> Any:
        return self.given[key] if key in self.given else self._silence.get(key)


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a table and of those in it, with dots."""
    for name, value in table.items():
        if value is not None:
            yield f"{before}{name}", value
        if type(value) is dict or isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")


def value_at(table: Mapping[str, Any], key: str) -> Any:
    """The value that a table has for a key with dots; None if none."""
    value: Any = table
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def silence(kind: Any) -> Mapping[str, Any]:
    """What keys mean where a scenario of this kind does not give them, for those that have one meaning."""
    return _defaults_of(SCHEMAS.get(kind, Scenario) if isinstance(kind, str) else Scenario)


@cache
def _flat_silence(kind: str) -> Mapping[str, Any]:
    return dict(_flat(silence(kind)))


@cache
def _defaults_of(table: type[BaseModel]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for name, field in table.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found[field.alias or name] = _defaults_of(field.annotation)
        elif not field.is_required():
            found[field.alias or name] = field.get_default(call_default_factory=True)
    return found


def _any(_: Any) -> bool:
    return True


@dataclass(frozen=True)
class Need:
    """What a key goes with: `met` says whether a scenario has it, `words` what it is.

    Values for which `applies` is false need nothing.
    """

    key: str
    met: Callable[[Said], bool]
    words: Callable[[Said], str]
    applies: Callable[[Any], bool] = _any

    def fails(self, said: Said) -> bool:
        """Whether the scenario gives the key without what it goes with."""
        return said.gives(self.key) and self.applies(said[self.key]) and not self.met(said)


def unmet(said: Said) -> Iterator[Need]:
    """The needs that a scenario does not meet, the first one of each key."""
    found: dict[str, Need] = {}
    for need in NEEDS:
        if need.key in said.given and need.key not in found and need.fails(said):
            found[need.key] = need
    yield from found.values()


def refused(table: Mapping[str, Any], where: str) -> list[str]:
    """A line for each key of a table that says nothing beside the others."""
    said = Said(table)
    lines: list[str] = [fault(where, need.key, said[need.key], need.words(said)) for need in unmet(said)]
    for rivals in RIVALS:
        first, *others = [key for key in rivals if said[key] and said.gives(key)] or [""]
        lines += [fault(where, key, said[key], f"{first} is given: leave one of the two out") for key in others]
    return lines


RIVALS = (
    ("model.preset", "model.config", "model.bytes"),
    ("update.bucket", "update.max_bucket"),
    ("parallel.layers", "parallel.embedding_as_layer"),
)
"""Keys of which a scenario gives one."""


def _text(value: Any) -> str:
    """A value as messages show it: words as Python does, all else as TOML."""
    return repr(value) if isinstance(value, str) else toml_value(value)


def _with(key: str, other: str, *values: Any, applies: Callable[[Any], bool] = _any) -> Need:
    """A key that goes with some values of another one."""
    known = " or ".join(map(_text, values))
    return Need(
        key,
        lambda said: said[other] in values,
        lambda said: f"goes with {other} = {known}, not {_text(said[other])}",
        applies,
    )


def _not_with(key: str, other: str, *values: Any, why: str, applies: Callable[[Any], bool] = _any) -> Need:
    """A key that does not go with some values of another one."""
    return Need(
        key,
        lambda said: said[other] not in values,
        lambda said: f"does not go with {other} = {_text(said[other])}{why}",
        applies,
    )


def _beside(key: str, other: str) -> Need:
    """A key that goes with another one, whatever its value."""
    return Need(key, lambda said: said.gives(other), lambda _: f"goes with {other}")


def _above_one(key: str, other: str, applies: Callable[[Any], bool] = _any) -> Need:
    """A key of an axis that is split."""
    return Need(key, lambda said: said[other] != 1, lambda _: f"goes with {other} above 1", applies)


def _gathers_over_tp(said: Said) -> bool:
    return said["parallel.tp"] != 1 and said["parallel.sequence_parallel"] is True


def _over_tp(key: str) -> Need:
    """A switch of what tensor-parallel ranks exchange."""
    words = "goes with parallel.tp above 1 and parallel.sequence_parallel = true"
    return Need(key, _gathers_over_tp, lambda _: words, bool)


def _chunks_fit(said: Said) -> bool:
    schedule = _schedule(said)
    return schedule is None or schedule.chunks is None or said["schedule.vpp"] in (1, schedule.chunks)


def _has_groups(said: Said) -> bool:
    schedule = _schedule(said)
    return schedule is None or "group" in schedule.options


def _schedule(said: Said) -> Any:
    name = said["schedule.name"]
    return SCHEDULES.get(name) if isinstance(name, str) else None


def _own_chunks(said: Said) -> str:
    own = _schedule(said).chunks
    return f"{said['schedule.name']} has {own} chunk{'s' * (own > 1)} per pipeline rank; interleaved takes any number"


def _has_eight_bit_weights(said: Said) -> bool:
    return said["precision.compute"] in _EIGHT_BITS and said["parallel.zero"] != 3 and not said.gives("lora")


def _updates_by_cycle(key: str) -> Need:
    return Need(
        key,
        lambda said: not said.gives("cycle.update_time"),
        lambda _: "is for an update that is simulated, not given as cycle.update_time",
    )


def _reads_profile(said: Said) -> bool:
    return not said.gives("cycle.update_time") or said.gives("cycle.state")


def _has_versions(said: Said) -> bool:
    return said["cycle.mode"] == "asynchronous" and said["cycle.staleness"] != 0


_EIGHT_BITS = ("fp8", "fp8-block", "mxfp8")
_TRAINERS = "goes with a method that starts at trainers, not update.method = "
_ENDS_IN_PLACE = ": its writes end where they are used"
_OF_TRAINERS = (
    "trainer", "messages", "quantize", "delta", "storage", "registration", "in_flight", "load", "drain",
    "inference.gpus", "inference.ep",
)  # fmt: skip
_OF_SERVERS = ("pipeline", "mem_fraction", "h2d_buffer", "h2d_freed", "ranks", "readers")

NEEDS: tuple[Need, ...] = (
    # The model
    _beside("model.tensors", "model.bytes"),
    _beside("model.largest", "model.bytes"),
    _beside("model.overrides", "model.preset"),
    # A training step
    *(_with(f"parallel.{key}", "parallel.zero", 3) for key in ("shard", "prefetch", "reshard")),
    _with("parallel.sync_each_microbatch", "parallel.zero", 2, 3),
    _above_one("parallel.cp_type", "parallel.cp"),
    Need("schedule.vpp", _chunks_fit, _own_chunks),
    Need("schedule.group", _has_groups, lambda said: f"goes with interleaved, not {said['schedule.name']}"),
    Need(
        "precision.weights", _has_eight_bit_weights,
        lambda _: f"goes with precision.compute = {' or '.join(_EIGHT_BITS)}, parallel.zero below 3 and no [lora]",
    ),
    _above_one("precision.dispatch", "parallel.ep", lambda stored: stored != "bf16"),
    *(
        _not_with(f"precision.activations.{module}", "precision.compute", "fp32", "tf32", why=": tokens are in 16 bits")
        for module in Activations.model_fields
    ),
    Need("offload.slots", lambda said: bool(said["offload.activations"]), lambda _: "goes with offload.activations"),
    _with("recompute.modules", "recompute.mode", "selective"),
    _with("recompute.layers", "recompute.mode", "full"),
    _with("overlap.params", "parallel.zero", 1, 2),
    _over_tp("overlap.tp"),
    _not_with("overlap.tp", "parallel.tp_2d", True, why=", which has an overlap of its own", applies=bool),
    _with("overlap.tp_exposed", "overlap.tp", True),
    _with("overlap.fusion", "parallel.zero", 0),
    _with("overlap.fusion", "overlap.dp", True),
    _over_tp("memory.gathered"),
    _with("memory.buckets", "parallel.zero", 0, applies=bool),
    Need(
        "memory.gradients",
        lambda said: said["parallel.zero"] in (0, 1) or said["parallel.sync_each_microbatch"] is False,
        lambda said: f"goes with parallel.zero = 0 or 1, not {said['parallel.zero']}",
        bool,
    ),
    _with("experts.zipf", "experts.routing", "zipf"),
    _with("experts.histogram", "experts.routing", "histogram"),
    _above_one("experts.dispatcher", "parallel.ep", lambda name: name == "deepep"),
    _with("experts.nodes_per_token", "experts.dispatcher", "deepep"),
    _above_one("experts.nodes_per_token", "parallel.ep"),
    _with("attention_dropout", "attention", "unfused"),
    Need(
        "attention",
        lambda said: said["parallel.cp"] == 1 and not said["parallel.tp_2d"],
        lambda _: "scores are not split over ranks by cp or tp_2d: flash with these",
        lambda name: name == "unfused",
    ),
    # A weight update
    _with("update.ranks", "update.method", "p2p"),
    _with("update.readers", "update.method", "p2p"),
    _with("update.messages", "update.method", *TENSOR_BY_TENSOR),
    _with("update.registration", "update.method", *REGISTERED),
    _with("update.storage", "update.method", "file_system"),
    *(_with(f"update.{key}", "update.method", *SERVED) for key in _OF_SERVERS),
    *(
        Need(
            f"update.{key}",
            lambda said: said["update.method"] in FROM_TRAINERS,
            lambda said: f"{_TRAINERS}{_text(said['update.method'])}",
        )
        for key in _OF_TRAINERS
    ),
    *(
        _not_with(f"update.trainer.{key}", "update.trainer.sharded", False, why=": tensors are whole")
        for key in ("shard", "expert_shard")
    ),
    _not_with("update.inference.gpus", "update.method", "colocated", why=": engines are on the trainers' GPUs"),
    _not_with("update.delta", "update.method", *PUT_IN_PLACE, why=_ENDS_IN_PLACE),
    _not_with("update.load", "update.method", *PUT_IN_PLACE, why=_ENDS_IN_PLACE),
    _not_with("update.quantize", "update.method", *PUT_IN_PLACE, why=_ENDS_IN_PLACE, applies=lambda to: to == "after"),
    _not_with("update.load", "update.quantize", "after", why=", which is part of loading", applies=lambda on: not on),
    _with("update.h2d_freed", "update.pipeline", "three_stage"),
    _not_with("update.h2d_buffer", "update.pipeline", "three_stage", why=", which needs it", applies=lambda on: not on),
    # An RL cycle
    _with("cycle.staleness", "cycle.mode", "asynchronous"),
    *(_with(f"cycle.{key}", "cycle.placement", "colocated") for key in ("state", "kv_alloc", "release")),
    *(_with(f"cycle.{key}", "cycle.placement", "disaggregated") for key in ("trainer_gpus", "pause")),
    _beside("cycle.pause", "cycle.update_time"),
    *map(_updates_by_cycle, ("model", "update", "slow", "fold")),
    *(
        Need(key, _reads_profile, lambda _: "is for an update that is simulated, or for cycle.state")
        for key in ("profile", "stack")
    ),
    _with("rollout.recompute_time", "rollout.interrupt", "keep"),
    Need("rollout.interrupt", _has_versions, lambda _: "is for rollouts beside training: cycle.staleness of 1 or more"),
    Need(
        "rollout.max_tokens",
        lambda said: said["rollout.length.kind"] != "fixed",
        lambda _: "is for lengths that vary",
    ),
)  # fmt: skip
