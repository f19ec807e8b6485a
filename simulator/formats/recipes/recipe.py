"""What a recipe of another tool says: a scenario, and what became of each of its arguments."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...models import from_hf_config, preset


@dataclass(frozen=True)
class Recipe:
    """A scenario from the file of another tool.

    `table` is the scenario as plain values, without the model where that is `config`: keys of a Hugging Face config
    that go into a file of their own. Every argument of the file is in `read`, `untimed` (no part of a step's time),
    `not_modelled` (with a reason) or `unknown` (with near misses); `assumed` is what the file left open. `update` is
    the scenario of a weight update that a recipe of reinforcement learning says beside the step, without its model.
    `beside` is what comments say of machines, software and data, by keys of the scenario.
    """

    form: str
    table: Mapping[str, Any]
    config: Mapping[str, Any] | None
    read: tuple[str, ...]
    assumed: tuple[str, ...]
    untimed: tuple[str, ...]
    not_modelled: tuple[str, ...]
    unknown: tuple[str, ...]
    update: Mapping[str, Any] | None = None
    beside: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        form: str,
        table: Mapping[str, Any],
        config: Mapping[str, Any] | None,
        account: Mapping[str, Any],
        update: Mapping[str, Any] | None = None,
    ) -> "Recipe":
        """A recipe with the account that its arguments give of themselves; with text alone if it names no towers."""
        unread = [] if "towers" in table else _towers(table["model"], config)
        if unread:
            table = {**table, "towers": {name: {"inputs": 0} for name in unread}}
            line = ", ".join(f"towers.{name}.inputs = 0" for name in unread)
            account = {**account, "assumed": (*account["assumed"], f"{line}: recipes do not say what a tower reads")}
        read, assumed, untimed = account["read"], account["assumed"], account["untimed"]
        return cls(form, table, config, read, assumed, untimed, account["not_modelled"], account["unknown"], update)


def _towers(model: Mapping[str, Any], config: Mapping[str, Any] | None) -> list[str]:
    """The towers that a model can do without."""
    spec = preset(model["preset"]) if "preset" in model else from_hf_config(config) if config else None
    return [tower.name for tower in spec.towers] if spec and spec.cross is None else []
