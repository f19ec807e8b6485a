"""What a change makes meaningless is left out with a note; what the user sets, or a file contradicts, is refused."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import simulate
from runcast.simulator.answers.sweep.constraints import is_key
from runcast.simulator.answers.sweep.plan import Work
from runcast.simulator.base.errors import UserError, fault
from runcast.simulator.base.files import read_toml
from runcast.simulator.base.memo import Memo
from runcast.simulator.profile import stack_names
from runcast.simulator.scenario import SYSTEMS, change, check_question, resolve, value_at
from runcast.simulator.schedules import SCHEDULES
from runcast.simulator.systems.keys import Values, faults

DENSE = {
    "kind": "train_step", "cluster": "dgx-h100", "nodes": 2, "model": {"preset": "llama3-8b"},
    "parallel": {"tp": 2, "pp": 2}, "batch": {"global": 16, "seq_len": 512},
}  # fmt: skip
MOE = {**DENSE, "model": {"preset": "qwen3-30b-a3b"}, "parallel": {"ep": 8}}
WEEKS = {**MOE, "kind": "run", "run": {"steps": 10}}
SERVED = {
    "kind": "weight_update", "cluster": "h20-hgx", "nodes": 2, "profile": "h20", "model": {"preset": "qwen3-30b-a3b"},
    "update": {"bucket": "2 GiB", "inference": {"tp": 8}},
}  # fmt: skip
SENT = {**SERVED, "update": {"method": "reshard", "trainer": {"gpus": 8}, "inference": {"tp": 8, "ep": 8}}}
CYCLE = {
    "kind": "rl_cycle", "cluster": "h100-hgx", "model": {"preset": "qwen3-30b-a3b"},
    "cycle": {"train_time": "4 s", "kv_alloc": "1 s"},
    "rollout": {"requests": 8, "engines": 1, "slots": 4, "token_time": "0.5 s",
                "length": {"kind": "fixed", "tokens": 16}},
}  # fmt: skip


def made(table, **tables):
    """The table with more in its tables."""
    return {**table, **{key: {**table.get(key, {}), **more} for key, more in tables.items()}}


LEFT_OUT = [  # a scenario, a change, the keys that it leaves out
    (made(DENSE, recompute={"mode": "selective", "modules": ["layernorm"]}), {"recompute.mode": "full"},
     ["recompute.modules"]),
    (made(DENSE, recompute={"mode": "full", "layers": 2}), {"recompute.mode": "none"}, ["recompute.layers"]),
    (made(DENSE, recompute={"mode": "full", "layers": 16}), {"parallel.pp": 4}, ["recompute.layers"]),
    (made(DENSE, schedule={"name": "interleaved", "vpp": 4, "group": 2}), {"schedule.name": "zb-v"},
     ["schedule.vpp", "schedule.group"]),
    (made(DENSE, parallel={"layers": [15, 17]}), {"parallel.pp": 4}, ["parallel.layers"]),
    (made(DENSE, parallel={"layers": [15, 17]}), {"model.preset": "llama3-70b"}, ["parallel.layers"]),
    (made(DENSE, parallel={"layers": [15, 17]}), {"parallel.embedding_as_layer": True}, ["parallel.layers"]),
    (made(DENSE, parallel={"dp": 4}), {"nodes": 4}, ["parallel.dp"]),
    (made(DENSE, parallel={"cp": 2, "cp_type": "ulysses"}), {"parallel.cp": 1}, ["parallel.cp_type"]),
    (made(DENSE, parallel={"zero": 3, "prefetch": 2}), {"parallel.zero": 1}, ["parallel.prefetch"]),
    (made(DENSE, overlap={"tp": True, "tp_exposed": 0.5}), {"parallel.tp": 1}, ["overlap.tp", "overlap.tp_exposed"]),
    (made(DENSE, parallel={"zero": 0}, overlap={"fusion": {}}), {"parallel.zero": 1}, ["overlap.fusion"]),
    ({**DENSE, "attention": "unfused", "attention_dropout": False}, {"attention": "flash"}, ["attention_dropout"]),
    (made(MOE, experts={"dispatcher": "deepep", "nodes_per_token": 1}), {"parallel.ep": 1},
     ["experts.dispatcher", "experts.nodes_per_token"]),
    (made(MOE, experts={"capacity": 2.0}, parallel={"etp": 1}), {"model.preset": "llama3-8b"},
     ["parallel.ep", "parallel.etp", "experts"]),
    (made(MOE, model={"overrides": {"num_hidden_layers": 4}}), {"model.preset": "llama3-8b"},
     ["model.overrides", "parallel.ep"]),
    (WEEKS, {"model.preset": "llama3-8b"}, ["parallel.ep"]),
    (made(WEEKS, parallel={"dp": 16}, sync={"workers": 1}), {"nodes": 4}, ["parallel.dp"]),
    (made(WEEKS, parallel={"pp": 2, "layers": [23, 25]}), {"parallel.pp": 4, "parallel.ep": 4}, ["parallel.layers"]),
    (made(SERVED, model={"overrides": {"num_hidden_layers": 4}}), {"model.config": {"model_type": "llama"}},
     ["model.overrides", "model.preset"]),
    (SERVED, {"cluster": "dgx-h100"}, ["profile"]),
    (SERVED, {"cluster.base": "dgx-h100"}, ["profile"]),
    (SERVED, {"cluster.device": "h100-sxm"}, ["profile"]),
    (made(SERVED, update={"bucket": "25 GiB"}), {"cluster": "a100-40-hgx"}, ["profile", "update.bucket"]),
    (made(SERVED, update={"pipeline": "three_stage", "h2d_freed": "end"}), {"update.pipeline": "serial"},
     ["update.h2d_freed"]),
    (made(SERVED, update={"h2d_buffer": False}), {"update.pipeline": "three_stage"}, ["update.h2d_buffer"]),
    (SERVED, {"update.max_bucket": "1 GiB"}, ["update.bucket"]),
    (made(SERVED, update={"pipeline": "serial"}), {"update.method": "relays"}, ["update.pipeline"]),
    (made(SERVED, update={"bucket": "25 GiB"}), {"update.method": "all_senders"}, ["update.bucket"]),
    (made(SENT, update={"messages": "bucket"}), {"update.method": "broadcast"},
     ["update.messages", "update.trainer", "update.inference.ep"]),
    (SENT, {"update.method": "colocated"}, ["update.trainer.gpus"]),
    (made(SENT, update={"trainer": {"gpus": 8, "ep": 8}}), {"model.preset": "qwen3-32b"},
     ["update.trainer.ep", "update.inference.ep"]),
    (SENT, {"nodes": 1, "update.inference": {"tp": 4}}, ["update.trainer.gpus"]),
    (CYCLE, {"cycle.update_time": "2 s"}, ["model"]),
    (CYCLE, {"cycle.placement": "disaggregated"}, ["cycle.kv_alloc"]),
    (CYCLE, {"cycle.train": {"parallel": {"tp": 2}}}, ["cycle.train_time"]),
    (made(CYCLE, cycle={"train": {}, "minibatches": 2, "train_time": None}), {"cycle.train_time": 4},
     ["cycle.train", "cycle.minibatches"]),
    (CYCLE, {"rollout.engine": {}}, ["rollout.token_time", "rollout.slots"]),
    (made(CYCLE, rollout={"engine": {}, "prompt": {"kind": "fixed", "tokens": 9}, "token_time": None, "slots": None}),
     {"rollout.token_time": 1, "rollout.slots": 4}, ["rollout.engine", "rollout.prompt"]),
]  # fmt: skip


@pytest.mark.parametrize(("table", "new", "keys"), LEFT_OUT, ids=[" ".join(keys) for _, _, keys in LEFT_OUT])
def test_what_a_change_makes_meaningless_is_left_out_with_a_note(table, new, keys):
    after = change(table, new, "a.toml")

    gone = [note.removeprefix("left out: ").partition(" = ")[0] for note in after["notes"]]
    assert sorted(gone) == sorted(keys)
    assert [value_at(after, key) for key in keys] == [None] * len(keys)


@pytest.mark.parametrize(("table", "new", "keys"), LEFT_OUT, ids=[" ".join(keys) for _, _, keys in LEFT_OUT])
def test_what_the_change_sets_itself_stays(table, new, keys):
    both = change(table, {**new, **{key: value_at(table, key) for key in keys}}, "a.toml")

    assert [value_at(both, key) for key in keys] == [value_at(table, key) for key in keys]


@pytest.mark.parametrize(("table", "new", "keys"), LEFT_OUT, ids=[" ".join(keys) for _, _, keys in LEFT_OUT])
def test_a_change_to_what_is_there_already_leaves_nothing_out(table, new, keys):
    same = {key: value_at(table, key) for key in new if value_at(table, key) is not None}

    assert change(table, same, "a.toml") == change(table, {}, "a.toml")


def test_the_report_repeats_the_notes_and_they_are_not_part_of_the_hash():
    by_change = change(made(DENSE, schedule={"name": "interleaved", "vpp": 2}), {"schedule.name": "1f1b"}, "a.toml")
    said = simulate(check_question({**by_change, "level": "coarse"})).report
    plain = simulate(check_question({**made(DENSE, schedule={"name": "1f1b"}), "level": "coarse"})).report

    assert "left out: schedule.vpp = 2: 1f1b has 1 chunk per pipeline rank; interleaved takes any number" in said.notes
    assert said.scenario_hash == plain.scenario_hash


def test_the_note_names_the_profile_that_is_dropped_and_the_report_the_one_that_is_used():
    notes = simulate(check_question(change(SERVED, {"cluster": "dgx-h100"}, "a.toml"))).report.notes

    assert "left out: profile = 'h20': is made for H20, not for H100 SXM, whose profile is h100-sxm" in notes
    assert "profile of H100 SXM: h100-sxm; chosen by device" in notes


def test_a_profile_of_the_users_own_stays_where_it_is_made_for_the_new_device(tmp_path):
    where = tmp_path / "a.toml"
    where.touch()
    (tmp_path / "mine.json").write_text('{"schema": 2, "base": "h100-sxm", "devices": ["H100 SXM"]}')
    table = {**SERVED, "cluster": "dgx-h100", "profile": "mine.json"}
    clusters = ("h100-hgx", "h100-roce", "h20-hgx", "dgx-b200")
    found = [change(table, {"cluster": name}, str(where)).get("profile") for name in clusters]

    assert found == ["mine.json", "mine.json", None, None]


def test_a_profile_that_is_made_for_any_device_stays():
    assert change({**SERVED, "profile": "generic"}, {"cluster": "dgx-h100"}, "a.toml")["profile"] == "generic"


def test_parts_that_the_new_model_lacks_are_left_out_of_a_list():
    modules = ["layernorm", "mlp"]
    table = made(DENSE, recompute={"mode": "selective", "modules": modules}, parallel={"tp": 1, "pp": 1})
    after = change(table, {"model.preset": "qwen3-30b-a3b"}, "a.toml")

    assert (after["recompute"]["modules"], len(after["notes"])) == (["layernorm"], 1)


CONTRADICTIONS = [
    made(DENSE, recompute={"mode": "full", "modules": ["layernorm"]}),
    made(DENSE, overlap={"tp_exposed": 0.5}),
    {**SERVED, "cluster": "dgx-h100"},
    made(SERVED, update={"h2d_freed": "end"}),
]


@pytest.mark.parametrize("table", CONTRADICTIONS)
@pytest.mark.parametrize("new", [{}, {"nodes": 4}])
def test_a_file_that_contradicts_itself_is_refused_with_a_change_and_without(table, new):
    with pytest.raises(UserError):
        simulate(check_question(change(table, new, "a.toml")))


def test_what_a_wrong_change_leaves_shows_in_the_checks():
    with pytest.raises(UserError, match="cluster = 'dgx-h1000': unknown"):
        simulate(check_question(change(SERVED, {"cluster": "dgx-h1000"}, "a.toml")))


def test_all_axes_of_a_point_are_one_change():
    work = Work(made(DENSE, recompute={"mode": "full", "layers": 4}), "a.toml")

    with pytest.raises(UserError, match=r"recompute.layers = 2: goes with recompute.mode = 'full'"):
        check_question(work.table([{"recompute.layers": 2}, {"recompute.mode": "none"}]))
    assert work.digest([{"recompute.mode": "none"}]) == work.digest([{"recompute": {"mode": "none"}}])


@given(st.sampled_from([key for key, one in SCHEDULES.items()]), st.sampled_from([None, 1, 2, 3]))
def test_every_schedule_goes_from_every_other(name, vpp):
    schedule = {"name": "interleaved", **({"vpp": vpp} if vpp else {})}
    table = made(DENSE, schedule=schedule, batch={"global": 64, "seq_len": 512})
    found = resolve(check_question(change(table, {"schedule.name": name}, "a.toml")), memo=Memo())

    assert found.grid.stages == SCHEDULES[name].stages(2, vpp or 1)


def test_every_key_with_a_need_is_a_key():
    systems = SYSTEMS.values()
    keys = {one.key for system in systems for one in (*system.needs, *system.pins)}
    keys |= {key for system in systems for rivals in system.rivals for key in rivals}

    assert [key for key in sorted(keys) if not any(is_key(kind, key) for kind in SYSTEMS)] == []


@pytest.mark.parametrize("stack", stack_names())
def test_no_default_of_a_stack_is_refused(stack):
    step = SYSTEMS["train_step"]
    assert faults(Values({**DENSE, "stack": stack}, step.schema), step.needs, step.rivals, "a.toml") == []
    for table in (DENSE, made(DENSE, parallel={"tp": 1, "zero": 3}), made(DENSE, parallel={"cp": 2, "zero": 0})):
        check_question({**table, "stack": stack})


def test_a_fault_goes_to_another_process_and_comes_back():
    line = fault("a.toml", "nodes", 0, "expected more")
    again = pickle.loads(pickle.dumps(line))

    assert (again, again.key, again.value, again.allowed) == (line, "nodes", 0, "expected more")


@pytest.mark.parametrize("name", ["kimi-k2-256xh20", "train-llama3-70b-64xh100"])
def test_the_first_scenario_of_a_page_goes_on_other_clusters(name):
    table = read_toml(Path(f"data/scenarios/{name}.toml"))
    for cluster in ("dgx-h100", "h200-hgx", "dgx-b200", "gb300-nvl72", "h800-hgx", "h100-roce"):
        assert resolve(check_question(change(table, {"cluster": cluster}, "a.toml"))).plan
