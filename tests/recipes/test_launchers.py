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
