"""Pictures of the docs are made by the commands that stand above them.

A line `runcast … --png out/NAME.png` of a page makes docs/pictures/NAME.png, which the page shows.

python -m tests.docs.pictures
"""

import re
import shlex
import tempfile
from pathlib import Path

from ..command import runcast

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs/pictures"
_COMMAND = re.compile(r"^ *(?:\$ )?runcast (.+ --png out/([\w-]+\.png).*)$", re.MULTILINE)
_SHOWN = re.compile(r"\]\((?:\.\./|docs/)?pictures/([\w-]+\.png)\)")


def pages() -> list[Path]:
    """README and every page of the docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(text: str) -> dict[str, str]:
    """The command of each picture of a page, by the picture's name."""
    shown = set(_SHOWN.findall(text))
    return {name: words for words, name in _COMMAND.findall(text) if name in shown}


def pictures_of(text: str) -> set[str]:
    """The pictures that a page shows."""
    return set(_SHOWN.findall(text))


def draw(words: str, name: str, folder: Path) -> None:
    """Run a command, and keep its picture.

    Raises:
        RuntimeError: the command failed; what it said.
    """
    with tempfile.TemporaryDirectory() as workplace:
        (Path(workplace) / "data").symlink_to(ROOT / "data")
        (Path(workplace) / "out").mkdir()
        done = runcast(*shlex.split(words), cwd=Path(workplace))
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stderr}")
        (folder / name).write_bytes((Path(workplace) / "out" / name).read_bytes())


if __name__ == "__main__":
    for page in pages():
        for name, words in commands(page.read_text()).items():
            draw(words, name, PICTURES)
