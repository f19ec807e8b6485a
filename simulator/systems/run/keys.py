"""How keys of a run depend on each other; those of its step are in `train_step.keys`.

What a mode does not simulate is refused, so that nobody believes it was.
"""

from ...base.errors import UserError, fault
from ..keys import Change, Need, Pin, Values, goes_with, value_at
from ..train_step import keys as of_step
from .modes import MODES, OF_STEP, Mode
from .scenario import INSTEAD

_USUAL = {"checkpoint.mode": "blocking", "elastic.mode": "drop"}  # in tables that may be left out


def _mode(values: Values) -> Mode:
    """The run's mode. Where nobody knows it, the first one: the schema then says which there are."""
    name = next((table for table in INSTEAD if values.gives(table)), values["sync.mode"])
    return next((mode for mode in MODES.values() if mode.name == name), next(iter(MODES.values())))


def _is_predicted(values: Values) -> bool:
    return not values.gives("step.time")


def _simulated(key: str) -> Need:
    """A key that not every mode simulates."""

    def words(values: Values) -> str:
        mode = _mode(values).name
        here = f"[{mode}]" if mode in INSTEAD else f"sync.mode = {mode!r}"
        return f"is not for {here}: goes with {', '.join(one.name for one in MODES.values() if one.takes(key))}"

    return Need(key, lambda values: _mode(values).takes(key), words)


def _in_mode(key: str, *modes: str) -> Need:
    """A key of a table that goes with some values of the table's mode."""
    other = f"{key.partition('.')[0]}.mode"
    return Need(
        key,
        lambda values: (values[other] or _USUAL[other]) in modes,
        lambda values: f"goes with {other} = {' or '.join(map(repr, modes))}, not {values[other] or _USUAL[other]!r}",
    )


NEEDS: tuple[Need, ...] = (
    *of_step.NEEDS,
    *(
        Need(key, _is_predicted, lambda _: "is for a step that is predicted, not given as step.time")
        for key in ("model", *OF_STEP)
    ),
    *map(_simulated, dict.fromkeys(key for one in MODES.values() for key in one.refuses)),
    *(goes_with(key, "sync.mode", one.name) for one in MODES.values() for key in one.own),
    *(_in_mode(f"checkpoint.{key}", "memory") for key in ("copies", "hidden")),
    *(_in_mode(f"checkpoint.{key}", "background", "memory") for key in ("snapshot", "write")),
    *(_in_mode(f"checkpoint.{key}", "blocking", "background") for key in ("store", "read", "node_rate")),
    *(_in_mode(f"elastic.{key}", "drop") for key in ("batch", "least")),
    _in_mode("elastic.loss", "shrink"),
    Need("step.gpus", lambda values: values.gives("step.time"), lambda _: "goes with step.time"),
)

RIVALS = of_step.RIVALS


def _timed_in_mode(key: str) -> Pin:
    """A stated time of a checkpoint, which is that of one mode."""
    mode = "checkpoint.mode"

    def check(change: Change) -> None:
        was, now = (value_at(table, mode) or _USUAL[mode] for table in (change.before, change.after))
        if was != now:
            raise UserError(fault("", key, value_at(change.after, key), f"is that of {mode} = {was!r}"))

    return Pin(key, (mode,), check)


PINS = (*of_step.pins(lambda run: run.resolved_step), *map(_timed_in_mode, ("checkpoint.stall", "checkpoint.write")))
