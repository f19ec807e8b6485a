"""Recipes of reinforcement learning: the step of the actor, and the update of the engines' weights beside it."""

import re
from pathlib import Path

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import Additions, import_recipe, parse_recipe, scenario_table
from runcast.simulator.scenario import load_question, resolve

FILES = Path(__file__).parent / "files"
GOLDEN = Path(__file__).parent / "golden"
HEADS = {
    "verl": "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.logger=['console','wandb'] "
    "@actor.optim.lr=1e-6 @actor.use_kl_loss=True @rollout.name=vllm @ref.log_prob_micro_batch_size_per_gpu=4 ",
    "slime": "ray job submit -- python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --sequence-parallel "
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --rm-type math "
    "--advantage-estimator grpo --expert-tensor-parallel-size 1 ",
}
"""What most scripts of a tool say alike."""
DSV3 = "deepseek-v3"
NO_ADAPTERS = "adapters alone are sent, which no method here does"
NOTHING = "nothing is rolled out"
DELTA = "only what changed is sent, and nothing says how much that is"


def scripts(tool):
    """The scripts of a tool's file by their names, each with what most say alike."""
    found = {}
    for part in (FILES / tool / "recipes.txt").read_text().split("\n## ")[1:]:
        name, _, body = part.partition("\n")
        words = HEADS[tool] + " ".join(body.split("\n"))
        found[name.rpartition("/")[2]] = words.replace("@", "actor_rollout_ref.")
    return found


SCRIPTS = {tool: scripts(tool) for tool in HEADS}


def said(recipe, nodes):
    """Model, axes, batch and update of a recipe, as short as the tables below."""
    table = recipe.table if recipe.config else scenario_table(recipe, "r", "dgx-h100", nodes)
    batch, parallel = table["batch"], table["parallel"]
    axes = " ".join(f"{axis}{parallel[axis]}" for axis in ("tp", "cp", "pp", "ep") if parallel.get(axis, 1) > 1)
    lacking = [
        line.removeprefix("no weight update: ") for line in recipe.assumed if line.startswith("no weight update")
    ]
    update = recipe.update["update"]["method"] if recipe.update else lacking[0]
    sizes = (batch["global"], batch.get("micro", 1), batch["seq_len"])
    return table["model"].get("preset", "its own sizes"), axes, sizes, update


@pytest.mark.parametrize(
    ("name", "nodes", "given", "model", "axes", "batch", "update"),
    [
        ("run_qwen2-7b_math_megatron.sh", 1, None, "qwen2.5-7b", "tp2 pp2", (1280, 4, 2048), "colocated"),
        ("run_qwen2-7b_hsdp.sh", 1, None, "qwen2.5-7b", "", (1280, 80, 1536), "colocated"),
        ("run_qwen2-7b_seq_balance.sh", 1, None, "qwen2.5-7b", "", (1280, 10, 1536), "colocated"),
        ("run_deepseek671b_math_megatron_80gb.sh", 32, DSV3, DSV3, "pp16 ep16", (512, 1, 6144), "colocated"),
        ("run_deepseek671b_math_megatron_96gb.sh", 12, DSV3, DSV3, "tp8 pp12 ep8", (256, 1, 11680), "colocated"),
        ("run_deepseek_v3_671b_megatron.sh", 12, None, DSV3, "tp8 pp12 ep8", (256, 1, 10240), "colocated"),
        ("run_moonlight_16b_a3b_megatron.sh", 3, None, "moonlight-16b-a3b", "tp4 pp3 ep4", (320, 16, 3072),
         "colocated"),
        ("run_qwen3_8b_fsdp.sh", 1, None, "qwen3-8b", "", (128, 4, 4096), "colocated"),
        ("test_dapo_dspk_671b_megatron.sh", 64, DSV3, DSV3, "pp16 ep32", (512, 2, 10240), "colocated"),
        ("test_dapo_glm_air_megatron.sh", 8, None, "glm-4.5-air", "tp2 cp4 pp2 ep8", (2048, 4, 10240), "colocated"),
        ("test_dapo_gptoss_20b_megatron.sh", 1, None, "gpt-oss-20b", "tp4 ep8", (512, 2, 10240), "colocated"),
        ("run_dapo_qwen3_moe_30b_vllm_fp8_rollout.sh", 2, None, "qwen3-30b-a3b", "cp4", (512, 4, 21504), "colocated"),
        ("test_dapo_8b_megatron_fp8train.sh", 1, None, "qwen3-8b", "tp2", (512, 1, 10240), "colocated"),
        ("run_qwen2_5-3b_gsm8k_grpo_lora.sh", 1, None, "qwen2.5-3b", "", (1280, 40, 1536), NO_ADAPTERS),
        ("run_disco_7b.sh", 1, None, "qwen2.5-7b", "", (256, 4, 9216), "colocated"),
        ("run_qwen2-7b_rm.sh", 1, None, "qwen2.5-7b", "", (256, 2, 1536), "colocated"),
        ("run_qwen2.5-32b.sh", 4, None, "qwen2.5-32b", "", (256, 2, 2048), "colocated"),
        ("grpo_0.6b_gsm8k_fsdp2_2_6.sh", 1, None, "qwen3-0.6b", "", (960, 30, 1536), "single_sender"),
        ("run_qwen3-235b_megatron_96gb.sh", 4, None, "qwen3-235b-a22b", "tp4 pp8 ep4", (128, 1, 11680), "colocated"),
        ("run_qwen3moe-30b_megatron_lora.sh", 1, None, "qwen3-30b-a3b", "tp2 cp2 pp2 ep4", (64, 16, 2048), NO_ADAPTERS),
        ("run_nemotron_nano_v3_30b_a3b_megatron.sh", 1, None, "nemotron-3-nano", "tp8 ep8", (512, 1, 4096),
         "colocated"),
        ("run_gpt_oss_20b_fsdp.sh", 1, None, "gpt-oss-20b", "", (1280, 32, 8704), "colocated"),
    ],
)  # fmt: skip
def test_scripts_of_verl(name, nodes, given, model, axes, batch, update):
    recipe = parse_recipe(SCRIPTS["verl"][name], name, "dgx-h100", nodes, additions=Additions(model=given))

    assert (recipe.form, *said(recipe, nodes)) == ("verl", model, axes, batch, update)
    assert recipe.unknown == ()


@pytest.mark.parametrize(
    ("name", "nodes", "model", "axes", "batch", "update"),
    [
        ("run-qwen3-4B.sh", 1, "qwen3-4b", "tp2", (256, 1, 8192), "colocated"),
        ("run-deepseek-r1.sh", 16, DSV3, "tp8 cp4 pp4 ep32", (256, 2, 32768), "colocated"),
        ("run-qwen3-30B-A3B.sh", 1, "qwen3-30b-a3b", "tp4 ep8", (32, 2, 8192), "colocated"),
        ("run-glm4.5-355B-A32B.sh", 8, "glm-4.5", "tp8 cp2 pp4 ep16", (256, 1, 32768), "colocated"),
        ("run-qwen3-4b-fully_async.sh", 1, "qwen3-4b", "tp2", (256, 1, 8192), "stage_heads"),
        ("run-qwen3-235B-A22B-sft.sh", 4, "qwen3-235b-a22b", "tp4 ep32", (128, 1, 9216), NOTHING),
        ("run-glm4-9B.sh", 1, "glm-z1-9b", "tp2 cp2", (256, 1, 8192), "stage_heads"),
        ("run-qwen3-235B-A22B.sh", 8, "qwen3-235b-a22b", "tp4 cp2 pp4 ep16", (64, 4, 8192), "stage_heads"),
        ("run-qwen3-32B.sh", 1, "qwen3-32b", "tp8", (256, 2, 8192), "colocated"),
        ("run-moonlight-16B-A3B.sh", 1, "moonlight-16b-a3b", "tp4 ep8", (256, 2, 4096), "colocated"),
        ("run-kimi-k2-Instruct.sh", 32, "kimi-k2", "tp8 cp4 pp8 ep32", (256, 2, 32768), "colocated"),
        ("run-llama3.1-8B.sh", 1, "llama3-8b", "tp2", (512, 4, 2048), "colocated"),
        ("run-qwen3-next-80B-A3B-8gpus.sh", 1, "qwen3-next-80b-a3b", "pp4", (64, 1, 2048), "stage_heads"),
        ("run-deepseek-r1-distill-qwen-1.5B.sh", 1, "deepseek-r1-distill-qwen-1.5b", "tp2", (256, 1, 8192),
         "colocated"),
        ("run-gpt-oss-20B.sh", 1, "gpt-oss-20b", "pp2 ep4", (256, 1, 8192), "colocated"),
        ("run-qwen3-4B-base-sft.sh", 1, "qwen3-4b", "", (128, 1, 9216), NOTHING),
        ("run-glm4.7-30B-A3B.sh", 1, "glm-4.7-flash", "tp2 cp2 pp2 ep4", (1024, 2, 32768),
         "update.inference.tp = 8: must divide the 20 heads"),  # its engines spread requests over attention instead
        ("retool_qwen3_4b_rl.sh", 1, "qwen3-4b", "tp2", (256, 1, 8192), "colocated"),
        ("run-qwen3-30b-a3b-fp8.sh", 2, "qwen3-30b-a3b", "pp4 ep4", (128, 2, 8192), "colocated"),
        ("run-qwen3-0.6B-single-gpu.sh", 1, "qwen3-0.6b", "", (8, 1, 512), "colocated"),
        ("run-qwen3-8B-opd.sh", 1, "qwen3-8b", "tp2", (64, 1, 16384), "stage_heads"),
        ("run-glm5-744B-A40B-sft.sh", 32, "glm-5", "tp4 cp2 pp4 ep32", (128, 1, 32768), NOTHING),
        ("run-glm4.7-355B-A32B-delta.sh", 8, "glm-4.5", "tp8 cp2 pp4 ep16", (128, 4, 8192), DELTA),
        ("run-qwen3-30B-A3B-lora.sh", 1, "qwen3-30b-a3b", "tp4 ep8", (32, 2, 8192), NO_ADAPTERS),
    ],
)  # fmt: skip
def test_scripts_of_slime(name, nodes, model, axes, batch, update):
    recipe = parse_recipe(SCRIPTS["slime"][name], name, "dgx-h100", nodes)

    assert (recipe.form, *said(recipe, nodes)) == ("slime", model, axes, batch, update)
    assert recipe.unknown == ()


def update_of(tool, name, nodes):
    return parse_recipe(SCRIPTS[tool][name], name, "dgx-h100", nodes).update


@pytest.mark.parametrize(
    ("tool", "name", "nodes", "update"),
    [
        ("verl", "run_qwen2-7b_hsdp.sh", 1,
         {"method": "colocated", "messages": "bucket", "bucket": 2**31,
          "trainer": {"sharded": True, "shard": 4}, "inference": {"tp": 2}}),
        ("verl", "run_dapo_qwen3_moe_30b_vllm_fp8_rollout.sh", 2, {"method": "colocated", "messages": "bucket",
         "bucket": 2**31, "quantize": "after", "trainer": {"cp": 4, "sharded": True}, "inference": {"tp": 1}}),
        ("verl", "grpo_0.6b_gsm8k_fsdp2_2_6.sh", 1, {"method": "single_sender", "bucket": 2**31,
         "trainer": {"sharded": True, "gpus": 8}, "inference": {"tp": 1, "gpus": 2}}),
        ("slime", "run-qwen3-235B-A22B.sh", 8, {"method": "stage_heads", "bucket": 2**32, "quantize": "before",
         "trainer": {"tp": 4, "pp": 4, "cp": 2, "ep": 16, "gpus": 64}, "inference": {"tp": 32, "ep": 32, "gpus": 64}}),
        ("slime", "run-qwen3-0.6B-single-gpu.sh", 1, {"method": "colocated", "messages": "bucket",
         "trainer": {"sharded": False}, "inference": {"tp": 1}}),
    ],
)  # fmt: skip
def test_what_an_update_says(tool, name, nodes, update):
    assert update_of(tool, name, nodes)["update"] == update


@pytest.mark.parametrize(("tool", "name", "nodes", "said"), [
    ("verl", "run_deepseek_v3_671b_megatron.sh", 12, ({"quantization_config": {}}, "none", "bf16")),
    ("slime", "run-deepseek-r1.sh", 16, ({}, "before", "fp8")),
])  # fmt: skip
def test_a_model_that_is_published_in_8_bits_is_trained_in_16(tool, name, nodes, said, tmp_path):
    """verl's engines have 16 bits where nothing else is said, slime quantises as the checkpoint says."""
    script = tmp_path / name
    script.write_text(SCRIPTS[tool][name])
    _, (_, file) = import_recipe(script, tmp_path / "r.toml", "dgx-h100", nodes)
    resolved = resolve(load_question(file), str(file))

    assert (resolved.scenario.model.overrides, resolved.update.quantize, resolved.dtype) == said


@pytest.mark.parametrize(("checkpoint", "quantized"), [("DeepSeek-R1", "before"), ("DeepSeek-R1-bf16", None)])
def test_slime_quantises_as_the_name_of_the_checkpoint_says(checkpoint, quantized):
    script = SCRIPTS["slime"]["run-deepseek-r1.sh"].replace("DeepSeek-R1", checkpoint, 1)
    update = parse_recipe(script, "r.sh", "dgx-h100", 16).update["update"]

    assert update.get("quantize") == quantized


def test_engines_in_four_bits_are_told():
    script = SCRIPTS["slime"]["run-qwen3-4B.sh"].replace("Qwen3-4B", "Qwen3-4B-INT4", 1)
    told = parse_recipe(script, "r.sh", "dgx-h100", 1).not_modelled

    assert [line for line in told if "4 bits" in line] == [
        "--hf-checkpoint: engines take weights in 4 bits: packing takes time, and a quarter of the bytes travel"
    ]


@pytest.mark.parametrize(("more", "method"), [("", None), ("actor_rollout_ref.model.lora.merge=True", "colocated")])
def test_adapters_that_are_merged_travel_with_all_weights(more, method):
    script = SCRIPTS["verl"]["run_qwen2_5-3b_gsm8k_grpo_lora.sh"].rstrip().removesuffix("$@").rstrip(" \\\n")

    update = parse_recipe(f"{script} {more}", "r.sh", "dgx-h100").update

    assert (update and update["update"]["method"]) == method


def test_an_update_through_a_file_system():
    script = SCRIPTS["slime"]["run-glm4-9B.sh"] + " --update-weight-transport disk"
    update = parse_recipe(script, "r.sh", "dgx-h100").update["update"]

    assert (update["method"], update["inference"]) == ("file_system", {"tp": 1, "gpus": 4})


def test_engines_of_their_own_have_nodes_of_their_own():
    nodes = [update_of("slime", name, n)["nodes"] for name, n in (("run-qwen3-235B-A22B.sh", 8), ("run-glm4-9B.sh", 1))]

    assert nodes == [16, 2]


@pytest.mark.parametrize(("tool", "name", "nodes", "more", "engine"), [
    ("slime", "run-qwen3-30B-A3B.sh", 1, "--sglang-enable-dp-attention --sglang-dp-size 8", {"tp": 1, "ep": 8}),
    ("slime", "run-glm4.7-30B-A3B.sh", 1, "--sglang-enable-dp-attention --sglang-dp-size 8", {"tp": 1, "ep": 8}),
    ("slime", "run-qwen3-30B-A3B.sh", 1, "--sglang-dp-size 8", {"tp": 8}),
    ("slime", "run-glm4.5-355B-A32B.sh", 8, "--sglang-moe-a2a-backend deepep", {"tp": 32, "ep": 32}),
    ("slime", "run-qwen3-32B.sh", 1, "--sglang-enable-dp-attention --sglang-dp-size 8", {"tp": 8}),
    ("verl", "run_dapo_qwen3_moe_30b_vllm_fp8_rollout.sh", 2, "@rollout.data_parallel_size=8", {"tp": 1, "ep": 8}),
    ("verl", "run_qwen2.5-32b.sh", 4, "@rollout.data_parallel_size=2", {"tp": 4}),
])  # fmt: skip
def test_copies_of_attention_share_the_experts_of_an_engine(tool, name, nodes, more, engine):
    """SGLang and vLLM may hold attention whole on each GPU of an engine whose experts are dealt out."""
    script = f"{SCRIPTS[tool][name]} {more.replace('@', 'actor_rollout_ref.')}"
    inference = parse_recipe(script, name, "dgx-h100", nodes).update["update"]["inference"]

    assert inference == engine


@pytest.mark.parametrize(("key", "noted"), [
    ("checkpoint_engine.backend=nccl", False), ("checkpoint_engine.backend=nixl", True),
    ("pipeline_model_parallel_size=1", False), ("pipeline_model_parallel_size=2", True),
])  # fmt: skip
def test_what_is_not_modelled_of_verls_engines_is_told(key, noted):
    script = f"{SCRIPTS['verl']['run_qwen2.5-32b.sh']} actor_rollout_ref.rollout.{key}"
    told = parse_recipe(script, "r.sh", "dgx-h100", 4).not_modelled

    assert any(key.partition("=")[0] in line for line in told) is noted


@pytest.mark.parametrize("name", ["run_qwen2-7b_hsdp.sh", "run_qwen2-7b_math_megatron.sh"])
def test_gpus_that_verl_starts_are_held_against_the_machine(name):
    script = f"{SCRIPTS['verl'][name]} trainer.nnodes=4 trainer.n_gpus_per_node=8"
    told = parse_recipe(script, "r.sh", "dgx-h100", 1).assumed

    assert "the 8 GPUs (1 x 8, dgx-h100): the file itself starts 32" in told


WHOLE = {
    "verl/qwen3-8b-megatron.sh": 1,
    "verl/qwen2.5-32b-fsdp.sh": 16,
    "verl/trainer.yaml": 1,
    "slime/run-qwen3-4B.sh": 1,
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_scripts_are_the_scenarios_that_were_read_once(name, tmp_path):
    stem = f"{name.partition('/')[0]}-{Path(name).stem}"
    recipe, files = import_recipe(FILES / name, tmp_path / f"{stem}.toml", "dgx-h100", WHOLE[name])

    assert [file.name for file in files] == [f"{stem}.toml", f"{stem}-update.toml"]
    assert [file.read_text() for file in files] == [(GOLDEN / file.name).read_text() for file in files]
    assert recipe.unknown == ()
    assert [load_question(file).kind for file in files] == ["train_step", "weight_update"]


def test_nothing_is_written_where_an_update_is_there_already(tmp_path):
    (tmp_path / "step-update.toml").write_text("mine")

    with pytest.raises(UserError, match=r"step-update\.toml: is there already"):
        import_recipe(FILES / "slime/run-qwen3-4B.sh", tmp_path / "step.toml", "dgx-h100")
    assert [file.name for file in tmp_path.iterdir()] == ["step-update.toml"]


def test_sizes_of_a_model_come_from_the_file_that_a_script_reads(tmp_path):
    """A checkpoint whose name says another model than the arguments is not taken by its name."""
    (tmp_path / "models").mkdir()
    sizes = (FILES / "slime/models/qwen3-4B.sh").read_text().replace("--num-layers 36", "--num-layers 18")
    (tmp_path / "models/qwen3-4B.sh").write_text(sizes)
    (tmp_path / "run.sh").write_text((FILES / "slime/run-qwen3-4B.sh").read_text())
    recipe, files = import_recipe(tmp_path / "run.sh", tmp_path / "run.toml", "dgx-h100")

    assert (recipe.config["num_hidden_layers"], recipe.table["model"]) == (18, {})
    assert [file.name for file in files] == ["run-model.json", "run.toml", "run-update.toml"]
    assert [load_question(file).model.config for file in files[1:]] == ["run-model.json", "run-model.json"]


def test_lengths_of_the_command_line_count(tmp_path):
    additions = Additions(seq_len=4097)
    batches = [
        parse_recipe(SCRIPTS[tool][name], name, "dgx-h100", 1, additions=additions).table["batch"]
        for tool, name in (("verl", "run_qwen2-7b_math_megatron.sh"), ("slime", "run-qwen3-4B.sh"))
    ]

    assert [batch["seq_len"] for batch in batches] == [4098, 4098]  # a multiple of tp


@pytest.mark.parametrize(
    ("rollout", "reason"),
    [
        ("--colocate --update-weight-transport disk", "engines on the trainer's GPUs read from a file system"),
        ("--rollout-num-gpus 0", "nothing says on how many GPUs engines run (--rollout-num-gpus)"),
        (
            "--rollout-num-gpus 3 --rollout-num-gpus-per-engine 2",
            "update.inference.tp = 2: must divide the 3 receiving",
        ),
    ],
)
def test_no_update_is_written_where_it_cannot_be_simulated(rollout, reason):
    script = SCRIPTS["slime"]["run-qwen3-4b-fully_async.sh"].replace("--rollout-num-gpus 4", rollout)
    recipe = parse_recipe(script, "r.sh", "dgx-h100")

    assert recipe.update is None
    assert f"no weight update: {reason}" in "\n".join(recipe.assumed)


@pytest.mark.parametrize(
    ("tool", "name", "change", "line"),
    [
        (
            "verl",
            "run_disco_7b.sh",
            ("DeepSeek-R1-Distill-Qwen-7B", "ours-7b"),
            "no preset goes by this name",
        ),
        (
            "verl",
            "run_disco_7b.sh",
            ("DeepSeek-R1-Distill-Qwen-7B", "${HOME_DIR}/models/ours-7b"),
            "ours-7b': no preset goes by this name",
        ),
        ("verl", "run_disco_7b.sh", ("mini_batch_size=32", "mini_batch_size=31"), "248 sequences must be whole micro"),
        (
            "verl",
            "run_disco_7b.sh",
            ("@actor.ppo_micro_batch_size_per_gpu=4", ""),
            "batch_size_per_gpu: is missing",
        ),
        (
            "verl",
            "run_disco_7b.sh",
            ("@actor.ppo_mini_batch_size=32", "@actor.strategy=veomni"),
            "not read: expected one of fsdp, fsdp2",
        ),
        ("verl", "run_disco_7b.sh", ("prompt_length=1024", "prompt_length=$LONG"), "assigns no LONG; give --set LONG"),
        ("slime", "run-qwen3-4B.sh", ("Qwen3-4B", "Ours"), "no arguments say the sizes; give --model"),
        ("slime", "run-qwen3-4B.sh", ("--max-tokens-per-gpu 9216", "--max-tokens-per-gpu 0"), "from 1 on"),
        ("slime", "run-qwen3-30B-A3B-fsdp.sh", ("", ""), "--train-backend = 'fsdp': expected megatron"),
        ("slime", "run-qwen3-4B.sh", ("--colocate", "--tensor-model-parallel-size 3"), "tp 3 x cp 1 x pp 1 = 3 must"),
    ],
)
def test_what_cannot_be_read_is_one_line(tool, name, change, line):
    old, new = (text.replace("@", "actor_rollout_ref.") for text in change)

    with pytest.raises(UserError, match=re.escape(line)):
        parse_recipe(SCRIPTS[tool][name].replace(old, new), name, "dgx-h100")


def test_adapters_of_slime_are_trained_alone():
    recipe = parse_recipe(SCRIPTS["slime"]["run-qwen3-30B-A3B-lora.sh"], "r.sh", "dgx-h100", 1)
    assert recipe.table["lora"] == {"rank": 32}


HYBRID = """python3 train.py --hf-checkpoint /root/mine --num-layers 4 --hidden-size 256 --num-attention-heads 4
--group-query-attention --num-query-groups 2 --ffn-hidden-size 512 --swiglu --normalization RMSNorm --vocab-size 1000
--position-embedding-type rope --disable-bias-linear --qk-layernorm --attention-output-gate --linear-attention-freq 4
--linear-num-value-heads 4 --linear-num-key-heads 4 --loss-type sft_loss --debug-train-only --rollout-batch-size 8
--global-batch-size 8 --rollout-max-response-len 1024 --actor-num-nodes 1 --actor-num-gpus-per-node 8"""


def test_linear_attention_of_slimes_own_layers_is_read():
    recipe = parse_recipe(HYBRID.replace("\n", " "), "r.sh", "dgx-h100", 1, form="slime")
    assert recipe.config["layer_types"] == [*3 * ["linear_attention"], "full_attention"]


def test_a_flag_of_another_trainer_is_refused():
    additions = Additions(accelerate="fsdp.yaml")

    with pytest.raises(UserError, match="--accelerate: goes with recipes of llamafactory, trl, not with slime"):
        parse_recipe(SCRIPTS["slime"]["run-qwen3-4B.sh"], "r.sh", "dgx-h100", additions=additions)
