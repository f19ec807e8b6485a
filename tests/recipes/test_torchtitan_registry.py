"""torchtitan's recipes in Python: read as text, whatever a release writes them like."""

import json
from pathlib import Path

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import Additions, read_recipe, scenario_table

FILES = Path(__file__).parent / "files/torchtitan"
BY_OP = {"mode": "selective", "modules": ["layernorm", "activation"]}
FULL = {"mode": "full"}
FSDP = {"zero": 3}


@pytest.fixture
def read(tmp_path):
    def recipe(name, file="llama3", nodes=8, **settings):
        folder = tmp_path / file
        folder.mkdir(exist_ok=True)
        (folder / "config_registry.py").write_text((FILES / f"{file}.txt").read_text())
        if (beside := FILES / f"{file}.init.txt").exists():
            (folder / "__init__.py").write_text(beside.read_text())
        additions = Additions(recipe=name, settings=settings)
        return read_recipe(folder / "config_registry.py", "dgx-h100", nodes, additions=additions)

    return recipe


def said(recipe, nodes=8):
    table = scenario_table(recipe, "r", "dgx-h100", nodes)
    model = table["model"].get("preset") or recipe.config["hidden_size"]
    batch = table["batch"]
    precision = table.get("precision", {}).get("compute", "bf16")
    sizes = (batch["global"], batch.get("micro", 1), batch["seq_len"])
    return model, table["parallel"], sizes, table.get("recompute"), precision


@pytest.mark.parametrize(
    ("name", "file", "model", "parallel", "batch", "recompute", "precision"),
    [
        ("llama3_debugmodel", "llama3", 256, FSDP, (512, 8, 2048), BY_OP, "bf16"),
        ("llama3_debugmodel_lora", "llama3", 256, FSDP, (512, 8, 2048), BY_OP, "bf16"),
        ("llama3_8b", "llama3", "llama3-8b", FSDP, (64, 1, 8192), BY_OP, "bf16"),
        ("llama3_8b_mxfp8", "llama3", "llama3-8b", FSDP, (64, 1, 8192), BY_OP, "mxfp8"),
        ("llama3_8b_nvfp4", "llama3", "llama3-8b", FSDP, (64, 1, 8192), BY_OP, "nvfp4"),
        ("llama3_70b", "llama3", "llama3-70b", {"tp": 8, **FSDP}, (64, 8, 8192), FULL, "bf16"),
        ("llama3_70b_hsdp", "llama3", "llama3-70b", {"tp": 4, **FSDP, "shard": 8}, (128, 8, 8192), None, "bf16"),
        ("llama3_405b", "llama3", "llama3-405b", {"tp": 8, **FSDP}, (16, 2, 8192), FULL, "fp8"),
        ("qwen3_0_6b", "qwen3", "qwen3-0.6b", FSDP, (256, 4, 4096), BY_OP, "bf16"),
        ("qwen3_1_7b", "qwen3", "qwen3-1.7b", FSDP, (256, 4, 4096), BY_OP, "bf16"),
        ("qwen3_14b", "qwen3", "qwen3-14b", FSDP, (256, 4, 4096), FULL, "bf16"),
        ("qwen3_30b_a3b", "qwen3", "qwen3-30b-a3b", {"ep": 8, **FSDP}, (128, 2, 4096), FULL, "bf16"),
        ("qwen3_32b", "qwen3", "qwen3-32b", FSDP, (128, 2, 4096), FULL, "bf16"),
        ("qwen3_moe_debug", "qwen3", 256, FSDP, (256, 4, 4096), BY_OP, "bf16"),
        ("deepseek_v3_16b", "deepseek_v3", "deepseek-v2-lite", {"ep": 8, **FSDP}, (256, 4, 4096), BY_OP, "bf16"),
        ("deepseek_v3_16b_hybridep", "deepseek_v3", "deepseek-v2-lite", {"ep": 8, **FSDP}, (256, 4, 4096), BY_OP,
         "bf16"),
        ("deepseek_v3_671b", "deepseek_v3", "deepseek-v3", {"pp": 8, "ep": 2, **FSDP, "sync_each_microbatch": False,
         "reshard": False, "embedding_as_layer": True}, (32, 1, 4096), FULL, "bf16"),
        ("deepseek_v3_671b_float8", "deepseek_v3", "deepseek-v3", {"ep": 2, **FSDP}, (256, 4, 4096), FULL, "fp8"),
        ("gpt_oss_20b", "gpt_oss", "gpt-oss-20b", FSDP, (64, 1, 8192), FULL, "bf16"),
        ("gpt_oss_120b", "gpt_oss", "gpt-oss-120b", FSDP, (64, 1, 8192), FULL, "bf16"),
        ("qwen3_5_27b", "gpt_oss", "qwen3.5-27b", {"tp": 4, **FSDP}, (64, 4, 4096), FULL, "bf16"),
        ("moonlight_16b_a3b", "gpt_oss", "moonlight-16b-a3b", {"ep": 8, **FSDP}, (256, 4, 4096), FULL, "bf16"),
    ],
)  # fmt: skip
def test_what_a_recipe_says(read, name, file, model, parallel, batch, recompute, precision):
    recipe = read(name, file)

    assert said(recipe) == (model, parallel, batch, recompute, precision)
    assert recipe.unknown == ()


def test_sizes_come_from_the_table_of_flavors(read, tmp_path):
    """Llama's rule makes the width of its feed-forward networks from two numbers, or a call of the function for it."""
    made = read("llama3_debugmodel").config
    text = (FILES / "llama3.txt").read_text().replace('"8B"', '"13B"')
    (tmp_path / "llama3/config_registry.py").write_text(text)
    written = read_recipe(
        tmp_path / "llama3/config_registry.py", "dgx-h100", additions=Additions(recipe="llama3_8b")
    ).config

    assert [(one["intermediate_size"], one["num_hidden_layers"], one["vocab_size"]) for one in (made, written)] == [
        (768, 6, 2048),
        (18432, 40, 100000),
    ]


def test_a_recipe_that_is_made_from_one_of_another_file(read, tmp_path):
    read("llama3_8b")
    text = "from torchtitan.x import convert, model_registry\n"
    text += "from llama3.config_registry import llama3_70b, llama3_debugmodel\n"
    for name in ("llama3_70b", "llama3_debugmodel"):
        text += f"def graph_{name}():\n    config = convert({name}(), model_registry)\n"
        text += "    config.training.local_batch_size = 4\n    return config\n"
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph/config_registry.py").write_text(text)
    recipes = [
        read_recipe(tmp_path / "graph/config_registry.py", "dgx-h100", 8, additions=Additions(recipe=f"graph_{name}"))
        for name in ("llama3_70b", "llama3_debugmodel")
    ]

    assert [(said(recipe)[0], said(recipe)[2]) for recipe in recipes] == [
        ("llama3-70b", (32, 4, 8192)),
        (256, (256, 4, 2048)),
    ]


def test_batches_of_tokens_are_split_over_micro_batches(read):
    table = scenario_table(read("sft_qwen3_8b_math", "qwen3", nodes=1), "r", "dgx-h100", 1)

    assert table["batch"] == {"global": 64, "micro": 2, "seq_len": 2048}


def test_what_matters_and_is_not_modelled_is_told(read):
    notes = [*read("qwen3_5_27b", "gpt_oss").not_modelled, *read("moonlight_16b_a3b", "gpt_oss").not_modelled]

    assert "dataloader = MMDataLoader.Config: what images take" in notes
    assert "optimizer: AdamW's states and step are assumed, not Muon's" in notes


def test_converters_that_are_computed_are_told(tmp_path):
    text = (FILES / "llama3.txt").read_text().replace('registry("8B")', 'registry("8B", converters=make())')
    (tmp_path / "llama3.py").write_text(text)
    recipe = read_recipe(tmp_path / "llama3.py", "dgx-h100", additions=Additions(recipe="llama3_8b"))

    assert "converters = make(...): only running the file tells; GEMMs are as without them" in recipe.not_modelled


def test_adapters_and_dispatchers_are_read(read):
    adapters, experts = read("llama3_debugmodel_lora").table, read("deepseek_v3_16b_hybridep", "deepseek_v3").table

    assert (adapters["lora"], experts["experts"]) == ({"rank": 16}, {"dispatcher": "deepep"})


def test_a_setting_replaces_what_the_file_says(read):
    recipe = read("llama3_8b", tensor_parallel_degree="2", seq_len="4096")

    assert said(recipe)[1:3] == ({"tp": 2, **FSDP}, (32, 1, 4096))


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        (None, {}, "holds 8 recipes: llama3_debugmodel, llama3_debugmodel_lora, llama3_8b,.*; name one with --recipe"),
        ("llama3_8", {}, "--recipe llama3_8: not in .*; did you mean llama3_8b"),
        ("llama3_8b", {"def ": "def def "}, "is not Python: invalid syntax"),
        (
            "llama3_70b",
            {'"70B"': "flavor()"},
            "model.flavor = 'model_spec': only running the file tells; give --set model.flavor=VALUE, or the config",
        ),
        ("llama3_8b", {"local_batch_size=1": "local_batch_size=os.cpu_count()"}, "--set local-batch-size=VALUE"),
        (
            "llama3_8b_mxfp8",
            {
                "config = llama3_8b()": "config = graph(llama())",
                "from . import": "from ours import graph, llama\nfrom . import",
            },
            "is made from llama.. of another file",
        ),
        ("llama3_8b", {"return Trainer.Config(": "return Trainer.Config(generator=1,"}, "reinforcement learning"),
        ("llama3_8b", {"return Trainer.Config(": "return 1 or Config("}, "only running it tells"),
        (
            "llama3_8b",
            {"from torchtitan": "from ours", "model_registry": "x"},
            "of Python files those of torchtitan, bridge, nemo",
        ),
        (
            "llama3_8b",
            {"SelectiveAC.Config()": "make()"},
            "activation_checkpoint.mode = 'make.*': only running the file",
        ),
        ("llama3_8b", {"SelectiveAC": "MemoryBudgetAC"}, "expected one of none, selective, full"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_one_line(tmp_path, name, change, line):
    text = (FILES / "llama3.txt").read_text()
    for old, new in change.items():
        text = text.replace(old, new)
    (tmp_path / "config_registry.py").write_text(text)

    with pytest.raises(UserError, match=line):
        read_recipe(tmp_path / "config_registry.py", "dgx-h100", additions=Additions(recipe=name))


@pytest.mark.parametrize(
    ("additions", "line"),
    [
        (Additions(recipe="llama3_8b"), "--recipe: goes with a Python file of recipes"),
        (Additions(settings={"TP": "2"}), "--set TP: no key of torchtitan"),
    ],
)
def test_what_goes_with_a_python_file_alone(tmp_path, additions, line):
    (tmp_path / "r.toml").write_text('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\n')

    with pytest.raises(UserError, match=line):
        read_recipe(tmp_path / "r.toml", "dgx-h100", additions=additions)


def test_a_config_that_a_run_saved(tmp_path):
    """It has the keys of a class and not its name, and the whole model, of which nothing counts."""
    saved = {
        "model_spec": {"name": "llama3", "flavor": "70B", "model": {"dim": 8192, "layers": [{"n_heads": 64}]}},
        "training": {"local_batch_size": 2, "seq_len": 8192, "steps": 10},
        "parallelism": {"tensor_parallel_degree": 8, "pipeline_parallel_schedule": "1F1B"},
        "activation_checkpoint": {"preserve_rng_state": True, "determinism_check": "default", "debug": False},
        "optimizer": {"param_groups": [{"pattern": ".*"}], "implementation": "fused"},
        "loss": {"num_chunks": 8},
    }
    (tmp_path / "saved.json").write_text(json.dumps(saved))
    recipe = read_recipe(tmp_path / "saved.json", "dgx-h100", 2)

    assert said(recipe, 2) == ("llama3-70b", {"tp": 8, "zero": 3}, (4, 2, 8192), FULL, "bf16")
    assert recipe.unknown == ()
