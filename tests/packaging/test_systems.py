"""A system is a folder of `systems` and a line of the registry; rooms below know none."""

from pathlib import Path

import runcast.simulator.systems as systems
from runcast.simulator.systems.registry import SYSTEMS, system_of


def test_every_folder_is_a_system_and_every_system_a_folder():
    folders = {path.parent.name for path in Path(systems.__file__).parent.glob("*/system.py")}
    assert folders == set(SYSTEMS)
    assert {kind: system.schema.model_fields["kind"].annotation.__args__ for kind, system in SYSTEMS.items()} == {
        kind: (kind,) for kind in SYSTEMS
    }


def test_a_table_of_no_known_kind_is_taken_for_a_weight_update():
    assert [system_of({"kind": kind}).kind for kind in ("train_step", "else", 3)] == [
        "train_step", "weight_update", "weight_update",
    ]  # fmt: skip
