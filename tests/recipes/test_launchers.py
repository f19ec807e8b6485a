"""Files that start a trainer, or say how, are refused with the name of the file to give in their place."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import read_recipe


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "run.sh",
            "torchrun -m torchtitan.train --job.config_file a/b.toml",
            "torchtitan; give its config .*: a/b.toml$",
        ),
        (
            "run.sh",
            "CONFIG_FILE=./a.toml ./run_train.sh --training.steps 5",
            "torchtitan; give its config .*: ./a.toml$",
        ),
        (
            "run.sh",
            "accelerate launch --config_file f.yaml \\\n  train.py --lr 1",
            "own file, and f.yaml by --accelerate$",
        ),
        ("run.sh", "deepspeed --num_gpus 8 run_clm.py --deepspeed ds.json", "give ds.json with --model and --seq-len$"),
        ("f.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP", "is accelerate's config, which says"),
        (
            "run.sh",
            "deepspeed pretrain_gpt.py --num-layers 8 --deepspeed --zero-stage=1",
            "Megatron-DeepSpeed, whose ZeRO",
        ),
        ("run.sh", "torchrun -m verl.trainer.fsdp_sft_trainer model.x=1", "starts verl.trainer.fsdp_sft_trainer"),
        ("r.yml", '# 20B\n{\n  "pipe-parallel-size": 4,\n  "bf16": {"enabled": True},\n}', "is a config of GPT-NeoX"),
        ("r.yaml", "model: {hidden_size: 2048}\nparallelism: {tp: 2}\ntokens: {micro_batch_size: 4}", "of nanotron"),
        (
            "r.yaml",
            "tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer}\nbatch_size: 2  # no seq_length",
            "is of no form that is read: known are megatron, torchtitan, bridge,",
        ),
        ("r.yaml", "max_seq_len: 2048\nmodel: {name: mpt_causal_lm, d_model: 4096}", "is of no form that is read"),
        ("r.toml", "[model]\nname = llama3", r"r.toml: is not TOML: Invalid value .at line 2, column 8"),
    ],
)
def test_a_file_that_starts_a_trainer_is_one_line(tmp_path, name, text, line):
    (tmp_path / name).write_text(text)

    with pytest.raises(UserError, match=line) as refused:
        read_recipe(tmp_path / name, "dgx-h100")
    assert len(refused.value.faults) == 1


def test_the_shortest_config_of_torchtitan_is_known(tmp_path):
    (tmp_path / "r.toml").write_text('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 4096\nsteps = 5\n')

    assert read_recipe(tmp_path / "r.toml", "dgx-h100").form == "torchtitan"
