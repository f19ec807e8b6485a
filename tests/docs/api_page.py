"""Prints docs/api.md: what `import runcast` gives, from its docstrings.

python -m tests.docs.api_page > docs/api.md
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import runcast

HEAD = """# Python API

`import runcast` gives each command as a function. Nothing is printed or written; the answer is data.

```python
import runcast

prediction = runcast.simulate("train-llama3-70b-64xh100", {"parallel.tp": 8})
print(prediction)  # what `runcast simulate` prints; a notebook shows tables
prediction.fits  # whether devices have enough memory
prediction.report.step_time_s  # any number of the report
prediction.timeline.spans()  # what happened when, as a DataFrame
prediction.to_json()  # the report with its inputs; runcast.simulate takes it and its file, too
runcast.compare(prediction, None, {"parallel.tp": 4})  # a prediction is a scenario, too

scenario = runcast.load("train-llama3-70b-64xh100")
scenario["nodes"] = 16
runcast.compare("train-llama3-70b-64xh100", scenario)

runcast.sweep("train-llama3-70b-64xh100", {"parallel.tp": [2, 4, 8], "nodes": [8, 16]}).frame()
```

A **scenario** (`Given`) is the name of a shipped one (`runcast list scenarios`), the path of a file, a table of plain
values with the keys of [scenario.md](scenario.md), or a prediction, which holds its own. **Changes** are values by key
(`{"parallel.tp": 8}`), or lines as those of `--set` (`["parallel.tp=8"]`). What is wrong in them raises a `UserError`,
one line per fault. The JSON of every answer names its `schema`, which `runcast schema` prints;
[runcast.schema.json](runcast.schema.json) has all of them. The package is typed. Everything else under
`runcast.simulator` may change between releases.

`python -m tests.docs.api_page` writes this page from the code.
"""

FUNCTIONS = ("load", "simulate", "explain", "compare", "search", "sweep", "shipped", "schema")
CLASSES = (
    "Answer",
    "Prediction",
    "Explanation",
    "RunExplanation",
    "CycleExplanation",
    "Comparison",
    "SearchResult",
    "SweepResult",
)


def page() -> str:
    """The whole page."""
    functions = (_function(getattr(runcast, name), f"runcast.{name}", "##") for name in FUNCTIONS)
    classes = (_class(getattr(runcast, name), name) for name in (*CLASSES, "UserError"))
    return "\n\n".join([HEAD.rstrip(), *functions, "## Answers", *classes]) + "\n"


def _class(of: type, name: str) -> str:
    """A class with the methods and properties that it documents itself."""
    parts = [f"### `{name}`", _prose(of)]
    own = [(key, value) for key, value in vars(of).items() if not key.startswith("_")]
    parts += [f"- `{key}`: {_line(_getter(value))}" for key, value in own if isinstance(value, _PROPERTIES)]
    parts += [_method(value, key) for key, value in own if inspect.isfunction(value)]
    return "\n\n".join(parts[:2]) + "\n\n" + "\n".join(parts[2:]) if parts[2:] else "\n\n".join(parts)


def _method(of: Callable[..., Any], name: str) -> str:
    return f"- `{name}{_signature(of)}`: {_line(of)}"


_PROPERTIES = (property, cached_property)


def _getter(of: Any) -> Any:
    return of.fget if isinstance(of, property) else of.func


def _line(of: Any) -> str:
    return " ".join(_prose(of).split())


def _function(of: Callable[..., Any], name: str, level: str) -> str:
    return f"{level} `{name}`\n\n```python\n{name}{_signature(of)}\n```\n\n{_prose(of)}"


def _signature(of: Callable[..., Any]) -> str:
    """Parameters and result as the source has them, a parameter a line where they are many."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    assert isinstance(node, ast.FunctionDef)
    node.args.args = [one for one in node.args.args if one.arg != "self"]
    result = f" -> {_plain(node.returns)}" if node.returns is not None else ""
    parameters = list(_parameters(node.args))
    text = f"({', '.join(parameters)}){result}"
    return text if len(text) < 90 else "(\n" + "".join(f"    {one},\n" for one in parameters) + f"){result}"


def _parameters(args: ast.arguments) -> Iterator[str]:
    defaults = [None] * (len(args.args) - len(args.defaults)) + args.defaults
    yield from map(_parameter, args.args, defaults)
    if args.kwonlyargs:
        yield "*"
        yield from map(_parameter, args.kwonlyargs, args.kw_defaults)
    if args.kwarg is not None:
        yield f"**{_plain(args.kwarg)}"


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    return _plain(one) + (f" = {_plain(default)}" if default is not None else "")


def _plain(node: ast.AST) -> str:
    return re.sub(
        r"'([\w. |]+)'(?=$|[,)\]])", lambda name: name[0] if name[1].islower() else name[1], ast.unparse(node)
    )


def _prose(of: Any) -> str:
    """A docstring as Markdown: what it raises as a paragraph."""
    text = inspect.getdoc(of) or ""
    return re.sub(r"Raises:\n((?: .*\n?)+)", lambda raised: f"Raises {_raised(raised[1])}", text)


def _raised(lines: str) -> str:
    name, _, why = " ".join(lines.split()).partition(": ")
    return f"`{name}`: {why}"


if __name__ == "__main__":
    print(page(), end="")
