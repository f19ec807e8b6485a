"""How keys of a run depend on each other; those of its step are in `train_step.keys`."""

from ..keys import Need, Values, goes_with
from ..train_step import keys as of_step


def _is_predicted(values: Values) -> bool:
    return not values.gives("step.time")


NEEDS: tuple[Need, ...] = (
    *of_step.NEEDS,
    *(
        Need(key, _is_predicted, lambda _: "is for a step that is predicted, not given as step.time")
        for key in ("model", "parallel", "schedule", "batch", "recompute", "offload", "overlap", "experts", "lora")
    ),
    Need("step.gpus", lambda values: values.gives("step.time"), lambda _: "goes with step.time"),
    *(goes_with(f"sync.{key}", "sync.mode", "local") for key in ("fragments", "delay")),
    *(goes_with(f"sync.{key}", "sync.mode", "all_reduce") for key in ("backup", "overlap")),
    goes_with("sync.server", "sync.mode", "parameter_server"),
    goes_with("sync.gossip", "sync.mode", "gossip"),
)  # fmt: skip

RIVALS = of_step.RIVALS
PINS = of_step.PINS
