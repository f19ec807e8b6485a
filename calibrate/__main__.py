"""`python -m runcast.calibrate VERB`: `run`, `show` and `drift` need torch at most; the other verbs are those of
`runcast calibrate`.
"""

import os
import sys
from importlib import import_module

_MEASURING = {"run": ".measure.command", "show": ".measure.show", "drift": ".measure.drift"}


def main(arguments: list[str]) -> int:
    """Run a verb; returns the exit code."""
    verb, *rest = arguments or ["--help"]
    if verb in _MEASURING:
        return _measuring(_MEASURING[verb], rest)
    try:
        from ..simulator.cli import main as runcast
    except ModuleNotFoundError as error:
        print(f"{__doc__}\nNot installed here: {error.name}, so only run, show and drift work; take", file=sys.stderr)
        print("the file of records to where `pip install runcast` is complete for the others.", file=sys.stderr)
        return 0 if verb in ("--help", "-h") else 2
    runcast(["calibrate", *arguments])
    return 0


def _measuring(module: str, arguments: list[str]) -> int:
    try:
        code: int = import_module(module, __package__).run(arguments)
        sys.stdout.flush()
        return code
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("error: measuring needs torch, which is not installed here", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader (`| head`) left: nobody is there to be told, nor at the flush on exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
