"""Whole recipes: what each says as a scenario, to the letter, and that it comes back from its own export."""

from pathlib import Path

import pytest
from runcast.simulator.formats.recipes import Additions, export_recipe, import_recipe, load_training

HERE = Path(__file__).parent
RECIPES = {
    "llama3-70b.sh": ("dgx-h100", 8),
    "deepseek-v3.yaml": ("h800-hgx", 64),
    "gpt3-175b.sh": ("dgx-a100", 128),
    "qwen3-8b.sh": ("dgx-h100", 1),
    "llama3-8b.toml": ("dgx-h100", 1),
    "llama3-405b.toml": ("dgx-h100", 64),
}
MEGATRON = list(RECIPES)[:3]
TRAINERS = {
    "axolotl-lora.yaml": ("dgx-h100", 1, None),
    "axolotl-full.yaml": ("dgx-h100", 2, None),
    "llamafactory-full.yaml": ("dgx-h100", 2, None),  # with zero3-offload.json
    "zero2.json": ("dgx-a100", 4, Additions("llama2-13b", 4096)),
}


def imported(name, folder):
    machines, nodes = RECIPES[name]
    out = folder / f"{Path(name).stem}.toml"
    return import_recipe(HERE / "files" / name, out, machines, nodes)[0], out


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_the_scenario_that_was_read_once(name, tmp_path):
    _, out = imported(name, tmp_path)

    assert out.read_text() == (HERE / "golden" / out.name).read_text()


@pytest.mark.parametrize("name", TRAINERS)
def test_a_trainers_recipe_is_the_scenario_that_was_read_once(name, tmp_path):
    machines, nodes, additions = TRAINERS[name]
    out = tmp_path / f"{Path(name).stem}.toml"
    recipe, _ = import_recipe(HERE / "files" / name, out, machines, nodes, additions=additions)

    assert out.read_text() == (HERE / "golden" / out.name).read_text()
    assert recipe.unknown == ()


@pytest.mark.parametrize("name", MEGATRON)
def test_a_recipe_says_the_same_after_export(name, tmp_path):
    _, out = imported(name, tmp_path)
    scenario = load_training(out)
    exported = export_recipe(scenario, where=str(out))
    (tmp_path / "again.sh").write_text(str(exported))
    import_recipe(tmp_path / "again.sh", tmp_path / "again.toml", *RECIPES[name])
    again = load_training(tmp_path / "again.toml")

    assert again.model_copy(update={"name": scenario.name}) == scenario
    assert exported.unsaid == ()


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_in_these_recipes_is_unknown(name, tmp_path):
    recipe, _ = imported(name, tmp_path)

    assert recipe.unknown == ()


def test_a_model_without_a_preset_has_a_config_beside_the_scenario(tmp_path):
    text = (HERE / "files/llama3-70b.sh").read_text().replace("--num-layers 80", "--num-layers 40 --vocab-size 100000")
    (tmp_path / "small.sh").write_text(text.replace("-pipeline-stage 4", "-pipeline-stage 5"))
    _, files = import_recipe(tmp_path / "small.sh", tmp_path / "small.toml", "dgx-h100", 8)

    assert [file.name for file in files] == ["small-model.json", "small.toml"]
    assert load_training(tmp_path / "small.toml").model.config == "small-model.json"
    exported = export_recipe(load_training(tmp_path / "small.toml"), where=str(tmp_path / "small.toml"))
    assert "--num-layers 40" in exported.lines
