"""Scenarios whose update starts at trainers: what is refused, what names stand for, and trends that were published."""

import numpy as np
import pytest
from runcast.simulator import simulate as predict
from runcast.simulator.cli import main
from runcast.simulator.engine import simulate
from runcast.simulator.scenario import check_scenario
from runcast.simulator.systems.weight_update.lower import TransferPlan
from runcast.simulator.systems.weight_update.resolve import Resolved
from runcast.simulator.systems.weight_update.system import resolve

GIB = 2**30

# -- Bad input --------------------------------------------------------------------------------------------------------

GOOD = """
kind = "weight_update"
cluster = "dgx-h100"
nodes = 2

[model]
preset = "qwen3-30b-a3b"
overrides = { num_hidden_layers = 2 }

[update]
method = "stage_heads"
bucket = "1 GiB"
trainer = { gpus = 8, tp = 2, pp = 2, ep = 4 }
inference = { tp = 4, ep = 8 }
"""

CHANGES = {
    "update.trainer.gpus=0": "update.trainer.gpus = 0: expected more than 0",
    "update.trainer.gpus=17": "update.trainer.gpus = 17: there are 16 GPUs",
    "update.trainer.gpus=16": "update.trainer.gpus = 16: leaves none of 16 GPUs to receive",
    "update.trainer.cp=3": "engines of 8 and trainers in groups of 24 (tp 2, pp 2, cp 3, ep 4 of update.trainer): take",
    "update.trainer.ep=3": "update.trainer.ep = 3: must divide the 4 GPUs of a pipeline stage",
    "update.trainer.dp=2": "update.trainer.dp: unknown key; known: cp, ep, expert_shard, gpus, pp, shard, ",
    "update.trainer.shard=0": "update.trainer.shard = 0: expected more than 0",
    "update.trainer.shard=3": "update.trainer.shard = 3: must divide 2: the 4 GPUs of a pipeline stage / tp 2",
    "update.trainer.expert_shard=2": "expert_shard = 2: must divide 1: the 4 GPUs of a pipeline stage / ep 4",
    "update.trainer=8": "update.trainer = 8: expected a table",
    "update.inference.gpus=9": "update.inference.gpus = 9: 8 GPUs are left beside the trainers",
    "update.inference.gpus=4": "update.inference.ep = 8: must divide the 4 receiving GPUs",
    "update.inference.ep=3": "update.inference.ep = 3: must divide tp = 4, or be a multiple of it",
    "update.inference.ep=6": "update.inference.ep = 6: must divide the 8 receiving GPUs",
    "update.inference.tp=16": "update.inference.tp = 16: must divide the 8 receiving GPUs",
    "update.bucket=60 GiB": "'60 GiB': 2 in flight do not fit beside what engines hold, which leaves 79",
    "cluster.device.memory=600 MiB": "MiB on each device of 600 MiB: raise inference.tp",
    "update.in_flight=0": "update.in_flight = 0: expected more than 0",
    "update.free_memory=1 GiB": "'1 GiB': 2 in flight do not fit beside what engines hold, which leaves 1 GiB",
    "update.inference.memory_utilization=0.98": "'1 GiB': 2 in flight do not fit beside what engines hold, which",
    "update.pipeline=serial": "update.pipeline = 'serial': goes with update.method = 'broadcast' or 'p2p', not",
    "update.h2d_buffer=false": "update.h2d_buffer = False: goes with update.method = 'broadcast' or 'p2p'",
    "update.ranks=8": "update.ranks = 8: goes with update.method = 'p2p', not 'stage_heads'",
    "update.method=stage_head": "update.method = 'stage_head': expected 'broadcast', 'p2p', 'single_sender'",
    "update={method='broadcast', trainer={gpus=8}}": "goes with a method that starts at trainers, not update.method =",
    "update.storage={write='1 GB/s', read='1 GB/s'}": "goes with update.method = 'file_system', not 'stage_heads'",
    "update.messages=layer": "update.messages = 'layer': expected 'tensor' or 'bucket'",
    "update.quantize=int4": "update.quantize = 'int4': expected 'none', 'before' or 'after'",
    "update.delta={density=0}": "update.delta.density = 0: expected more than 0",
    "update.delta={density=1.5}": "update.delta.density = 1.5: expected at most 1",
    "update.delta={density=0.1, index_bytes=-1}": "update.delta.index_bytes = -1: expected at least 0",
    "update.delta=0.1": "update.delta = 0.1: expected a table",
    "update.drain=soon": "update.drain = 'soon': expected a quantity such as",
    "update.drain=-1 s": "update.drain = '-1 s': expected a duration, such as '2 s'",
    "update.load=maybe": "update.load = 'maybe': expected true or false",
}
SEVERAL = {
    (
        "update.in_flight=100",
        "update.free_memory=2 GiB",
    ): "'1 GiB': 6 in flight do not fit beside what engines hold, which leaves 2 GiB",
    (
        "update.trainer.sharded=false",
        "update.trainer.shard=2",
    ): "shard = 2: does not go with update.trainer",
    ("update.trainer.gpus=6", "update.inference.gpus=8"): "update.trainer.gpus = 6: must be a multiple of tp x pp x cp",
    (
        "update.method=relays",
        "update.messages=tensor",
    ): "update.messages = 'tensor': goes with update.method = 'stage_heads'",
    ("update.method=colocated", "update.inference.gpus=8"): "update.inference.gpus = 8: does not go with update.method",
    ("update.method=static_writes", "update.quantize=after"): "update.quantize = 'after': does not go with",
    ("update.method=replica_writes", "update.delta={density=0.1}"): "update.delta = {'density': 0.1}: does not go with",
    ("update.method=replica_writes", "update.load=false"): "update.load = False: does not go with",
    ("update.quantize=after", "update.load=false"): "update.load = False: does not go with update.quantize = 'after'",
    (
        "nodes=9",
        "update.inference={tp=64}",
    ): "update.inference.tp = 64: must divide the 32 heads",
    ("nodes=33", "update.inference={ep=256}"): "update.inference.ep = 256: must divide the 128 experts",
    ("update.trainer={gpus=10, tp=5}", "update.inference={gpus=6}"): "update.trainer.tp = 5: must divide the 32 heads",
    ("update.trainer={gpus=9, ep=9}", "update.inference={gpus=4}"): "trainer.ep = 9: must divide the 128 experts",
    ("update.trainer={gpus=8, pp=4}", "update.inference={}"): "update.trainer.pp = 4: the model has 2 layers",
    (
        "model={preset='qwen3-32b'}",
        "update.trainer={gpus=8, ep=8}",
        "update.inference={}",
    ): "update.trainer.ep = 8: the model has no experts",
    ("update.method=file_system", "update.storage={write='0 GB/s', read='1 GB/s'}"): "update.storage.write = '0 GB/s': "
    "expected a rate above zero",
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [*(((change,), expected) for change, expected in CHANGES.items()), *SEVERAL.items()],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_fault_is_one_line_that_names_file_key_and_value(changes, expected, tmp_path, capsys):
    path = tmp_path / "scenario.toml"
    path.write_text(GOOD)
    with pytest.raises(SystemExit) as leave:
        main(["simulate", str(path), *(part for change in changes for part in ("--set", change))])
    lines = capsys.readouterr().err.splitlines()
    assert (leave.value.code, len(lines), expected in lines[0], lines[0].count(str(path))) == (2, 1, True, 1), lines


@pytest.mark.parametrize("method", ["stage_heads", "single_sender", "static_writes", "colocated"])
def test_no_more_buckets_are_in_flight_than_there_are(tmp_path, method):
    (tmp_path / "scenario.toml").write_text(GOOD)
    layout = {"update.method": method, "update.trainer": {"ep": 8}, "update.inference": {"tp": 8}}
    more = predict(tmp_path / "scenario.toml", layout | {"update.in_flight": 1000}).report
    all_ = predict(tmp_path / "scenario.toml", layout | {"update.in_flight": more.buckets}).report

    assert (all_.peak, all_.update_time_s) == (more.peak, more.update_time_s)


def test_the_good_scenario_is_good(tmp_path, capsys):
    path = tmp_path / "scenario.toml"
    path.write_text(GOOD)
    with pytest.raises(SystemExit) as leave:
        main(["simulate", str(path)])
    assert (leave.value.code, capsys.readouterr().err) == (0, "")


# -- What a scenario resolves to --------------------------------------------------------------------------------------

QWEN = {"preset": "qwen3-30b-a3b"}
GLM = {"preset": "glm-4.5-air"}
PLAIN = {"bytes": "61 GB", "tensors": 2000}
QUAD_GH200 = {
    "base": "gh200", "gpus_per_node": 4, "nics": 4, "sockets": 4, "socket_bytes_per_s": "100 GB/s",
    "nvlink": "switch", "nvlink_bytes_per_s": "150 GB/s",
}  # fmt: skip


def resolved(
    method: str, *, cluster: object = "dgx-h100", nodes: int = 2, model: object = QWEN, slow=(), **update
) -> Resolved:
    layout = {"trainer": {"gpus": 8, "tp": 4, "ep": 8}, "inference": {"tp": 4, "ep": 4}}
    table = {"cluster": cluster, "nodes": nodes, "model": model, "update": layout | {"method": method} | update,
             "slow": list(slow)}  # fmt: skip
    return resolve(check_scenario({"kind": "weight_update"} | table))


def plan_of(method: str, **changes) -> TransferPlan:
    plan = resolved(method, **changes).plan
    assert isinstance(plan, TransferPlan)
    return plan


def seconds(method: str, **changes) -> float:
    one = resolved(method, **changes)
    return simulate(one.program, one.costs).makespan_s


def work_s(one: Resolved, kind: str) -> float:
    """Seconds of all ops of a kind, one after the other, without latencies."""
    return float(one.costs.work_s[one.program.is_kind(kind)].sum())


def shapes(one: Resolved, kind: str) -> list[list[int]]:
    """The shapes of all ops of a kind."""
    return [one.program.shape[op].tolist() for op in np.flatnonzero(one.program.is_kind(kind))]


def wire_s(one: Resolved) -> float:
    """Broadcasts without their latencies."""
    return work_s(one, "broadcast")


def test_trainers_are_the_first_gpus_and_receivers_follow():
    plan = plan_of("single_sender", inference={"tp": 2, "gpus": 4})
    assert (plan.trainers, plan.receivers, plan.engines) == (tuple(range(8)), (8, 9, 10, 11), 2)


def test_colocated_engines_are_on_the_trainers_gpus():
    plan = plan_of("colocated", nodes=1)
    assert plan.trainers == plan.receivers == tuple(range(8))


MESHES = [
    ({"gpus": 8}, (8, 8)),
    ({"gpus": 8, "shard": 1}, (1, 1)),
    ({"gpus": 8, "shard": 4}, (4, 4)),
    ({"gpus": 8, "shard": 4, "ep": 2}, (4, 2)),
    ({"gpus": 8, "shard": 4, "ep": 8}, (4, 1)),
    ({"gpus": 8, "ep": 2, "expert_shard": 2}, (8, 2)),
    ({"gpus": 8, "ep": 2, "sharded": True}, (8, 4)),
    ({"gpus": 8, "tp": 2, "ep": 4, "sharded": True}, (4, 2)),
    ({"gpus": 8, "pp": 2, "sharded": True}, (4, 4)),
    ({"gpus": 8, "sharded": False}, (1, 1)),
    ({"gpus": 8, "tp": 2, "ep": 8}, (1, 1)),
]


@pytest.mark.parametrize(("trainer", "meshes"), MESHES, ids=str)
def test_sharded_trainers_shard_over_all_ranks_and_experts_over_what_ep_leaves(trainer, meshes):
    plan = plan_of("static_writes", trainer=trainer, inference={"gpus": 8})
    dense, experts = (phase.mesh.size for phase in plan.phases)
    assert (dense // trainer.get("tp", 1), experts) == meshes


def test_the_default_bucket_is_512_mib_or_the_largest_tensor():
    whole = plan_of("reshard", model=PLAIN | {"largest": "3 GB"})
    assert [plan_of("reshard", model=PLAIN).bucket_bytes, whole.bucket_bytes] == [GIB // 2, 3_000_000_000 // 256 * 256]


def test_messages_are_tensors_where_systems_send_them_so():
    found = {method: plan_of(method).transport.messages for method in ("stage_heads", "reshard", "single_sender")}
    assert found == {"stage_heads": "tensor", "reshard": "tensor", "single_sender": "bucket"}


def test_a_receiver_keeps_what_an_engine_rank_holds():
    one = resolved("replica_writes")
    assert one.plan.kept_bytes == pytest.approx(one.resident_bytes, rel=1e-4)


def test_a_bucket_is_of_what_trainers_gather():
    """Quantised before the wire, a bucket has half of that; a little more, as scales and norms are not halved."""
    plain, halved = (plan_of("single_sender", bucket="4 GiB", quantize=when) for when in ("none", "before"))
    assert (plain.bucket_bytes, halved.transport.gathered > 1.8) == (4 * GIB, True)
    assert halved.bucket_bytes == round(4 * GIB / halved.transport.gathered)


@pytest.mark.parametrize("method", ["stage_heads", "replica_writes"])
def test_one_gather_brings_experts_at_the_same_place_on_their_trainers(method):
    """Qwen3-30B-A3B, 128 experts on 8 trainers: experts 0, 16, 32, .. first, their two input matrices together."""
    one = resolved(method)
    experts = np.concatenate([bucket.contents for bucket in one.plan.buckets if bucket.phase.expert])
    names = [one.weights.names[tensor] for tensor in experts[:16]]
    assert {int(name.split("experts.")[1].split(".")[0]) for name in names} == set(range(0, 128, 16))
    assert not any("down" in name for name in names)


# -- Trends -----------------------------------------------------------------------------------------------------------


def test_relays_beat_one_sender_by_about_the_number_of_nics():
    """verl#7291: two nodes of four GH200, about 25 GB/s from one sender, about 90 with its peers, 100 at most."""
    quad = {"cluster": QUAD_GH200, "model": PLAIN, "trainer": {"gpus": 4}, "inference": {"tp": 4}}
    rates = [61 / wire_s(resolved(method, **quad)) for method in ("single_sender", "relays")]
    assert (rates[0] < 25.1, rates[1] < 100.4) == (True, True)
    assert rates[1] / rates[0] == pytest.approx(4, rel=0.05)


SIDES = [  # nodes on both sides, trainers, engines: those of the LMSYS table, then wider expert parallelism
    (2, {"gpus": 8, "tp": 4, "ep": 8}, {"tp": 4, "ep": 4}),
    (4, {"gpus": 16, "pp": 2, "ep": 8}, {"tp": 8, "ep": 8}),
    (8, {"gpus": 32, "pp": 4, "ep": 8}, {"tp": 8, "ep": 16}),
    (16, {"gpus": 64, "pp": 4, "ep": 16}, {"tp": 8, "ep": 32}),
]


@pytest.mark.parametrize("method", ["replica_writes", "reshard"])
def test_writing_what_is_kept_gains_on_broadcasts_as_experts_and_nodes_grow(method):
    """LMSYS: P2P loses on one node a side, and wins by 1.9 and 3.4 times on four and eight."""
    gains = [
        seconds("stage_heads", **sides) / seconds(method, **sides)
        for nodes, trainer, inference in SIDES
        for sides in [{"nodes": nodes, "model": GLM, "trainer": trainer, "inference": inference}]
    ]
    assert gains[-1] > 1.5
    if method == "replica_writes":
        assert gains == sorted(gains)
        assert gains[0] < 1
    else:
        assert min(gains) > 1


def test_more_meshes_gather_faster_until_receivers_are_what_is_waited_for():
    """16 trainers as one mesh, as one a node, as two, ..: each step has half as much to gather, and nothing else."""
    made = [
        resolved("static_writes", nodes=3, trainer={"gpus": 16, "shard": shard}, inference={"ep": 8})
        for shard in (16, 8, 4, 2)
    ]
    timelines = [simulate(one.program, one.costs) for one in made]
    gathering, total = ([line.busy_s("gather") for line in timelines], [line.makespan_s for line in timelines])
    assert gathering == sorted(gathering, reverse=True)
    assert total[0] > total[1]
    assert gathering[0] / gathering[1] > 2


def test_engines_of_qwen3_235b_receive_what_is_published():
    """37.688 GB per engine GPU in FP8 (le.qun.ch, 2025-09-07): EP 8, everything else on every GPU."""
    plan = plan_of(
        "static_writes", cluster="h200-hgx", nodes=20, model={"preset": "qwen3-235b-a22b"}, quantize="before",
        trainer={"gpus": 128, "ep": 16, "sharded": True}, inference={"ep": 8},
    )  # fmt: skip
    assert plan.kept_bytes == pytest.approx(37.688e9, rel=2e-5)


@pytest.mark.slow
def test_kimi_k2_is_written_in_about_the_published_time():
    """1.233 s from 256 to 128 GPUs (arXiv 2510.27656v2, table 5), with 16 ranks to a copy of a stage and EP 8."""
    one = resolved(
        "static_writes", cluster="h200-hgx", nodes=48, model={"preset": "kimi-k2"}, quantize="before",
        trainer={"gpus": 256, "pp": 2, "ep": 8, "shard": 8, "expert_shard": 2}, inference={"ep": 32},
    )  # fmt: skip
    timeline = simulate(one.program, one.costs)
    assert timeline.span_of("write")[1] - timeline.span_of("stage_in")[0] == pytest.approx(1.233, rel=0.25)


def test_flattened_buckets_beat_handles_of_tensors():
    """vime#175, 8 H200: 12 to 13.5 s with a handle per tensor, about 3 s flattened."""
    times = [seconds("colocated", cluster="h200-hgx", nodes=1, messages=messages) for messages in ("tensor", "bucket")]
    assert 2 < times[0] / times[1] < 8


def test_quantising_before_the_wire_halves_it_and_after_it_does_not():
    """FP8 with a scale per block, and what is never quantised: a little more than half."""
    plain, before, after = (resolved("single_sender", quantize=when) for when in ("none", "before", "after"))
    assert wire_s(before) / wire_s(plain) == pytest.approx(0.5, abs=0.03)
    assert wire_s(after) == wire_s(plain)


@pytest.mark.parametrize(("index_bytes", "even"), [(4.0, 1 / 3), (2.0, 1 / 2), (0.0, 1.0)])
def test_a_delta_breaks_even_on_the_wire_where_its_share_is_one(index_bytes, even):
    """d (1 + index/value) = 1, values of 2 bytes; encoding and applying come on top."""
    deltas = [{"density": even * part, "index_bytes": index_bytes} for part in (0.5, 1.0)]
    dense, half, whole = (resolved("single_sender", **extra) for extra in ({}, *({"delta": one} for one in deltas)))
    assert wire_s(half) / wire_s(dense) == pytest.approx(0.5, rel=1e-6)
    assert wire_s(whole) / wire_s(dense) == pytest.approx(1.0, rel=1e-6)
    dense_s, whole_s = (simulate(one.program, one.costs).makespan_s for one in (dense, whole))
    assert whole_s > dense_s


def test_a_sparse_delta_pays_where_the_wire_is_what_takes_long():
    slow = {"cluster": {"base": "dgx-h100", "nic": "25 Gb/s"}, "model": PLAIN}
    dense, sparse = (seconds("single_sender", **slow, **extra) for extra in ({}, {"delta": {"density": 0.02}}))
    assert sparse < dense / 5


def test_more_nodes_of_engines_read_a_store_again():
    store = {"storage": {"write": "20 GB/s", "read": "20 GB/s"}, "inference": {"tp": 8}, "model": PLAIN}
    two, four = (seconds("file_system", nodes=nodes, **store) for nodes in (2, 4))
    assert four - two == pytest.approx(2 * 61 / 20, rel=0.01)


def test_scales_are_made_after_gathering():
    """Trainers that quantise before the wire gather as many tensors as without; 57 buckets round."""
    plain, before = (resolved("single_sender", quantize=of) for of in ("none", "before"))
    gathered = [sum(op_shape[0] for op_shape in shapes(one, "gather")) for one in (plain, before)]

    assert gathered[1] == pytest.approx(gathered[0], rel=0.01)


@pytest.mark.parametrize("default", [{"process_group": "kept"}, {"max_bucket": "512 MiB"}])
def test_a_default_that_is_said_changes_nothing(default):
    assert seconds("single_sender", **default) == seconds("single_sender")


@pytest.mark.parametrize("said", [{"process_group": "new"}, {"max_bucket": "8 GiB"}])
def test_what_changes_the_answer_changes_the_hash(said):
    plain, other = resolved("single_sender"), resolved("single_sender", **said)

    assert plain.hash != other.hash


@pytest.mark.parametrize("method", ["single_sender", "reshard", "static_writes", "stage_heads", "chain", "file_system"])
def test_one_slow_receiver_holds_up_all_of_them(method):
    """Engines load at the same time, so two slow nodes take as long as one."""
    given = {"nodes": 4, "trainer": {"gpus": 16, "tp": 8}, "inference": {"tp": 8}, "model": PLAIN}
    given |= {"storage": {"write": "20 GB/s", "read": "20 GB/s"}} if method == "file_system" else {}
    slow = [[{"node": node, "factor": 10} for node in nodes] for nodes in ((), (3,), (2, 3))]
    none, one, both = (work_s(resolved(method, **given, slow=nodes), "reload") for nodes in slow)

    assert (one, both) == pytest.approx((10 * none, 10 * none))


@pytest.mark.parametrize(("nic", "least"), [("25 Gb/s", 2 * 61 / 3.125), ("400 Gb/s", 0)])
def test_a_store_is_read_through_the_nics(nic, least):
    """Two engines on a node read all weights through its one NIC."""
    given = {"storage": {"write": "1000 GB/s", "read": "1000 GB/s"}, "inference": {"tp": 4}, "model": PLAIN}
    found = seconds("file_system", **given, cluster={"base": "dgx-h100", "nics": 1, "nic": nic})

    assert found > least


def test_draining_comes_before_anything_else():
    times = [seconds("reshard", drain=drain) for drain in ("0 s", "5 s")]
    assert times[1] - times[0] == pytest.approx(5)


@pytest.mark.parametrize("method", ["stage_heads", "static_writes"])
def test_what_an_update_is_bound_by_is_no_drain_before_it(method, tmp_path):
    path = tmp_path / "update.toml"
    path.write_text(GOOD.replace("overrides = { num_hidden_layers = 2 }", ""))
    changes = [f"update.method={method}", "update.bucket=2 GiB"]
    bounds = {predict(path, [*changes, f"update.drain={drain}"]).report.bound_by for drain in ("0 s", "60 s")}

    assert len(bounds - {"calls"}) == len(bounds) == 1
