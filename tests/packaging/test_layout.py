import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUP = PYPROJECT["tool"]["setuptools"]


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


def required():
    """Everything that the project and its extras need from elsewhere."""
    project = PYPROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    found = [Requirement(line) for lines in lists for line in lines]
    return [one for one in found if one.name != project["name"]]


def test_every_dependency_is_pinned_within_its_range():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}

    ranges = {canonicalize_name(one.name): one.specifier for one in required()}

    assert [line for line in lines if "==" not in line] == []
    assert [name for name, known in ranges.items() if name not in pinned or not known.contains(pinned[name])] == []


def test_no_dash_that_lets_clients_end_processes():
    (dash,) = [one for one in required() if one.name == "dash"]

    assert [dash.specifier.contains(version) for version in ("4.4.0", "4.4.1")] == [False, True]
