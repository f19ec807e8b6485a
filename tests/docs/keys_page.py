"""Prints the tables of docs/run-keys.md: every key of a run's scenario beside those of its step.

python -m tests.docs.keys_page > docs/run-keys.md
"""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from runcast.simulator.base.files import toml_value
from runcast.simulator.systems.run.scenario import RunScenario
from runcast.simulator.systems.run.spread import Spread
from runcast.simulator.systems.train_step.scenario import Trained

HEAD = """# Keys of a run

Every key of a scenario with `kind = "run"` beside those of [a training step](scenario.md#kind-train_step), which a run
takes, too: `cluster`, `nodes`, `stack`, `[model]`, `[parallel]` and the rest say what a worker's step is.
[run.md](run.md) says what they do. `python -m tests.docs.keys_page` writes this page from the code.
"""


def page() -> str:
    """The whole page."""
    own = [key for key in RunScenario.model_fields if key not in Trained.model_fields]
    spread = _table("A spread, such as `speed.jitter`", Spread, list(Spread.model_fields))
    return HEAD + "\n".join(["", *_table("Top level", RunScenario, own), *_inner(RunScenario, own, ""), *spread])


def _inner(schema: type[BaseModel], keys: list[str], before: str) -> Iterator[str]:
    for key in keys:
        for table, many in _tables(schema.model_fields[key].annotation):
            path = f"{before}{key}"
            yield from _table(f"`[[{path}]]`" if many else f"`[{path}]`", table, list(table.model_fields))
            yield from _inner(table, list(table.model_fields), f"{path}.")


def _tables(annotation: Any) -> Iterator[tuple[type[BaseModel], bool]]:
    """The tables that a key may hold, and whether it holds a list of them; a Spread has a table of its own."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation is not Spread:
            yield annotation, False
        return
    many = getattr(annotation, "__origin__", None) is tuple
    for inner in get_args(annotation):
        yield from ((table, many or of_many) for table, of_many in _tables(inner))


def _table(title: str, schema: type[BaseModel], keys: list[str]) -> Iterator[str]:
    yield from (f"## {title}", "", "| key | default | meaning |", "|---|---|---|")
    for key in keys:
        field = schema.model_fields[key]
        yield f"| `{key}` | {_default(field)} | {field.description} |"
    yield ""


def _default(field: Any) -> str:
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if default is None or default == () or default == {} or isinstance(default, BaseModel):
        return ""
    return f"`{toml_value(default)}`"


if __name__ == "__main__":
    print(page(), end="")
