"""Keys of a scenario that say something only beside others, and what each of them goes with.

One list for three uses: a file that gives such a key alone is refused (`check`); a change that takes away what a key of
the file goes with leaves the key out, with a note (`adapt`); a stack's default is left out (`defaults`).
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


class Values:
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
    met: Callable[[Values], bool]
    words: Callable[[Values], str]
    applies: Callable[[Any], bool] = _any

    def fails(self, values: Values) -> bool:
        """Whether the scenario gives the key without what it goes with."""
        return values.gives(self.key) and self.applies(values[self.key]) and not self.met(values)


def unmet(values: Values) -> Iterator[Need]:
    """The needs that a scenario does not meet, the first one of each key."""
    found: dict[str, Need] = {}
    for need in NEEDS:
        if need.key in values.given and need.key not in found and need.fails(values):
            found[need.key] = need
    yield from found.values()


def faults(table: Mapping[str, Any], where: str) -> list[str]:
    """A line for each key of a table that says nothing beside the others."""
    values = Values(table)
    lines: list[str] = [fault(where, need.key, values[need.key], need.words(values)) for need in unmet(values)]
    for rivals in RIVALS:
        first, *others = [key for key in rivals if values[key] and values.gives(key)] or [""]
        lines += [fault(where, key, values[key], f"{first} is given: leave one of the two out") for key in others]
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


def _goes_with(key: str, other: str, *allowed: Any, applies: Callable[[Any], bool] = _any) -> Need:
    """A key that goes with some values of another one."""
    known = " or ".join(map(_text, allowed))
    return Need(
        key,
        lambda values: values[other] in allowed,
        lambda values: f"goes with {other} = {known}, not {_text(values[other])}",
        applies,
    )


def _not_with(key: str, other: str, *refused: Any, why: str, applies: Callable[[Any], bool] = _any) -> Need:
    """A key that does not go with some values of another one."""
    return Need(
        key,
        lambda values: values[other] not in refused,
        lambda values: f"does not go with {other} = {_text(values[other])}{why}",
        applies,
    )


def _goes_beside(key: str, other: str) -> Need:
    """A key that goes with another one, whatever its value."""
    return Need(key, lambda values: values.gives(other), lambda _: f"goes with {other}")


def _if_split(key: str, other: str, applies: Callable[[Any], bool] = _any) -> Need:
    """A key of an axis that is split."""
    return Need(key, lambda values: values[other] != 1, lambda _: f"goes with {other} above 1", applies)


def _gathers_over_tp(values: Values) -> bool:
    return values["parallel.tp"] != 1 and values["parallel.sequence_parallel"] is True


def _over_tp(key: str) -> Need:
    """A switch of what tensor-parallel ranks exchange."""
    words = "goes with parallel.tp above 1 and parallel.sequence_parallel = true"
    return Need(key, _gathers_over_tp, lambda _: words, bool)


def _chunks_fit(values: Values) -> bool:
    schedule = _schedule(values)
    return schedule is None or schedule.chunks is None or values["schedule.vpp"] in (1, schedule.chunks)


def _has_groups(values: Values) -> bool:
    schedule = _schedule(values)
    return schedule is None or "group" in schedule.options


def _schedule(values: Values) -> Any:
    name = values["schedule.name"]
    return SCHEDULES.get(name) if isinstance(name, str) else None


def _own_chunks(values: Values) -> str:
    own = _schedule(values).chunks
    return f"{values['schedule.name']} has {own} chunk{'s' * (own > 1)} per pipeline rank; interleaved takes any number"


def _has_eight_bit_weights(values: Values) -> bool:
    return values["precision.compute"] in _EIGHT_BITS and values["parallel.zero"] != 3 and not values.gives("lora")


def _updates_by_cycle(key: str) -> Need:
    return Need(
        key,
        lambda values: not values.gives("cycle.update_time"),
        lambda _: "is for an update that is simulated, not given as cycle.update_time",
    )


def _reads_profile(values: Values) -> bool:
    return not values.gives("cycle.update_time") or values.gives("cycle.state")


def _has_versions(values: Values) -> bool:
    return values["cycle.mode"] == "asynchronous" and values["cycle.staleness"] != 0


_EIGHT_BITS = ("fp8", "fp8-block", "mxfp8")
_TRAINERS = "goes with a method that starts at trainers, not update.method = "
_IN_PLACE = ": its writes end where they are used"
_OF_TRAINERS = (
    "trainer", "messages", "quantize", "delta", "storage", "registration", "in_flight", "load", "drain",
    "inference.gpus", "inference.ep",
)  # fmt: skip
_OF_SERVERS = ("pipeline", "mem_fraction", "h2d_buffer", "h2d_freed", "ranks", "readers")

NEEDS: tuple[Need, ...] = (
    # The model
    _goes_beside("model.tensors", "model.bytes"),
    _goes_beside("model.largest", "model.bytes"),
    _goes_beside("model.overrides", "model.preset"),
    # A training step
    *(
        _goes_with(f"parallel.{key}", "parallel.zero", 3)
        for key in ("shard", "prefetch", "prefetch_backward", "reshard")
    ),
    _goes_with("parallel.sync_each_microbatch", "parallel.zero", 2, 3),
    _if_split("parallel.cp_type", "parallel.cp"),
    Need("schedule.vpp", _chunks_fit, _own_chunks),
    Need("schedule.group", _has_groups, lambda values: f"goes with interleaved, not {values['schedule.name']}"),
    Need(
        "precision.weights", _has_eight_bit_weights,
        lambda _: f"goes with precision.compute = {' or '.join(_EIGHT_BITS)}, parallel.zero below 3 and no [lora]",
    ),
    _if_split("precision.dispatch", "parallel.ep", lambda stored: stored != "bf16"),
    *(
        _not_with(f"precision.activations.{module}", "precision.compute", "fp32", "tf32", why=": tokens are in 16 bits")
        for module in Activations.model_fields
    ),
    Need("offload.slots", lambda values: values["offload.activations"] != 0, lambda _: "goes with offload.activations"),
    _goes_with("recompute.modules", "recompute.mode", "selective"),
    *(_goes_with(f"recompute.{key}", "recompute.mode", "full") for key in ("layers", "early_stop")),
    _goes_with("overlap.params", "parallel.zero", 1, 2),
    _over_tp("overlap.tp"),
    _not_with("overlap.tp", "parallel.tp_2d", True, why=", which has an overlap of its own", applies=bool),
    _goes_with("overlap.tp_exposed", "overlap.tp", True),
    _goes_with("overlap.fusion", "parallel.zero", 0),
    _goes_with("overlap.fusion", "overlap.dp", True),
    _over_tp("memory.gathered"),
    _goes_with("memory.buckets", "parallel.zero", 0, applies=bool),
    Need(
        "memory.gradients",
        lambda values: values["parallel.zero"] in (0, 1) or values["parallel.sync_each_microbatch"] is False,
        lambda values: f"goes with parallel.zero = 0 or 1, not {values['parallel.zero']}",
        bool,
    ),
    _goes_with("experts.zipf", "experts.routing", "zipf"),
    _goes_with("experts.histogram", "experts.routing", "histogram"),
    _if_split("experts.dispatcher", "parallel.ep", lambda name: name == "deepep"),
    _goes_with("experts.nodes_per_token", "experts.dispatcher", "deepep"),
    _if_split("experts.nodes_per_token", "parallel.ep"),
    _goes_with("attention_dropout", "attention", "unfused"),
    Need(
        "attention",
        lambda values: values["parallel.cp"] == 1 and not values["parallel.tp_2d"],
        lambda _: "scores are not split over ranks by cp or tp_2d: flash with these",
        lambda name: name == "unfused",
    ),
    # A weight update
    _goes_with("update.ranks", "update.method", "p2p"),
    _goes_with("update.readers", "update.method", "p2p"),
    _goes_with("update.messages", "update.method", *TENSOR_BY_TENSOR),
    _goes_with("update.registration", "update.method", *REGISTERED),
    _goes_with("update.storage", "update.method", "file_system"),
    *(_goes_with(f"update.{key}", "update.method", *SERVED) for key in _OF_SERVERS),
    *(
        Need(
            f"update.{key}",
            lambda values: values["update.method"] in FROM_TRAINERS,
            lambda values: f"{_TRAINERS}{_text(values['update.method'])}",
        )
        for key in _OF_TRAINERS
    ),
    *(
        _not_with(f"update.trainer.{key}", "update.trainer.sharded", False, why=": tensors are whole")
        for key in ("shard", "expert_shard")
    ),
    _not_with("update.inference.gpus", "update.method", "colocated", why=": engines are on the trainers' GPUs"),
    _not_with("update.delta", "update.method", *PUT_IN_PLACE, why=_IN_PLACE),
    _not_with("update.load", "update.method", *PUT_IN_PLACE, why=_IN_PLACE),
    _not_with("update.quantize", "update.method", *PUT_IN_PLACE, why=_IN_PLACE, applies=lambda to: to == "after"),
    _not_with("update.load", "update.quantize", "after", why=", which is part of loading", applies=lambda on: not on),
    _goes_with("update.h2d_freed", "update.pipeline", "three_stage"),
    _not_with("update.h2d_buffer", "update.pipeline", "three_stage", why=", which needs it", applies=lambda on: not on),
    # An RL cycle
    _goes_with("cycle.staleness", "cycle.mode", "asynchronous"),
    *(_goes_with(f"cycle.{key}", "cycle.placement", "colocated") for key in ("state", "kv_alloc", "release")),
    *(_goes_with(f"cycle.{key}", "cycle.placement", "disaggregated") for key in ("trainer_gpus", "pause")),
    _goes_beside("cycle.pause", "cycle.update_time"),
    *map(_updates_by_cycle, ("model", "update", "slow", "fold")),
    *(
        Need(key, _reads_profile, lambda _: "is for an update that is simulated, or for cycle.state")
        for key in ("profile", "stack")
    ),
    _goes_with("rollout.recompute_time", "rollout.interrupt", "keep"),
    Need("rollout.interrupt", _has_versions, lambda _: "is for rollouts beside training: cycle.staleness of 1 or more"),
    Need(
        "rollout.max_tokens",
        lambda values: values["rollout.length.kind"] != "fixed",
        lambda _: "is for lengths that vary",
    ),
)  # fmt: skip
