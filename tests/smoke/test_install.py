"""What must hold wherever runcast is installed; also run against the wheel, with nothing of the repository around."""

import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

pytestmark = pytest.mark.smoke

RUNCAST = Path(sys.executable).with_name("runcast")
HEAVY = ["dash", "numba", "numpy", "pandas", "plotly", "pyarrow", "pydantic", "scipy", "torch"]
VERBS = [
    "calibrate", "cluster", "collective", "compare", "dashboard", "device", "execute", "explain", "init", "list",
    "plan", "schedule", "schema", "search", "simulate", "sweep", "validate",
]  # fmt: skip


def runcast(*arguments):
    return subprocess.run([RUNCAST, *arguments], capture_output=True, text=True, timeout=300)


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)


def test_import():
    import runcast.simulator

    assert issubclass(runcast.simulator.UserError, ValueError)


def test_public_names_load():
    import runcast.simulator

    for name in runcast.simulator.__all__:
        assert getattr(runcast.simulator, name) is not None


def test_the_names_of_runcast_load():
    import runcast

    assert set(runcast.__all__) <= set(dir(runcast))
    for name in runcast.__all__:
        assert getattr(runcast, name).__doc__


def test_import_runcast_imports_nothing_heavy():
    done = python(f"import sys, runcast; print(*sorted(set({[*HEAVY, 'runcast.simulator']}) & set(sys.modules)))")
    assert done.stdout == "\n"


def test_runcast_is_typed():
    import runcast

    assert Path(runcast.__file__).with_name("py.typed").is_file()


def test_a_shipped_scenario_is_predicted_by_name():
    import runcast

    prediction = runcast.simulate("tiny-train-pp4", {"batch.micro": 2})

    assert (prediction.fits, prediction.report.name) == (True, "tiny Llama, PP4, 1F1B with batch.micro=2")


def test_a_file_to_start_from_is_simulated(tmp_path):
    assert runcast("init", "tiny-train-pp4", "-o", tmp_path / "mine.toml").returncode == 0

    by_file, by_name = (runcast("simulate", one) for one in (tmp_path / "mine.toml", "tiny-train-pp4"))

    assert by_file.returncode == 0
    assert by_file.stdout == by_name.stdout


def test_clusters_are_listed():
    assert "dgx-h100" in [line.split()[0] for line in runcast("list", "clusters").stdout.splitlines()]


def test_data_is_found():
    from importlib.resources import files

    assert files("runcast.data").joinpath("hardware").is_dir()


def test_version_of_the_package():
    import runcast

    assert runcast.__version__ == version("runcast")


def test_version():
    assert runcast("--version").stdout == f"runcast {version('runcast')}\n"


def test_no_verb_appears_unnoticed():
    assert sorted(entry.name for entry in entry_points(group="runcast.verbs")) == VERBS


def test_help_lists_the_verbs():
    done = runcast("--help")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.partition("Commands:\n")[2].splitlines()] == VERBS


def test_help_imports_nothing_heavy():
    done = python(f"""
import sys
from runcast.simulator.cli import main
try:
    main(["--help"])
except SystemExit:
    print("heavy:", *sorted(set({HEAVY}) & set(sys.modules)))
""")
    assert done.stdout.splitlines()[-1] == "heavy:"


@pytest.mark.parametrize("arguments", [["simulat"], ["--simulate"]])
def test_unknown_verb_or_option(arguments):
    done = runcast(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"Error: No such {'option' if '--' in arguments[0] else 'command'}")
