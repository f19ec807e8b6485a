"""The README and the docs stay true: their commands run, their output is what is printed, their tables are complete."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from runcast.simulator import simulate
from runcast.simulator.hardware import cluster_names
from runcast.simulator.models import preset_names
from runcast.simulator.profile.forms import FEATURES, known_classes
from runcast.simulator.systems.collective.scenario import CollectiveKeys, CollectiveScenario, Job
from runcast.simulator.systems.rl_cycle.scenario import Cycle, CycleScenario, Engine, Length, Rollout
from runcast.simulator.systems.tables import Model, Slow
from runcast.simulator.systems.train_step import scenario as training
from runcast.simulator.systems.train_step.scenario import TrainScenario
from runcast.simulator.systems.weight_update import scenario as updates
from runcast.simulator.systems.weight_update.scenario import Inference, Scenario, Update

from ..command import runcast

STEPS = (
    "Kimi-K2 on 4,096 GPUs", "Kimi-K2 with half of its activations offloaded", "Llama-3-405B on 16,384 GPUs",
)  # fmt: skip
UPDATES = ("256 GPUs folded", "256 GPUs unfolded", "256 GPUs folded, three-stage", "4096 GPUs folded")
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


PROGRESS = re.compile(r"[\d,]+ of [\d,]+ points, .*")  # of a sweep, on stderr where that is no terminal


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[tuple[str, str]]:
    """Each command of a console block with the output shown below it."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


@pytest.fixture
def workplace(tmp_path):
    """A folder like the repository's root, where outputs may be written."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    (tmp_path / "out").mkdir()
    return tmp_path


def console_blocks():
    """Each with its commands; many of them, and predictions of a whole ledger, take their time."""
    for block in blocks("console"):
        long = len(commands(block)) > 2 or re.search("validate|execute", block)
        yield pytest.param(block, id=commands(block)[0][0], marks=pytest.mark.slow if long else ())


@pytest.mark.parametrize("block", console_blocks())
def test_console_commands_print_what_the_readme_shows(workplace, block):
    for command, shown in commands(block):
        done = runcast(*shlex.split(command)[1:], cwd=workplace)
        printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())

        told = [line for line in done.stderr.splitlines() if not PROGRESS.fullmatch(line)]
        assert (command, done.returncode, told) == (command, 0, [])
        assert not shown or printed.strip() == shown.strip()


def test_python_examples_run(workplace):
    for code in blocks("python"):
        subprocess.run([sys.executable, "-c", code], cwd=workplace, check=True, capture_output=True, timeout=300)


def test_links_of_the_readme_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("http")]

    assert [link for link in links if not (ROOT / link).exists()] == []


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_to_headings(page):
    links = re.findall(r"\]\(([^):#]*\.md)?#([^)]+)\)", page.read_text())
    assert [link for link in links if link[1] not in anchors(page.parent / link[0] if link[0] else page)] == []


TABLES = (
    Scenario, Model, Update, Inference, Slow, CycleScenario, Cycle, Rollout, Engine, Length, TrainScenario,
    training.Parallel, training.Schedule, training.Batch, training.Documents, training.Tower, training.Precision,
    training.Activations, training.Recompute, training.Offload, training.Overlap, training.Fusion, training.Experts,
    training.Memory, training.Lora, training.Run, training.Execute, training.Collectives, updates.Collectives,
    CollectiveScenario, CollectiveKeys, Job,
)  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_every_key_stands_in_the_reference(table):
    page = (ROOT / "docs/scenario.md").read_text()
    fields = table.model_fields.items()
    lines = [(f"| `{field.alias or name}` |", f"| {field.description} |") for name, field in fields]

    assert [key for key, meaning in lines if not re.search(f"{re.escape(key)}.*{re.escape(meaning)}", page)] == []


def published_rows() -> list[tuple[str, ...]]:
    page = (ROOT / "docs/weight-update.md").read_text()
    cells = r" \| ".join([r"`(\S+)`", r"\S+ GiB", r"(\S+)", r"(\S+)", r"(\S+) %", r"(\S+) to (\S+)"])
    return re.findall(rf"^\| {cells} \|", page, re.MULTILINE)


def test_all_six_published_updates_are_in_the_table():
    assert len(published_rows()) == 6


@pytest.mark.parametrize("row", published_rows(), ids=lambda row: row[0])
def test_the_table_of_published_updates_is_what_is_predicted(row):
    name, published, *_ = row
    report = simulate(ROOT / f"data/scenarios/{name}.toml").report
    error = report.update_time_s / float(published) - 1
    numbers = (report.update_time_s, 2), (error * 100, 1), (report.interval_low_s, 1), (report.interval_high_s, 1)
    predicted, signed, low, high = (f"{value:.{digits}f}" for value, digits in numbers)

    assert row[2:] == (predicted, signed if error < 0 else f"+{signed}", low, high)


def test_the_reference_lists_what_the_catalogue_holds():
    page = (ROOT / "docs/scenario.md").read_text()
    names = [*cluster_names(), *preset_names(), *(path.stem for path in (ROOT / "data/profiles").glob("*.json"))]

    assert [name for name in names if f"`{name}`" not in page] == []


def test_the_benchmark_page_has_a_row_for_every_case():
    page = (ROOT / "docs/benchmarks.md").read_text()

    assert [case for case in (*UPDATES, *STEPS) if f"| {case} |" not in page] == []


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_of_a_cost_class_stands_in_the_page_of_profiles(feature):
    assert f"`{feature}`" in (ROOT / "docs/profiles.md").read_text()


@pytest.mark.parametrize("name", sorted({kind.partition(".")[0] for kind in known_classes()}))
def test_every_family_of_cost_classes_stands_in_the_page_of_profiles(name):
    assert re.search(rf"`{name}[.`<]", (ROOT / "docs/profiles.md").read_text())
