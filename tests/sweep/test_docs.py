"""docs/sweeps.md stays true: its tables are complete, its examples load."""

import re

import pytest
from runcast.simulator.answers.sweep import load_sweep
from runcast.simulator.answers.sweep.load import AxisTable, SweepTable

from .conftest import ROOT

PAGE = (ROOT / "docs/sweeps.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def workplace(tmp_path):
    """A folder like the repository's root, where outputs may be written."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    return tmp_path


def test_examples_load(workplace):
    loaded = [load_sweep(write(workplace, text)) for text in (blocks("toml")[0], "".join(blocks("toml")))]

    assert ([len(one) for one in loaded], dict(loaded[1].slurm)["queue"]) == ([27, 27], "cpu")


def write(folder, text):
    path = folder / "sweep.toml"
    path.write_text(text.replace("../scenarios", str(ROOT / "data/scenarios")))
    return path


def test_every_key_stands_in_a_table():
    keys = [field.alias or name for table in (SweepTable, AxisTable) for name, field in table.model_fields.items()]

    assert [key for key in keys if not re.search(rf"^\|.*`{key}`", PAGE, re.MULTILINE)] == []
