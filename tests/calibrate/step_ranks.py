"""Run under torchrun by the tests: training steps under many plans in turn, in one set of processes.

Arguments: a folder, the name of a set.
"""

import sys
from pathlib import Path

import torch
from runcast.calibrate.execute.backend import Backend
from runcast.calibrate.execute.kinds import execution_of
from runcast.calibrate.execute.training.exchanges import Exchanges
from runcast.calibrate.execute.world import World, process_group

SCENARIOS = Path(__file__).parents[2] / "data/scenarios"
SMALL = [
    "model.overrides.hidden_size=64", "model.overrides.num_attention_heads=4", "model.overrides.num_key_value_heads=4",
    "model.overrides.head_dim=16", "model.overrides.vocab_size=256", "batch.seq_len=32", "cluster.gpus_per_node=4",
    "model.overrides.num_hidden_layers=4",
]  # fmt: skip
V = "schedule.vpp=2"
LLAMA = {
    "gpipe": ["schedule.name=gpipe"],
    "1f1b": [],
    "interleaved": ["parallel.pp=2", "schedule.name=interleaved", V],
    "interleaved_overlap": ["parallel.pp=2", "schedule.name=interleaved-overlap", V],
    "zb_h1": ["schedule.name=zb-h1"],
    "zb_h2": ["schedule.name=zb-h2"],
    "zb_v": ["parallel.pp=2", "schedule.name=zb-v"],
    "v_half": ["parallel.pp=2", "schedule.name=v-half"],
    "v_min": ["parallel.pp=2", "schedule.name=v-min"],
    "dualpipe": ["parallel.pp=2", "schedule.name=dualpipe"],
    "dualpipe_v": ["parallel.pp=2", "schedule.name=dualpipe-v"],
    "dp_4": ["parallel.pp=1", "parallel.zero=0"],
    "zero_1": ["parallel.pp=1", "parallel.zero=1"],
    "zero_1_after": ["parallel.pp=1", "parallel.zero=1", "overlap.params=false", "overlap.dp=false"],
    "zero_2": ["parallel.pp=2", "parallel.zero=2"],
    "zero_3": ["parallel.pp=2", "parallel.zero=3"],
    "zero_3_kept": ["parallel.pp=1", "parallel.zero=3", "parallel.reshard=false", "parallel.prefetch=2"],
    "zero_3_hybrid": ["parallel.pp=1", "parallel.zero=3", "parallel.shard=2"],
    "tp_4": ["parallel.pp=1", "parallel.tp=4"],
    "tp_2_whole_sequences": ["parallel.pp=2", "parallel.tp=2", "parallel.sequence_parallel=false"],
    "tp_2_norms_of_heads": [
        "parallel.pp=2", "parallel.tp=2", "parallel.sequence_parallel=false", "model.preset=qwen3-8b"],
    "tp_2_pp_2_zb": ["parallel.pp=2", "parallel.tp=2", "schedule.name=zb-h1"],
    "recompute_full": ["parallel.pp=2", "parallel.tp=2", "recompute={mode='full'}"],
    "recompute_one_layer": ["parallel.pp=2", "recompute={mode='full',layers=1}"],
    "recompute_parts": ["parallel.pp=2", "parallel.tp=2", "recompute={mode='selective',modules=['mlp','core_attn']}"],
    "recompute_norms": ["parallel.pp=2", "recompute={mode='selective',modules=['layernorm','activation']}"],
    "offload": ["parallel.pp=2", "offload.activations=0.5"],
    "offload_optimizer": ["parallel.pp=2", "offload.optimizer=true"],
    "cp_4_ring": ["parallel.pp=1", "parallel.cp=4"],
    "cp_2_tp_2_ring": ["parallel.pp=1", "parallel.cp=2", "parallel.tp=2", "batch.micro=2"],
    "cp_2_pp_2_ring_again": ["parallel.pp=2", "parallel.cp=2", "recompute={mode='selective',modules=['core_attn']}"],
    "cp_4_gather": ["parallel.pp=1", "parallel.cp=4", "parallel.cp_type=all_gather"],
    "cp_2_ulysses_zero_3": ["parallel.pp=1", "parallel.cp=2", "parallel.cp_type=ulysses", "parallel.zero=3"],
    "two_sequences": ["parallel.pp=2", "batch.micro=2"],
    "tied": ["parallel.pp=1", "parallel.tp=2", "model.overrides.tie_word_embeddings=true"],
    "corrupt": ["parallel.pp=2"],
}  # fmt: skip
MOE = {
    "ep_2": ["parallel.ep=2"],
    "ep_4_zero_3": ["parallel.ep=4", "parallel.zero=3"],
    "tp_2_ep_2": ["parallel.tp=2", "parallel.ep=2"],
    "tp_2_ep_2_etp_1": ["parallel.tp=2", "parallel.ep=2", "parallel.etp=1"],
    "ep_2_pp_2_dualpipe": ["parallel.ep=2", "parallel.pp=2", "schedule.name=dualpipe"],
    "ep_2_pp_2_overlap": ["parallel.ep=2", "parallel.pp=2", "schedule.name=interleaved-overlap", V],
    "cp_2_ep_2": ["parallel.cp=2", "parallel.ep=2"],
    "ep_2_recompute": ["parallel.ep=2", "recompute={mode='full'}"],
    "tp_2_ep_2_recompute_moe": [
        "parallel.tp=2", "parallel.ep=2", "recompute={mode='selective',modules=['moe','layernorm']}"],
}  # fmt: skip
SETS = {
    "llama": ("tiny-train-pp4.toml", LLAMA),
    "moe": ("tiny-train-moe-ep2.toml", MOE),
}


MOST_THREADS = 60
"""Of a process that has run many steps: each process group has three."""


def spoil():
    """What is sent to another stage is a little too large from now on."""
    right = Exchanges.send
    Exchanges.send = lambda self, key, to, rows: right(self, key, to, 1.001 * rows)


def main(out, name):
    torch.set_num_threads(1)
    scenario, cases = SETS[name.name]
    world = World.find()
    with process_group():
        for case, changes in cases.items():
            if case == "corrupt":
                spoil()
            measured = execution_of(SCENARIOS / scenario, [*SMALL, *changes]).run(world, Backend())
            if measured is not None:
                measured.write(out / case)
    if (threads := Path("/proc/self/task")).exists():
        assert len(list(threads.iterdir())) < MOST_THREADS, "steps have not left their process groups"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
