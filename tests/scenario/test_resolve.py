"""What a scenario resolves to: the bucket rule on real models, classes of ranks, the hash."""

import json
from importlib.resources import files

import numpy as np
import pytest
from runcast.simulator import UserError, simulate
from runcast.simulator.hardware import device
from runcast.simulator.insight import critical_path
from runcast.simulator.models import preset_config
from runcast.simulator.scenario import check_scenario
from runcast.simulator.systems.weight_update.resolve import Resolved
from runcast.simulator.systems.weight_update.system import resolve

GIB = 2**30


def resolved(**changes: object) -> Resolved:
    table = {
        "kind": "weight_update",
        "cluster": "h20-hgx",
        "nodes": 2,
        "model": {"preset": "kimi-k2"},
        "update": {"inference": {"tp": 16}},
    }
    return resolve(check_scenario(table | changes))


def update(**changes: object) -> dict[str, object]:
    return {"update": {"inference": {"tp": 16}} | changes}


def test_the_default_bucket_is_the_limit_where_memory_allows():
    assert resolved().bucket.bytes == 8 * GIB


def test_an_engine_that_fills_its_memory_leaves_small_buckets():
    tight = resolved(**update(inference={"tp": 16, "memory_utilization": 0.9}))

    third = int(int(96 * GIB * (1 - 0.9)) * 0.9) // (3 * 256) * 256

    assert (tight.bucket.bytes, tight.bucket.buffers) == (third, 3)


def test_without_room_for_three_buffers_of_the_largest_tensor_the_h2d_buffer_is_given_up():
    assert resolved(**update(free_memory=int(5.5 * GIB))).bucket.buffers == 2


def test_alike_ranks_are_one_class_and_a_slow_node_is_another():
    assert [len(ranks) for ranks in resolved(slow=[{"node": 1, "factor": 1.5}]).classes] == [8, 8]


def test_a_slow_node_holds_up_everybody():
    timeline = simulate(resolved(slow=[{"node": 1, "factor": 2.0}]).scenario).timeline
    program = timeline.program

    holding = {tuple(program.ranks_of(op)) for op in critical_path(timeline).ops if program.kind_of(op) == "reload"}

    assert holding == {tuple(range(8, 16))}


def test_the_hash_is_over_what_is_meant_not_over_the_name():
    same = [resolved().hash, resolved(name="another").hash]
    other = [resolved(nodes=4).hash, resolved(stack="checkpoint-engine", seed=1).hash, resolved(profile="generic").hash]

    assert (len(set(same)), len({*same, *other})) == (1, 4)


def test_a_model_by_totals_alone():
    totals = resolved(model={"bytes": "61.06 GB", "tensors": 18867})

    assert (totals.weights.total_bytes, len(totals.weights), totals.dtype) == (61_060_000_000, 18867, "bf16")


def test_ranks_beyond_the_last_tensor_own_nothing_but_receive_all():
    few = resolved(model={"bytes": "1 GB", "tensors": 4})

    assert (few.plan.buckets.owner.tolist(), few.plan.ranks) == ([0, 1, 2, 3], 16)


def test_three_stages_need_the_h2d_buffer():
    with pytest.raises(UserError, match=r"h2d_buffer = False: does not go with update.pipeline = 'three_stage'"):
        resolved(**update(pipeline="three_stage", h2d_buffer=False))


def test_weights_leave_no_more_than_the_rest_of_a_device():
    with pytest.raises(
        UserError, match=r"update.free_memory = '33 GiB': a device has 80 GiB, of which weights need 54.7"
    ):
        _ = resolved(cluster="dgx-h100", nodes=1, model={"preset": "qwen3-235b-a22b"}, update={
            "inference": {"tp": 8}, "free_memory": "33 GiB", "max_bucket": "9.9 GiB"}).bucket  # fmt: skip


def test_slow_nodes_leave_a_store_its_rates():
    table = {"model": {"preset": "qwen3-8b"}, "update": {"method": "file_system"}}
    even, slow = (resolved(slow=slow, **table) for slow in ([], [{"node": node, "factor": 2} for node in (0, 1)]))
    stored = even.program.is_kind("fs_write", "fs_read")

    assert np.array_equal(slow.costs.work_s[stored], even.costs.work_s[stored])
    assert (slow.costs.work_s[~stored] >= even.costs.work_s[~stored]).all()


def test_what_is_not_free_is_held_by_the_engine():
    """20 GiB of 80 are free, or an engine holds 0.75 of them."""
    base = {"kind": "weight_update", "cluster": "h100-hgx", "model": {"preset": "qwen3-30b-a3b"}}
    free, share = (
        simulate(base | {"update": said}).report.peak
        for said in (
            {"inference": {"tp": 8}, "free_memory": 20 * GIB},
            {"inference": {"tp": 8, "memory_utilization": 0.75}},
        )
    )

    assert (free.bytes, free.held) == (share.bytes, share.held)


def test_a_mixed_cluster_takes_the_smallest_memory_in_any_order():
    parts = [{"base": "dgx-h100", "nodes": 1}, {"base": "a100-40-hgx", "nodes": 1}]
    table = {"profile": "generic", "model": {"preset": "qwen3-30b-a3b"}, "update": {"inference": {"tp": 8}}}
    sizes = [resolved(cluster={"mix": mix}, **table).memory_bytes for mix in (parts, parts[::-1])]

    assert sizes == [40 * GIB, 40 * GIB]


def test_each_device_of_a_mixed_cluster_has_its_own_profile():
    mix = [{"base": "h20-hgx", "nodes": 1}, {"base": "h800-hgx", "nodes": 1}]

    profile = resolved(cluster={"mix": mix}).profile

    assert [profile.device_profile(device).name for device in ("H20", "H800 SXM")] == [
        "h20 + infiniband + checkpoint-engine", "h800 + infiniband + checkpoint-engine"
    ]  # fmt: skip


def test_what_the_engine_holds_counts_in_the_peak():
    report = simulate(resolved(**update(inference={"tp": 16, "memory_utilization": 0.8})).scenario).report

    assert dict(report.peak.held)["engine beside its weights"] == int(96 * GIB * 0.8) - resolved().resident_bytes


def test_what_a_node_owns_must_fit_its_host_memory():
    small = {"base": "h20-hgx", "host_memory": "256 GiB"}

    with pytest.raises(UserError, match=r"node 0: its ranks own 4.* GiB of weights, but host memory is 256 GiB"):
        _ = resolved(cluster=small).plan


def test_a_stack_that_lacks_a_number_shows_in_name(tmp_path):
    (tmp_path / "bare.toml").write_text('schema = 2\nname = "bare"\n')

    with pytest.raises(UserError, match=r"reload\.tensor_s: is missing; expected host work"):
        _ = resolved(stack=str(tmp_path / "bare.toml")).profile


def test_the_hash_does_not_depend_on_where_files_lie(tmp_path):
    hashes = set()
    for name in ("one", "two"):
        config = tmp_path / name / "config.json"
        config.parent.mkdir()
        config.write_text(json.dumps(preset_config("qwen3-30b-a3b")))
        hashes.add(resolved(model={"config": str(config)}).hash)

    assert len(hashes) == 1


@pytest.mark.parametrize(("machine", "profile"), [("h20-hgx", "h20"), ("h800-hgx", "h800"), ("gh200", "generic")])
def test_a_device_gets_its_own_profile_by_default(machine, profile):
    same = [resolved(cluster=machine, nodes=4), resolved(cluster=machine, nodes=4, profile=profile)]

    assert same[0].profile.to_json() == same[1].profile.to_json()


def test_profiles_name_their_devices_as_the_catalogue_does():
    shipped = [json.loads(entry.read_text()) for entry in (files("runcast.data") / "profiles").iterdir()]
    named = [name for content in shipped for name in content["devices"]]

    assert [name for name in named if device(name).name != name] == []


def test_a_profile_of_another_device_is_refused_and_the_right_one_named():
    with pytest.raises(UserError, match="is made for H20, not for H200 SXM, whose profile is h200-sxm"):
        _ = resolved(cluster="h200-hgx", profile="h20").profile


def test_a_whole_config_json_may_stand_in_a_scenario():
    config = preset_config("llama3-8b") | {"architectures": ["LlamaForCausalLM"], "bos_token_id": 128000}
    table = {"kind": "train_step", "cluster": "dgx-h100", "batch": {"global": 8, "seq_len": 8192}}
    said = simulate({**table, "model": {"config": config}})
    shipped = simulate({**table, "model": {"preset": "llama3-8b"}})
    assert said.report.step_time_s == shipped.report.step_time_s
