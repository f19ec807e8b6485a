import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from runcast.simulator.systems.machines import release

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUP = PYPROJECT["tool"]["setuptools"]


HOMES = {ROOT / top: prefix for prefix, top in SETUP["package-dir"].items()}


def folders_with_code():
    """Packages by folder; `runcast` itself is a folder within that of `runcast.simulator`."""
    for folder in {file.parent for home in HOMES for file in home.rglob("*.py")}:
        home = next(one for one in (folder, *folder.parents) if one in HOMES)
        yield ".".join([HOMES[home], *folder.relative_to(home).parts])


def test_packages_listed_are_the_folders_on_disk():
    assert sorted(SETUP["packages"]) == sorted(folders_with_code())


def test_every_package_has_its_init():
    homes = {prefix: home for home, prefix in HOMES.items()}
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


def pins(file):
    """Requirement and hashes of every line of a file that `make lock` writes, by name."""
    lines = (ROOT / file).read_text().replace("\\\n", " ").splitlines()
    found = [line.split(" --hash=") for line in lines if not line.startswith("#")]
    return {canonicalize_name(Requirement(line).name): (Requirement(line), hashes) for line, *hashes in found}


def test_every_dependency_is_pinned_within_its_range():
    versions = {name: str(pin.specifier) for name, (pin, _) in pins("constraints.txt").items()}

    ranges = {canonicalize_name(one.name): one.specifier for one in required()}

    assert [pin for pin in versions.values() if not pin.startswith("==")] == []
    assert ranges.keys() - versions.keys() == set()
    assert [name for name, known in ranges.items() if not known.contains(versions[name][2:])] == []


def test_the_lock_has_the_pins_of_the_constraints_with_hashes():
    locked = pins("requirements.lock")

    assert {name: str(pin) for name, (pin, _) in locked.items()} == {
        name: str(pin) for name, (pin, _) in pins("constraints.txt").items() if name not in ("torch", "triton")
    }
    assert [name for name, (_, hashes) in locked.items() if not hashes] == []


def test_hashes_of_scenarios_rest_on_the_release(monkeypatch):
    versions = ["0.2.0", "0.2.0.post1.dev34+gf796c1e", "0.2.0rc1", "0.2.0.post1.dev0+gf796c1e.d20261124"]
    for installed in versions:
        monkeypatch.setattr("runcast.simulator.systems.machines.version", lambda name, installed=installed: installed)
        assert release() == "0.2.0"


def test_without_tags_the_version_is_that_of_the_last_tag():
    """The release that hashes rest on, as a clone without tags and an archive without git have it."""
    scm = PYPROJECT["tool"]["setuptools_scm"]
    done = subprocess.run(["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True)

    tagged = done.stdout.strip().removeprefix("v") if done.returncode == 0 else "0"

    assert Version(scm["fallback_version"]) >= Version(tagged)


def test_no_dash_that_lets_clients_end_processes():
    (dash,) = [one for one in required() if one.name == "dash"]

    assert [dash.specifier.contains(version) for version in ("4.4.0", "4.4.1")] == [False, True]


def map_of_the_house():
    """The lines of the map in CONTRIBUTING.md, by package and room; lines that go on belong to the room above."""
    drawn = (ROOT / "CONTRIBUTING.md").read_text().partition("```text\n")[2].partition("```")[0]
    found, package, room = {}, "", ""
    for line in drawn.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 0:
            package, room = line.split("/")[0], ""
        elif indent == 2:
            room = line.split()[0].strip("/").removesuffix(".py")
        found[package, room] = found.get((package, room), "") + line
    return found


def test_every_folder_of_code_is_in_the_map_of_the_house():
    lines = map_of_the_house()
    for package in SETUP["packages"]:
        top, *inner = package.removeprefix("runcast.").split(".")
        if top == "runcast":  # the package itself
            top, inner = "simulator", ["runcast"]
        home = lines.get((top, inner[0])) if top == "simulator" and inner else lines.get((top, ""))
        assert home is not None, f"{package}: no line of its own in the map of CONTRIBUTING.md"
        assert all(f"{name}/" in home for name in inner), f"{package}: not named in the map of CONTRIBUTING.md"


def test_rooms_are_in_the_order_in_which_they_may_import():
    (layers,) = [one["layers"] for one in PYPROJECT["tool"]["importlinter"]["contracts"] if one["type"] == "layers"]
    floor = {name: level for level, line in enumerate(layers) for name in re.findall(r"\w+", line)}

    floors = [floor[room] for package, room in map_of_the_house() if package == "simulator" and room]

    assert floors == sorted(floors)
