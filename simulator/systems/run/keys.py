"""How keys of a run depend on each other; those of its step are in `train_step.keys`.

What a way of training does not simulate is refused, so that nobody believes it was.
"""

from ..keys import Need, Values, goes_with
from ..train_step import keys as of_step
from .scenario import IN_STEP


def _is_predicted(values: Values) -> bool:
    return not values.gives("step.time")


def _trains(values: Values) -> bool:
    """Whether workers of the cluster train."""
    return not (values.gives("jobs") or values.gives("federated"))


def _keeps_in_step(values: Values) -> bool:
    """Whether all workers wait for all, after each step or after several."""
    return _trains(values) and values["sync.mode"] in IN_STEP


def _fails(values: Values) -> bool:
    return not values.gives("federated") and (values.gives("jobs") or values["sync.mode"] != "gossip")


_USUAL = {"checkpoint.mode": "blocking", "elastic.mode": "drop"}  # in tables that may be left out


def _in_mode(key: str, *modes: str) -> Need:
    """A key of a table that goes with some values of the table's mode."""
    other = f"{key.partition('.')[0]}.mode"
    return Need(
        key,
        lambda values: (values[other] or _USUAL[other]) in modes,
        lambda values: f"goes with {other} = {' or '.join(map(repr, modes))}, not {values[other] or _USUAL[other]!r}",
    )


_OF_STEP = ("parallel", "schedule", "batch", "recompute", "offload", "overlap", "experts", "lora")
_OF_WORKERS = (
    "sync", "compress", "speed", "target", "slow", "run.steps", "run.samples", "run.wall", "step.time",
    "step.samples",
)  # fmt: skip
_OF_ROUNDS = (
    "checkpoint", "input", "pause", "elastic", "speed.turn", "speed.throttle", "speed.balance", "speed.rebalance",
    "speed.detect", "run.wall", "run.start", "failures.spares",
)  # fmt: skip

NEEDS: tuple[Need, ...] = (
    *of_step.NEEDS,
    *(
        Need(key, _is_predicted, lambda _: "is for a step that is predicted, not given as step.time")
        for key in ("model", *_OF_STEP)
    ),
    *(Need(key, _trains, lambda _: "is not for jobs, or clients of [federated]") for key in (*_OF_WORKERS, *_OF_STEP)),
    *(
        Need(key, _keeps_in_step, lambda _: "goes with sync.mode = 'all_reduce' or 'local': nothing else simulates it")
        for key in _OF_ROUNDS
    ),
    Need("failures", _fails, lambda _: "is not for sync.mode = 'gossip', or [federated]: they do not simulate it"),
    *(
        Need(key, lambda values: not values.gives("jobs"), lambda _: "is not for jobs: they do not simulate it")
        for key in (
            "model", "step.gradient", "step.parameters", "failures.place", "failures.init", "failures.init_per_node",
            "failures.read", "failures.warmup",
        )
    ),
    *(_in_mode(f"checkpoint.{key}", "memory") for key in ("copies", "hidden")),
    *(_in_mode(f"checkpoint.{key}", "background", "memory") for key in ("snapshot", "write")),
    *(_in_mode(f"checkpoint.{key}", "blocking", "background") for key in ("store", "read", "node_rate")),
    *(_in_mode(f"elastic.{key}", "drop") for key in ("batch", "least")),
    _in_mode("elastic.loss", "shrink"),
    Need("step.gpus", lambda values: values.gives("step.time"), lambda _: "goes with step.time"),
    *(goes_with(f"sync.{key}", "sync.mode", "local") for key in ("inner", "fragments", "delay")),
    *(goes_with(f"sync.{key}", "sync.mode", "all_reduce") for key in ("backup", "overlap")),
    goes_with("sync.server", "sync.mode", "parameter_server"),
    goes_with("sync.gossip", "sync.mode", "gossip"),
)  # fmt: skip

RIVALS = of_step.RIVALS
PINS = of_step.PINS
