"""The README and the docs stay true: their commands run, their output is what is printed, their tables are complete."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from runcast.simulator import simulate
from runcast.simulator.scenario import check_scenario
from runcast.simulator.scenario.schema import Inference, Model, Scenario, Slow, Update

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """Each command of a console block with the output shown below it."""
    parts = [re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] for block in blocks("console")]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for block in parts for part in block]


@pytest.fixture
def workplace(tmp_path):
    """A folder like the repository's root, where outputs may be written."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    (tmp_path / "out").mkdir()
    return tmp_path


def test_console_commands_print_what_the_readme_shows(workplace):
    for command, shown in commands():
        run = [str(BIN / "runcast"), *shlex.split(command)[1:]]
        done = subprocess.run(run, cwd=workplace, capture_output=True, text=True, timeout=240, check=False)
        printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())

        assert (command, done.returncode, done.stderr) == (command, 0, "")
        assert not shown or printed.strip() == shown.strip()


def test_python_examples_run(workplace):
    for code in blocks("python"):
        subprocess.run([sys.executable, "-c", code], cwd=workplace, check=True, capture_output=True, timeout=120)


def test_links_of_the_readme_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("http")]

    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("table", [Scenario, Model, Update, Inference, Slow])
def test_every_key_stands_in_the_reference(table):
    page = (ROOT / "docs/scenario.md").read_text()
    lines = [(f"| `{name}` |", f"| {field.description} |") for name, field in table.model_fields.items()]

    assert [key for key, meaning in lines if not re.search(f"{re.escape(key)}.*{re.escape(meaning)}", page)] == []


MODELS = {"Kimi-K2": "kimi-k2", "DeepSeek-V3.1": "deepseek-v3.1", "Qwen3-235B-A22B": "qwen3-235b-a22b"}


def published_rows() -> list[list[str]]:
    page = (ROOT / "docs/weight-update.md").read_text()
    rows = re.findall(r"^\| (\S+) (?:FP8|BF16) \| (\d+) (\S+) \| (\S+) GiB \| (\S+) \| (\S+) \|", page, re.MULTILINE)
    return [list(row) for row in rows]


@pytest.mark.parametrize("row", published_rows(), ids=lambda row: f"{row[0]} on {row[1]}")
def test_the_table_of_published_updates_is_what_is_predicted(row):
    model, gpus, device, bucket, _, predicted = row
    inference = {"tp": min(int(gpus), 16)}
    table = {
        "kind": "weight_update",
        "cluster": f"{device.lower()}-hgx",
        "nodes": int(gpus) // 8,
        "model": {"preset": MODELS.get(model, model.lower())},
        "update": {"bucket": f"{bucket} GiB", "process_group": "kept", "inference": inference},
    }

    assert f"{simulate(check_scenario(table)).report.update_time_s:.2f}" == predicted
