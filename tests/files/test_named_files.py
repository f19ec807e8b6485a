"""Files that scenarios name: beside the scenario, wherever in its table they stand."""

import pytest
from runcast.simulator.base.named_files import rename_files


@pytest.mark.parametrize(
    "named",
    [
        {"cluster": {"mix": [{"node": "mine.toml", "nodes": 1}, {"device": "mine.toml", "nodes": 1}]}},
        {"cycle": {"train": {"stack": "mine.toml", "schedule": {"file": "plain"}}}},
        {"cycle": {"train": "plain"}},
        {"jobs": {"trace": "plain"}},
        {"cluster": ["mine.toml", "dgx-h100"], "schedule.file": ["plain"]},
        {"model": {"config": "folder"}},
    ],
)
def test_every_file_beside_the_scenario_is_named_in_full(named, tmp_path):
    for name in ("mine.toml", "plain", "scenario.toml", "folder/config.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    found = rename_files(named, str(tmp_path / "scenario.toml"), lambda place: f"full {place.name}")

    assert found == _with(named, ("mine.toml", "plain", "folder"))


def test_what_is_no_file_keeps_its_name(tmp_path):
    (tmp_path / "mine.toml").touch()
    (tmp_path / "scenario.toml").touch()
    named = {"name": "mine.toml", "plan": ["mine.toml"], "cluster": "dgx-h100", "stack": "other.toml", "cycle": None}

    assert rename_files(named, str(tmp_path / "scenario.toml"), str) == named


def _with(value, names):
    """The value with these names in full."""
    if isinstance(value, dict):
        return {key: _with(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_with(item, names) for item in value]
    return f"full {value}" if value in names else value
