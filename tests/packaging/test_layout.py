import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def folders_with_code():
    for prefix, top in SETUP["package-dir"].items():
        for folder in {file.parent for file in (ROOT / top).rglob("*.py")}:
            yield ".".join([prefix, *folder.relative_to(ROOT / top).parts])


def test_packages_listed_are_the_folders_on_disk():
    assert sorted(SETUP["packages"]) == sorted(folders_with_code())


def test_every_package_has_its_init():
    homes = {prefix: ROOT / top for prefix, top in SETUP["package-dir"].items()}
    for package in SETUP["packages"]:
        prefix = ".".join(package.split(".")[:2])
        assert homes[prefix].joinpath(*package.split(".")[2:], "__init__.py").is_file(), package


@pytest.mark.parametrize("package", ["simulator", "kernels"])
def test_bare_import_names_the_right_one(package):
    done = subprocess.run([sys.executable, "-c", f"import {package}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"ImportError: import runcast.{package}, not {package}" in done.stderr
