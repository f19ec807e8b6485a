"""Prints docs/commands.md: every command with its options, as `--help` has them.

python -m tests.docs.commands_page > docs/commands.md
"""

from collections.abc import Iterator
from typing import Any

import typer
from runcast.simulator.cli import build_app

HEAD = """# Commands

`runcast COMMAND --help` prints the same. A scenario is a file, or the name of a shipped one (`runcast list scenarios`);
so is a cluster (`runcast list clusters`). `runcast --install-completion` lets the shell complete commands, options and
names.

Exit codes: 0 done; 1 the answer is no (`--require-fit` and it does not fit, `search` finds no plan that fits,
`validate --against` and a row moved, points of a `sweep` failed); 2 a mistake in what you gave, told in one line per
fault on stderr; 130 interrupted.

`python -m tests.docs.commands_page` writes this page from the code.
"""


def page() -> str:
    """The whole page."""
    group: Any = typer.main.get_command(build_app([]))
    parts = (part for name in group.list_commands(None) for part in _parts(group.commands[name], f"runcast {name}"))
    return "\n".join([HEAD, *parts])


def _parts(command: Any, path: str) -> Iterator[str]:
    """A section for a command, or for each of a group."""
    if hasattr(command, "commands"):
        for name in command.list_commands(None):
            yield from _parts(command.commands[name], f"{path} {name}")
        return
    yield f"## `{path}`\n\n{(command.help or '').strip()}\n"
    context = command.make_context(path, [], resilient_parsing=True)
    records = (one.get_help_record(context) for one in command.get_params(context))
    rows = [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in filter(None, records) if "--help" not in name]
    if rows:
        yield "\n".join(["| option | meaning |", "|---|---|", *rows]) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
