"""Run under torchrun by the tests: training steps under many plans in turn, in one set of processes.

Arguments: a folder, the name of a set.
"""

import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from runcast.calibrate.execute.backend import Backend
from runcast.calibrate.execute.kinds import execution_of
from runcast.calibrate.execute.training import binding
from runcast.calibrate.execute.training.exchanges import Exchanges
from runcast.calibrate.execute.world import World, process_group

SCENARIOS = Path(__file__).parents[2] / "data/scenarios"
SMALL = [
    "model.overrides.hidden_size=64", "model.overrides.num_attention_heads=4", "model.overrides.num_key_value_heads=4",
    "model.overrides.head_dim=16", "model.overrides.vocab_size=256", "batch.seq_len=32", "cluster.gpus_per_node=4",
    "model.overrides.num_hidden_layers=4",
]  # fmt: skip
V = "schedule.vpp=2"
GPT = ["model={preset='gpt2',overrides={n_layer=4,n_embd=64,n_head=4,n_inner=128,vocab_size=256,n_positions=64}}"]
MPT = "model={preset='mpt-7b',overrides={n_layers=4,d_model=64,n_heads=4,vocab_size=256,max_seq_len=64}}"
MIXTRAL = ["model={preset='mixtral-8x7b',overrides={num_hidden_layers=4,hidden_size=64,intermediate_size=32,"
           "num_attention_heads=4,num_key_value_heads=4,head_dim=16,vocab_size=256}}"]  # fmt: skip
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
    "biases_tp_2": ["parallel.pp=1", "parallel.tp=2", "model.preset=qwen2.5-7b"],
    "biases_zb_h1": ["schedule.name=zb-h1", "model.preset=qwen2.5-7b"],
    "gpt_tp_2": [*GPT, "parallel.pp=1", "parallel.tp=2"],
    "gpt_tp_2_whole_sequences": [*GPT, "parallel.pp=1", "parallel.tp=2", "parallel.sequence_parallel=false"],
    "gpt_pp_2_cp_2": [*GPT, "parallel.pp=2", "parallel.cp=2", "model.overrides.tie_word_embeddings=false"],
    "windows_tp_2": ["parallel.pp=1", "parallel.tp=2", "model.overrides.sliding_window=8"],
    "mpt_tp_2": ["parallel.pp=1", "parallel.tp=2", MPT],
    "windows_pp_4": ["model.overrides.sliding_window=8", "recompute={mode='full'}"],
    "windows_ulysses": [
        "parallel.pp=1", "parallel.cp=2", "parallel.cp_type=ulysses", "model.overrides.sliding_window=8"],
    "wrong_optimizer": ["parallel.pp=1", "parallel.zero=1", "overlap.params=false"],
    "wrong_activations": ["parallel.pp=2"],
}  # fmt: skip
SHARED = ["model={preset='glm-4.5-air',overrides={num_hidden_layers=4,first_k_dense_replace=1,hidden_size=64,"
          "num_nextn_predict_layers=0,num_attention_heads=4,num_key_value_heads=4,head_dim=16,n_routed_experts=8,"
          "num_experts_per_tok=2,moe_intermediate_size=32,intermediate_size=64,vocab_size=256}}"]  # fmt: skip
MOE = {
    "shared_experts_tp_2_ep_2": [*SHARED, "parallel.tp=2", "parallel.ep=2"],
    "shared_experts_pp_2_ep_2": [*SHARED, "parallel.pp=2", "parallel.ep=2"],
    "shared_experts_recompute": [*SHARED, "parallel.tp=2", "recompute={mode='full'}"],
    "mixtral_ep_2_tp_2": [*MIXTRAL, "parallel.ep=2", "parallel.tp=2"],
    "mixtral_ep_2_pp_2": [*MIXTRAL, "parallel.ep=2", "parallel.pp=2"],
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


SPOILED = "wrong_optimizer", "wrong_activations"
MOST_THREADS = 60
"""Of a process that has run many steps: each process group has three."""


@contextmanager
def spoiled(case):
    """Adam's step is too long, or what is sent to another stage is a little too large."""
    send, update = Exchanges.send, binding.update
    if case == "wrong_optimizer":
        binding.update = lambda own, weights: update([one._replace(values=1.01 * one.values) for one in own], weights)
    if case == "wrong_activations":
        Exchanges.send = lambda self, key, to, rows: send(self, key, to, 1.001 * rows)
    yield
    Exchanges.send, binding.update = send, update


def main(out, name):
    torch.set_num_threads(1)
    scenario, cases = SETS[name.name]
    world = World.find()
    with process_group():
        for case, changes in cases.items():
            with spoiled(case):
                measured = execution_of(SCENARIOS / scenario, [*SMALL, *changes]).run(world, Backend())
            if measured is not None:
                measured.write(out / case)
    if (threads := Path("/proc/self/task")).exists():
        assert len(list(threads.iterdir())) < MOST_THREADS, "steps have not left their process groups"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
