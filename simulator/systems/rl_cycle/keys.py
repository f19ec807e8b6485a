"""How keys of an RL cycle depend on each other; those of its update are in `weight_update.keys`."""

from ..keys import Need, Values, goes_beside, goes_with
from ..weight_update import keys as of_update


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


NEEDS: tuple[Need, ...] = (
    *of_update.NEEDS,
    goes_with("cycle.staleness", "cycle.mode", "asynchronous"),
    *(goes_with(f"cycle.{key}", "cycle.placement", "colocated") for key in ("state", "kv_alloc", "release")),
    *(goes_with(f"cycle.{key}", "cycle.placement", "disaggregated") for key in ("trainer_gpus", "pause")),
    goes_beside("cycle.pause", "cycle.update_time"),
    *map(_updates_by_cycle, ("model", "update", "slow", "fold")),
    *(
        Need(key, _reads_profile, lambda _: "is for an update that is simulated, or for cycle.state")
        for key in ("profile", "stack")
    ),
    goes_with("rollout.recompute_time", "rollout.interrupt", "keep"),
    Need("rollout.interrupt", _has_versions, lambda _: "is for rollouts beside training: cycle.staleness of 1 or more"),
    Need(
        "rollout.max_tokens",
        lambda values: values["rollout.length.kind"] != "fixed",
        lambda _: "is for lengths that vary",
    ),
)  # fmt: skip

RIVALS = of_update.RIVALS
PINS = of_update.pins(lambda cycle: cycle.update)
