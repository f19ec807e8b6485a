"""How a run ends: with an exit code, and a line for the user."""

import sys

GO_ON = "the same command goes on where it stopped"


class RunEndError(Exception):
    """The run is over: exit code, and a line for the user, empty if there is nothing to say."""

    def __init__(self, code: int, line: str = ""):
        super().__init__(line)
        self.code, self.line = code, line


def say(line: str) -> None:
    """To the user, beside the progress."""
    print(line, file=sys.stderr, flush=True)
