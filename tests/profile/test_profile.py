"""Profiles and stacks: what a file may say, and one line that names it for each thing it may not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runcast.simulator import UserError
from runcast.simulator.profile import (
    PARAMETERS,
    Parameter,
    Profile,
    check_complete,
    load_profile,
    load_stack,
    profile_for,
)


def entry(value: Any) -> dict[str, Any]:
    return {"value": value, "spread": 0.1, "provenance": "measured", "source": "this test"}


def faults(read: Callable[..., Any], *arguments: Any) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        read(*arguments)
    assert len(caught.value.faults) == len(str(caught.value).splitlines())
    return caught.value.faults


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def written(file: str = "mine.json", **content: Any) -> str:
        (tmp_path / file).write_text(json.dumps({"schema": 2} | content))
        return str(tmp_path / file)

    return written


def test_a_file_changes_what_it_names_and_keeps_its_base(write: Callable[..., str]) -> None:
    file = write(name="mine", base="generic", parameters={"link_fraction.pcie": entry(0.5)})
    mine, generic = load_profile(file), load_profile("generic")
    assert (mine.name, mine.value("link_fraction.pcie")) == ("mine", 0.5)
    assert mine["link_fraction.nvlink"] == generic["link_fraction.nvlink"]


def test_what_a_file_takes_over_keeps_the_network_that_it_was_measured_on(write: Callable[..., str]) -> None:
    """NICs of the base on EFA; what lies over it was measured on Ethernet."""
    write("base.json", base="h100-sxm", network="efa", parameters={"link_fraction.nic": entry(0.9)})
    own = {"copy.p2p_fraction": entry(0.8), "link_fraction.hbm": {**entry(0.8), "network": "roce"}}
    mine = load_profile(write(base="base.json", network="ethernet", parameters=own))
    found = [mine[name].network for name in ("link_fraction.nic", *own, "link_fraction.nvlink")]
    assert found == ["efa", "ethernet", "roce", "infiniband"]
    assert mine.lender("all_gather.network").network == "infiniband"  # a ratio has its lender's


def test_a_stated_number_is_of_the_network_that_it_stands_for(write: Callable[..., str]) -> None:
    mine = load_profile(write(base="h100-sxm", network="efa", parameters={"link_fraction.nic": entry(0.9)}))
    stated = mine.set_values({"link_fraction.nic": 0.7, "copy.p2p_fraction": 0.7}, "a test").parameters
    assert [stated[name].network for name in ("link_fraction.nic", "copy.p2p_fraction")] == ["efa", "infiniband"]


def test_a_stack_may_be_toml_with_a_byte_order_mark(tmp_path: Path) -> None:
    line = 'parameters."reload.s" = { value = 0.5, spread = 0, provenance = "exact", source = "this test" }'
    (tmp_path / "mine.toml").write_text(f'schema = 2\nbase = "checkpoint-engine"\n{line}\n', encoding="utf-8-sig")
    assert load_stack(str(tmp_path / "mine.toml")).value("reload.s") == 0.5


def test_what_a_stack_of_ones_own_says_counts_whatever_the_ledger_found_of_its_base(tmp_path: Path) -> None:
    line = 'parameters."reload.tensor_s" = { value = 5e-6, spread = 0, provenance = "exact", source = "this test" }'
    (tmp_path / "mine.toml").write_text(f'schema = 2\nbase = "checkpoint-engine"\n{line}\n')
    (tmp_path / "scenario.toml").touch()
    mine, base = load_stack("mine.toml", str(tmp_path / "scenario.toml")), load_stack("checkpoint-engine")
    assert base["reload.tensor_s"].provenance == "fitted"
    assert (mine.value("reload.tensor_s"), mine["drop_handle.s"]) == (5e-6, base["drop_handle.s"])


def test_files_are_found_beside_those_that_name_them(tmp_path: Path, write: Callable[..., str]) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / "scenario.toml").touch()
    write("deeper/low.json", parameters={"link_fraction.pcie": entry(0.5)})
    write("deeper/high.json", base="low.json")
    assert load_profile("deeper/high.json", str(tmp_path / "scenario.toml")).value("link_fraction.pcie") == 0.5


def test_a_device_without_a_profile_has_the_generic_one() -> None:
    assert (profile_for("H20"), profile_for("abacus")) == ("h20", "generic")


@pytest.mark.parametrize("name", ["reload.reload", "broadcast.h2d", "all_gather.gemm_2"])
def test_any_two_kinds_may_interfere(name: str, write: Callable[..., str]) -> None:
    file = write(parameters={f"interference.{name}": entry(0.7)})
    assert load_profile(file).value(f"interference.{name}") == 0.7


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("link_fraction.pcie", value) for value in (0, 1e-300, -0.5, 1.01, True, "0.5", None, 10**400)),
        *(("link_fraction.pcie", float(value)) for value in ("nan", "inf", "-inf")),
        *(("copy.hbm_fraction", value) for value in (0, 1.5)),
        *(("interference.reload.h2d", value) for value in (0, 1.5)),
        *(("reload.s", value) for value in (-1e-9, 2)),
    ],
)
def test_a_value_out_of_bounds(name: str, value: Any, write: Callable[..., str]) -> None:
    file = write(parameters={name: entry(value)})
    (line,) = faults(load_profile, file)
    assert line.startswith(f"{file}: {name}.value = ")
    assert ": expected " in line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"paramaters": {}}, "paramaters: unknown key; did you mean parameters?"),
        ({"schema": 99}, "schema = 99: expected one of 2"),
        ({"base": 3}, "base = 3: expected text"),
        ({"base": "generik"}, "base = 'generik': unknown; did you mean generic?"),
        ({"devices": "H20"}, "devices = 'H20': expected a list"),
        ({"parameters": []}, "parameters = []: expected a table"),
        ({"parameters": {"reload": entry(1)}}, "parameter = 'reload': unknown; did you mean reload.s?"),
        ({"parameters": {"interference.h2d": entry(1)}}, "interference.<kind>.<kind>"),
        ({"parameters": {"reload.s": 3}}, "reload.s = 3: expected a table with keys such as value and spread"),
        ({"parameters": {"reload.s": entry(1) | {"spread": 9}}}, "reload.s.spread = 9: expected at most 5"),
        ({"parameters": {"reload.s": entry(1) | {"provenance": []}}}, "reload.s.provenance = []: expected one of"),
        ({"parameters": {"reload.s": entry(1) | {"source": " "}}}, "reload.s.source = ' ': expected text"),
    ],
)
def test_a_mistake_is_one_line(content: dict[str, Any], message: str, write: Callable[..., str]) -> None:
    file = write(**content)
    (line,) = faults(load_profile, file)
    assert line.startswith(f"{file}: ")
    assert message in line


def test_every_fault_has_its_own_line(write: Callable[..., str]) -> None:
    assert len(faults(load_profile, write(schema=1, base=3, paramaters={}))) == 3
    assert len(faults(load_profile, write(parameters={"reload.s": entry(-1), "reload": entry(1)}))) == 2
    missing = faults(load_profile, write(parameters={"reload.s": {"value": 1}, "sync.s": {"value": 1}}))
    assert [line.split(": ")[1] for line in missing] == [
        f"{name}.{key}" for name in ("reload.s", "sync.s") for key in ("spread", "provenance", "source")
    ]


@pytest.mark.parametrize("text", ["[1, 2]", "null", "3"])
def test_what_is_no_table(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(text)
    (line,) = faults(load_profile, str(tmp_path / "mine.json"))
    assert line.startswith(f"{tmp_path}/mine.json: holds ")


def test_a_profile_that_rests_on_itself(write: Callable[..., str]) -> None:
    file = write(base="./mine.json")
    assert faults(load_profile, file) == (f"{file}: base = './mine.json': rests on itself; a chain of bases must end",)


def test_two_stacks_that_rest_on_each_other(tmp_path: Path, write: Callable[..., str]) -> None:
    file = write(base=f"../{tmp_path.name}/other.json")
    write("other.json", base="mine.json")
    (line,) = faults(load_stack, file)
    assert line.endswith("other.json: base = 'mine.json': rests on itself; a chain of bases must end")


def test_a_missing_parameter_is_named_with_its_meaning() -> None:
    known = {name: Parameter(1.0, 0.0, "exact", "this test") for name in PARAMETERS}
    check_complete(Profile("all", known), "s.toml")
    del known["reload.s"], known["barrier.s"]
    assert faults(check_complete, Profile("mine", known), "s.toml") == (
        "s.toml: mine: reload.s: is missing; expected one call of the worker's weight loader",
        "s.toml: mine: barrier.s: is missing; expected a barrier of all ranks",
    )


@pytest.mark.parametrize("name", ["generic", "h20", "h800"])
def test_shipped_profiles_lack_only_what_a_stack_says(name: str) -> None:
    check_complete(load_profile(name).join(load_stack("checkpoint-engine")), "here")
