"""What a user can get wrong about a training step: one line per fault with file, key and value, exit code 2."""

import pytest
from runcast.simulator.cli import main

DENSE = """
kind = "train_step"
cluster = "dgx-h100"

[model]
preset = "llama3-8b"
overrides = { num_hidden_layers = 4 }

[parallel]
tp = 2

[batch]
global = 16
seq_len = 512
"""
MOE = DENSE.replace("llama3-8b", "qwen3-30b-a3b").replace("tp = 2", "tp = 2\nep = 2")

FAULTS = {  # changes, separated by semicolons: what is said, a line each
    "nodes=0": "nodes = 0: expected more than 0",
    "parallel.tp=16; nodes=2; model.overrides.num_attention_heads=8": "parallel.tp = 16: must divide the 8 heads",
    "parallel.tp=4; model.overrides.num_key_value_heads=6; model.overrides.num_attention_heads=24;"
    "model.overrides.head_dim=64": "parallel.tp = 4: must divide, or be divided by, the 6 key heads",
    "parallel.tp=1; parallel.pp=3": "parallel.pp = 3: tp 1 x cp 1 x pp 3 = 3 must divide the 8 GPUs",
    "parallel.dp=8": "parallel.dp = 8: tp 2 x cp 1 x pp 1 x dp must be the 8 GPUs, so dp = 4",
    "parallel.pp=8; parallel.tp=1": "parallel.pp = 8: 8 stages; at most 4 for the layers of llama3-8b",
    "parallel.pp=4; schedule.name=interleaved; schedule.vpp=2; batch.global=4": "schedule.vpp = 2: 8 stages; at most 4",
    "batch.global=6": "batch.global = 6: must be a multiple of micro x dp = 1 x 4 = 4",
    "batch.global=22; parallel.pp=2; parallel.tp=1; schedule.name=interleaved; schedule.vpp=2; nodes=2": "= 22: "
    "must be a multiple of micro x dp = 1 x 8 = 8, such as 16 or 32",
    "batch.micro=3": "batch.global = 16: must be a multiple of micro x dp = 3 x 4 = 12",
    "batch.global=1000000000000": "batch.global = 1000000000000: 1,000,000,000,000 layers run one after another",
    "batch.seq_len=510; parallel.cp=4": "batch.seq_len = 510: must be a multiple of 16 with tp = 2 and cp = 4",
    "batch.seq_len=511": "batch.seq_len = 511: must be a multiple of 2 with tp = 2",
    "batch.seq_len=511; parallel.sequence_parallel=false; parallel.cp=2": "511: must be a multiple of 4 with cp = 2",
    "model.overrides.intermediate_size=1001": "must divide the width of the feed-forward network, 1001",
    "model.preset=qwen3.5-27b; parallel.tp=3; cluster={base='dgx-h100', gpus_per_node=6}; batch.global=18; "
    "batch.seq_len=513; model.overrides.num_key_value_heads=6": "must divide the 16 heads of linear",
    "batch={seq_len=8}": "batch.global: is missing; expected sequences per step",
    "parallel.cp=4; parallel.tp=1; parallel.cp_type=ulysses; model.overrides.num_attention_heads=2;"
    "model.overrides.num_key_value_heads=2; model.overrides.head_dim=64": "parallel.cp = 4: ulysses must divide the 2",
    "parallel.ep=2": "parallel.ep = 2: llama3-8b has no experts: 1",
    "experts.routing=zipf": "experts: llama3-8b has none",
    "parallel.order=tp-pp": "parallel.order = 'tp-pp': expected each of tp, cp, ep, dp, pp once",
    "schedule.name=1f1bb": "schedule.name = '1f1bb': unknown; did you mean 1f1b?",
    "schedule.name=zzz": "schedule.name = 'zzz': unknown; known: 1f1b, dualpipe,",
    "schedule.name=dualpipe": "schedule: dualpipe on 1 pipeline ranks; expected an even number",
    "schedule.name=dualpipe; parallel.pp=4; batch.global=4": "dualpipe with 4 micro-batches on 4 pipeline ranks",
    "schedule.name=interleaved; schedule.vpp=2; parallel.pp=2; batch.global=2": "1 micro-batches on 2 pipeline ranks",
    "parallel.pad_vocab=2000000000": "parallel.pad_vocab = 2000000000: expected at most 1e+06",
    "schedule.passes=x": "schedule.passes = 'x': expected a whole number",
    "schedule.vpp=2": "schedule.vpp = 2: 1f1b has 1 chunk per pipeline rank; interleaved takes any number",
    "schedule.group=2": "schedule.group = 2: goes with interleaved, not 1f1b",
    "precision.compute=nvfp4": "precision.compute = 'nvfp4': H100 SXM computes in fp32, tf32, bf16, fp16, fp8",
    "precision.compute=mxfp8": "precision.compute = 'mxfp8': H100 SXM computes in fp32, tf32, bf16, fp16, fp8, int8, "
    "without scales of 32 elements",
    "precision.compute=fp8; cluster=dgx-a100": "precision.compute = 'fp8': A100 SXM 80GB computes in",
    "precision.compute=int8": "precision.compute = 'int8': expected 'fp32', 'tf32'",
    "model={bytes='10 GB', tensors=4}": "model.bytes: a model known by totals alone has no shape;",
    "model.preset=llama3-9b": "preset = 'llama3-9b': unknown; did you mean llama3-8b",
    "parallel.zero=4": "parallel.zero = 4: expected 0, 1, 2 or 3",
    "parallel.shard=2": "parallel.shard = 2: goes with parallel.zero = 3, not 1",
    "parallel.prefetch=2": "parallel.prefetch = 2: goes with parallel.zero = 3, not 1",
    "parallel.prefetch_backward=0": "parallel.prefetch_backward = 0: goes with parallel.zero = 3, not 1",
    "parallel.zero=3; parallel.prefetch_backward=-1": "parallel.prefetch_backward = -1: expected at least",
    "recompute.early_stop=true": "recompute.early_stop = True: goes with recompute.mode = 'full', not 'none'",
    "parallel.sync_each_microbatch=false": "parallel.sync_each_microbatch = False: goes with parallel.zero = 2 or 3",
    "parallel.zero=3; parallel.shard=3": "parallel.shard = 3: must divide dp x cp = 4",
    "parallel.zero=3; level=coarse": "level = 'coarse': zero = 3 gathers across actions: expected kernels",
    "parallel.layers=[1, 2]": "parallel.layers = [1, 2]: 1 numbers that sum to 4",
    "parallel.zero=3; bucket=4000000": "bucket = 4000000: goes with parallel.zero = 0 or 1 or 2, not 3",
    "bucket=1": "bucket = 1: expected 1,923 elements or more for llama3-8b",
    "parallel.layers=3": "parallel.layers = 3: expected a list",
    "parallel.layers=[-1, 5]": "parallel.layers.0 = -1: expected at least 0",
    "schedule={name='interleaved', vpp=20000000}": "schedule.vpp = 20000000: 20000000 stages; at most ",
    "model.preset=qwen3-30b-a3b; lora.targets=['up']": "lora.targets = ['up']: no GEMM of qwen3-30b-a3b that has one",
    "lora.rank=1000000": "lora.rank = 1000000: at most ",
    "batch.seq_len=512000000000": "batch.seq_len = 512000000000: expected at most 2.14748e+09",
    "batch.globl=2": "batch.globl: unknown key; did you mean global?",
    "parallel.tpp=2": "parallel.tpp: unknown key; did you mean tp or pp?",
    "recompute.modules=['core_attn']": "modules = ['core_attn']: goes with recompute.mode = 'selective', not 'none'",
    "recompute={mode='selective', modules=['x']}": "recompute.modules.0 = 'x': expected 'core_attn',",
    "recompute.layers=2": "recompute.layers = 2: goes with recompute.mode = 'full', not 'none'",
    "recompute={mode='full', layers=3}; parallel.pp=2": "recompute.layers = 3: a chunk has at most 2",
    "recompute={mode='selective', modules=['mla_up_proj', 'mlp']}": "modules = 'mla_up_proj': llama3-8b has no latent",
    "recompute={mode='selective', modules=['moe']}": "recompute.modules = 'moe': llama3-8b has no experts",
    "recompute={mode='selective', modules=['shared_experts']}": "'shared_experts': llama3-8b has no shared experts",
    "parallel.etp=1": "parallel.etp = 1: goes with experts: llama3-8b has none",
    "parallel.embedding_as_layer=true; parallel.layers=[4]": "embedding_as_layer = True: parallel.layers is given",
    "parallel.cp_type=ulysses": "parallel.cp_type = 'ulysses': goes with parallel.cp above 1",
    "parallel.cp_type=ring": "parallel.cp_type = 'ring': goes with parallel.cp above 1",
    "parallel.tp=8; parallel.shard_embedding=true": "parallel.shard_embedding = True: goes with dp x cp above 1",
    "parallel.zero=0; overlap.params=true": "overlap.params = True: goes with parallel.zero = 1 or 2, not 0",
    "parallel.zero=3; overlap.params=false": "overlap.params = False: goes with parallel.zero = 1 or 2, not 3",
    "parallel.tp=1; overlap.tp=true": "overlap.tp = True: goes with parallel.tp above 1 and parallel.seq",
    "parallel.sequence_parallel=false; overlap.tp=true": "overlap.tp = True: goes with parallel.tp above 1 and",
    "offload.slots=3": "offload.slots = 3: goes with offload.activations",
    "precision.weights=fp8": "precision.weights = 'fp8': goes with precision.compute = fp8 or fp8-block or mxfp8",
    "precision={compute='fp8', weights='fp8'}; parallel.zero=3": "weights = 'fp8': goes with precision.compute",
    "precision.dispatch=fp8": "precision.dispatch = 'fp8': goes with parallel.ep above 1",
    "precision.activations.moe_act=fp8": "precision.activations.moe_act = 'fp8': llama3-8b has no experts",
    "precision.activations.attn_proj=fp4": "precision.activations.attn_proj = 'fp4': expected 'bf16', 'fp8' or",
    "precision={compute='tf32', activations={attn_proj='fp8'}}": "attn_proj = 'fp8': does not go with precision",
    "offload.activations=1.5": "offload.activations = 1.5: expected at most 1",
    "lora={rank=0}": "lora.rank = 0: expected more than 0",
    "lora={targets=[]}": "lora: targets: expected at least one product",
    "lora={targets=['x']}": "lora.targets = 'x': expected qkv, proj, up, down, all-linear, or modules of llama3-8b: ",
    "lora={targets=['qkv', 'q_proj']}": "lora.targets = ['qkv', 'q_proj']: expected each module once",
    "slow=[{node=4, factor=2.0}]": "slow.0.node = 4: there are 1 nodes, numbered from 0",
    "slow=3": "slow = 3: expected a list, such as [{node = 0, factor = 1.5}]",
    "stack=megatronn": "stack = 'megatronn': unknown; ",
    "cluster=gh200; nodes=8": "cluster.device = 'GH200 96GB': no profile is made for it: say what it is `like`",
    "cluster={base='dgx-h100', device={base='h100-sxm', like='h1000'}}": "cluster.device.like = 'h1000': unknown",
    "cluster=cpu-host": "cluster.device = 'CPU': no profile is made for it: say what it is `like`, or give one",
    "level=fine": "level = 'fine': expected 'kernels' or 'coarse'",
    "seed=1": "seed: unknown key; ",
    "bucket='25 MB'": "bucket = '25 MB': expected a whole number of elements, such as 40000000, or 'tensor'",
    "batch.seq_len=8k": "batch.seq_len = '8k': expected a whole number of tokens, such as 8192",
    "batch.micro=1.0": "batch.micro = 1.0: expected a whole number of sequences, such as 8",
    "parallel.tp=1; memory.gathered=true": "memory.gathered = True: goes with parallel.tp above 1 and parallel.seq",
    "memory.buckets=true": "memory.buckets = True: goes with parallel.zero = 0, not 1",
    "parallel.zero=3; memory.gradients=2": "memory.gradients = 2: goes with parallel.zero = 0 or 1, not 3",
    "bucket=0": "bucket = 0: expected a whole number of elements, such as 40000000, or 'tensor'",
}
FAULTS_OF_EXPERTS = {
    "parallel.ep=8; parallel.etp=2": "parallel.ep = 8: etp 2 x ep 8 = 16 must divide the 8 GPUs of a stage",
    "parallel.ep=8": "parallel.ep = 8: etp 2 x ep 8 = 16 must divide the 8 GPUs of a stage",
    "model.overrides.moe_intermediate_size=767": "parallel.etp = 2: must divide the experts' width, 767: by default tp",
    "parallel.ep=256; parallel.etp=1; nodes=64; parallel.pp=2; batch.global=256": "must divide the 128 experts",
    "parallel.sequence_parallel=false": "parallel.sequence_parallel = False: experts with tp > 1 need true",
    "experts={routing='histogram', histogram=[1, 2, 3]}": "experts.histogram = [1.0, 2.0, 3.0]: expected 128 shares",
    "experts.routing=histogram": "experts.histogram = []: expected 128 shares",
    "experts.histogram=[1, 2]": "experts.histogram = [1, 2]: goes with experts.routing = 'histogram', not",
    "experts.zipf=2.0": "experts.zipf = 2.0: goes with experts.routing = 'zipf', not 'balanced'",
    "experts.nodes_per_token=2": "experts.nodes_per_token = 2: goes with experts.dispatcher = 'deepep'",
    "parallel.ep=1; experts.dispatcher=deepep": "experts.dispatcher = 'deepep': goes with parallel.ep above 1",
    "experts={dispatcher='deepep', nodes_per_token=2}": "experts.nodes_per_token = 2: at most 1, over which",
    "recompute={mode='selective', modules=['mlp']}": "recompute.modules = 'mlp': qwen3-30b-a3b has no layers without",
    "recompute={mode='selective', modules=['shared_experts']}": "'shared_experts': qwen3-30b-a3b has no shared",
    "experts.capacity=0": "experts.capacity = 0: expected more than 0",
}
CASES = [(DENSE, *case) for case in FAULTS.items()] + [(MOE, *case) for case in FAULTS_OF_EXPERTS.items()]


@pytest.fixture
def run(tmp_path, capsys):
    path = tmp_path / "step.toml"

    def called(scenario: str, *changes: str) -> tuple[int, list[str]]:
        path.write_text(scenario)
        with pytest.raises(SystemExit) as leave:
            main(["simulate", str(path), *(part for change in changes for part in ("--set", change))])
        return leave.value.code, capsys.readouterr().err.replace(str(path), "FILE").splitlines()

    return called


@pytest.mark.parametrize("scenario", [DENSE, MOE])
def test_the_good_scenarios_are_good(scenario, run):
    assert run(scenario) == (0, [])


@pytest.mark.parametrize(("scenario", "changes", "said"), CASES, ids=[changes for _, changes, _ in CASES])
def test_a_fault_is_one_line_with_file_key_and_value(scenario, changes, said, run):
    code, lines = run(scenario, *(change.strip() for change in changes.split(";")))

    assert (code, len(lines), lines[0].count("FILE")) == (2, 1, 1), lines
    assert said in lines[0]


@pytest.mark.parametrize(
    ("scenario", "changes"),
    [
        (DENSE, ["parallel.zero=0"]),
        (DENSE, ["parallel.zero=3"]),
        (DENSE, ["parallel.cp=2", "parallel.cp_type=ring", "parallel.shard_embedding=true"]),
        (DENSE, ["parallel.zero=2", "overlap.params=true"]),
        (DENSE, ["overlap.tp=true"]),
        (DENSE, ["overlap.tp=false", "parallel.tp=1"]),
        (DENSE, ["recompute={mode='full', layers=2}", "parallel.pp=2"]),
        (DENSE, ["parallel.embedding_as_layer=false", "parallel.layers=[4]"]),
        (MOE, ["parallel.etp=1"]),
        (MOE, ["recompute={mode='selective', modules=['moe']}"]),
        (MOE, ["nodes=2", "parallel.ep=8", "experts={dispatcher='deepep', nodes_per_token=2}"]),
        (MOE, ["experts.dispatcher=alltoall", "parallel.ep=1"]),
    ],
    ids=str,
)
def test_what_goes_together_is_good(scenario, changes, run):
    assert run(scenario, *changes) == (0, [])


def test_without_expert_parallelism_all_of_deepep_is_told(run):
    experts = "experts={dispatcher='deepep', nodes_per_token=2}"
    assert keys(run(MOE, "parallel.ep=1", experts)[1]) == ["experts.dispatcher", "experts.nodes_per_token"]


def keys(lines: list[str]) -> list[str]:
    return [line.removeprefix("error: FILE: ").split(" = ")[0] for line in lines]


def test_all_faults_of_a_plan_are_told_at_once(run):
    code, lines = run(DENSE, "parallel.tp=3", "batch.seq_len=7", "parallel.cp=2")

    assert code == 2
    assert keys(lines) == ["parallel.tp", "parallel.tp", "batch.seq_len"]


def test_what_follows_from_another_fault_is_not_told(run):
    for changes in (["parallel.tp=3"], ["parallel.tp=3", "batch.global=7"]):
        assert keys(run(DENSE, *changes)[1]) == ["parallel.tp", "parallel.tp"]
    assert keys(run(DENSE, "parallel.dp=3", "batch.global=7")[1]) == ["parallel.dp"]


def test_a_batch_that_does_not_divide_hides_no_other_fault(run):
    assert keys(run(DENSE, "batch.global=3", "experts.routing=zipf")[1]) == [
        "experts: llama3-8b has none", "batch.global"
    ]  # fmt: skip


def test_a_stack_that_rests_on_no_other_needs_all_numbers(run, tmp_path):
    (tmp_path / "own.toml").write_text("schema = 2\n")

    code, lines = run(DENSE, "stack=own.toml")

    allowed = "; name the stack that it changes, such as base = 'generic'"
    assert (code, len(lines), "stack = 'own.toml': lacks " in lines[0], lines[0].endswith(allowed)) == (
        2,
        1,
        True,
        True,
    )
