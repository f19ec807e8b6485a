"""`python -m runcast.calibrate VERB`: `run`, `show` and `drift` need torch at most; the other verbs are those of
`runcast calibrate`.
"""

import sys
from importlib import import_module

_MEASURING = {"run": ".measure.command", "show": ".measure.show", "drift": ".measure.drift"}


def main(arguments: list[str]) -> int:
    """Run a verb; returns the exit code."""
    verb, *rest = arguments or ["--help"]
    if verb in _MEASURING:
        code: int = import_module(_MEASURING[verb], __package__).run(rest)
        return code
    try:
        from ..simulator.cli import main as runcast
    except ModuleNotFoundError as error:
        print(
            f"{__doc__}\nNot installed here: {error.name}, so only run, show and drift are to be had.", file=sys.stderr
        )
        return 0 if verb in ("--help", "-h") else 2
    runcast(["calibrate", *arguments])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
