"""The one command, `runcast`: finds the verbs, runs one, turns a user's mistake into lines and an exit code.

Each package offers its verbs through the entry-point group `runcast.verbs`, so none imports another for them. A value
is a function annotated for typer, or a `typer.Typer` for a verb with verbs of its own. Only the called verb is loaded;
`--help` loads all, so modules that hold verbs import what is heavy (pandas, torch, plotly) inside their functions.

Exit codes: 0 done; 1 the answer is no (--require-fit, `search` that finds no plan, `validate --against` that moved), or
our own fault, with a traceback; 2 the user's mistake; 130 interrupted.
"""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from importlib.metadata import EntryPoint, entry_points, requires, version
from typing import Annotated, Any, TextIO

import typer
import typer.core

from .base.errors import UserError, printable, tidy
from .base.memo import collect_seldom

_MOST_FAULTS = 40


def main(arguments: list[str] | None = None) -> None:
    """Run `runcast` with these arguments (default: the command line's) and leave with its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    collect_seldom()
    try:
        with redirect_stdout(_Printable(sys.stdout)):
            try:
                build_app(given)(given, prog_name="runcast")
            finally:
                sys.stdout.flush()
    except UserError as error:
        _leave(2, *_lines(str(error).split("\n")))
    except ModuleNotFoundError as error:
        if not (hint := _missing_extra(error)):
            raise
        _leave(2, f"error: {hint}")
    except BrokenPipeError:  # the reader (`| head`) left: nobody is there to be told, nor at the flush on exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(1)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # nobody has to ask before whether a name may be one
            _leave(2, f"error: {tidy(f'{error.filename}: {error.strerror}')}")
        if error.filename is not None or error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(1, f"error: cannot print: {error.strerror}")
    except KeyboardInterrupt:
        _leave(130, "interrupted")
    except SystemExit as leave:  # typer's: it turns ^C into a silent 130
        _leave(leave.code, *["interrupted"] if leave.code == 130 else [])


class _Printable:
    """A stream on which names from files cannot act: what they hold of a terminal's escapes is written as text."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write it as `printable` does."""
        return self._stream.write(printable(text))


def _lines(faults: Sequence[str]) -> Iterator[str]:
    """The first faults, each as a line, and how many there are besides."""
    yield from (f"error: {line}" for line in faults[:_MOST_FAULTS])
    if len(faults) > _MOST_FAULTS:
        yield f"error: and {len(faults) - _MOST_FAULTS:,} more"


class _Verbs(typer.core.TyperGroup):
    """All verbs in one order, whether they have verbs of their own or not."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, sorted."""
        return sorted(super().list_commands(ctx))


def build_app(arguments: list[str]) -> typer.Typer:
    """The typer app with the verb that `arguments` begin with, or with all verbs when they begin with none."""
    verbs = {entry.name: entry for entry in entry_points(group="runcast.verbs")}
    words = arguments or _words_to_complete()
    called = [name for name in words[:1] if name in verbs]
    # Without rich markup help is plain text: half the start-up time, and the same in every terminal.
    app = typer.Typer(
        cls=_Verbs,
        callback=_options,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for name in called or sorted(verbs):
        _add_verb(app, verbs[name])
    return app


def _words_to_complete() -> list[str]:
    """The words behind `runcast` in a shell that asks what may follow; none where no shell does."""
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]


def _add_verb(app: typer.Typer, entry: EntryPoint) -> None:
    try:
        verb = entry.load()
    except (ImportError, AttributeError) as error:
        # It stays in the list, says why it cannot run, and takes any arguments to say so.
        takes_all = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(entry.name, context_settings=takes_all, add_help_option=False)(_unavailable(error))
    else:
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=entry.name)
        else:
            app.command(entry.name)(verb)


def _unavailable(error: Exception) -> Callable[[], None]:
    def verb() -> None:
        raise error

    verb.__doc__ = f"({_missing_extra(error) or f'cannot load: {error}'})"
    return verb


def _missing_extra(error: Exception) -> str | None:
    """The extra to install if `error` is a missing library of one of our extras; None for another error."""
    missing = (getattr(error, "name", None) or "").partition(".")[0]
    for requirement in requires("runcast") or []:
        found = re.match(r"""([\w.-]+).*extra == ["']([\w-]+)["']""", requirement)
        if found and found[1].replace("-", "_") == missing != "runcast":
            return f"needs the [{found[2]}] extra: pip install 'runcast[{found[2]}]'"
    return None


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"runcast {version('runcast')}")
        raise typer.Exit


def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Forecast a distributed LLM training step or an RL weight update before anyone pays for the GPUs."""


def _leave(code: Any, *lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr)
    raise SystemExit(code)
