"""The docs as a site: every page in a menu, every link and anchor leads somewhere, every picture has its command."""

import os
import subprocess
import sys

import pytest

from .pictures import PICTURES, ROOT, commands, draw, pages, pictures_of

OF_PAGES = {page: page.read_text() for page in pages()}
OF_PICTURES = {name: words for text in OF_PAGES.values() for name, words in commands(text).items()}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    """`strict` in its configuration makes each warning an error: a page that no menu has, a link that leads nowhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", "docs/site/mkdocs.yml", "-d", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert (tmp_path / "tutorials/researcher.html").exists()


def test_each_picture_has_its_command_beside_it():
    made = {(page, name): words for page, text in OF_PAGES.items() for name, words in commands(text).items()}

    assert set(made) == {(page, name) for page, text in OF_PAGES.items() for name in pictures_of(text)}
    assert len({(name, words) for (_, name), words in made.items()}) == len(set(PICTURES.glob("*.png")))


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_PICTURES)
def test_a_command_still_makes_its_picture(name, tmp_path):
    draw(OF_PICTURES[name], name, tmp_path)

    assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"
