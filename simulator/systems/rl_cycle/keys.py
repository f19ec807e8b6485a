"""How keys of an RL cycle depend on each other; those of its update are in `weight_update.keys`."""

from ..keys import Need, Values, goes_beside, goes_with
from ..weight_update import keys as of_update


def _is_simulated(values: Values) -> bool:
    return not values.gives("cycle.update_time")


def _has_model(values: Values) -> bool:
    return _is_simulated(values) or values.gives("rollout.engine") or values.gives("cycle.train")


def _without_engine(key: str) -> Need:
    return Need(
        f"rollout.{key}",
        lambda values: not values.gives("rollout.engine"),
        lambda _: "is for decoding whose times are given; rollout.engine has its own",
    )


NEEDS: tuple[Need, ...] = (
    *of_update.NEEDS,
    *(_without_engine(key) for key in ("slots", "request_time", "recompute_time")),
    *(goes_beside(f"rollout.{key}", "rollout.engine") for key in ("prompt", "samples")),
    *(
        goes_beside(f"cycle.{key}", "cycle.train")
        for key in ("minibatches", "forward_passes", "forward_micro", "pad_to")
    ),
    goes_with("rollout.engine.recompute", "rollout.interrupt", "keep", applies=bool),
    goes_with("cycle.staleness", "cycle.mode", "asynchronous"),
    *(goes_with(f"cycle.{key}", "cycle.placement", "colocated") for key in ("state", "kv_alloc", "release")),
    *(
        goes_with(f"cycle.{key}", "cycle.placement", "disaggregated")
        for key in ("trainer_gpus", "rollout_nodes", "pause")
    ),
    goes_beside("cycle.pause", "cycle.update_time"),
    *(
        Need(key, _is_simulated, lambda _: "is for an update that is simulated, not given as cycle.update_time")
        for key in ("update", "slow", "fold")
    ),
    Need(
        "model",
        _has_model,
        lambda _: (
            "is for an update that is simulated, not given as cycle.update_time, for rollout.engine or cycle.train"
        ),
    ),
    Need(
        "profile",
        lambda values: _has_model(values) or values.gives("cycle.state"),
        lambda _: "is for an update that is simulated, or for rollout.engine, cycle.train or cycle.state",
    ),
    Need(
        "stack",
        lambda values: _is_simulated(values) or values.gives("rollout.engine") or values.gives("cycle.state"),
        lambda _: "is for an update that is simulated, or for rollout.engine or cycle.state; training has its own",
    ),
    goes_with("rollout.recompute_time", "rollout.interrupt", "keep"),
    Need(
        "rollout.interrupt",
        lambda values: values["cycle.mode"] == "asynchronous" and values["cycle.staleness"] != 0,
        lambda _: "is for rollouts beside training: cycle.staleness of 1 or more",
    ),
    Need(
        "rollout.max_tokens",
        lambda values: values["rollout.length.kind"] != "fixed",
        lambda _: "is for lengths that vary",
    ),
)  # fmt: skip

RIVALS = (
    *of_update.RIVALS,
    ("cycle.rollout_nodes", "cycle.trainer_gpus"),
    ("cycle.train_time", "cycle.train"),
    ("cycle.pad_to", "cycle.train.batch.seq_len"),
    ("rollout.token_time", "rollout.engine"),
)
PINS = of_update.pins(lambda cycle: cycle.update)
