"""Checkpoints and samples on the links of a cluster: nothing carries more than it can."""

from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError, simulate
from runcast.simulator.models import preset, total_params
from runcast.simulator.systems.run.training.input import Input
from runcast.simulator.systems.run.training.storage import Checkpoint, Machine, Saving, saving

from .make import failure, train

ONE_NODE = """
kind = "run"
cluster = "dgx-a100"
nodes = 1

[step]
time = "1 s"

[run]
steps = 1000
repeats = 1

[checkpoint]
bytes = "160 GB"
store = "1000 TB/s"
interval = "100 s"
"""


@pytest.fixture
def one(tmp_path) -> Path:
    """A node with eight GPUs, two of them below each PCIe switch."""
    path = tmp_path / "one.toml"
    path.write_text(ONE_NODE)
    return path


def test_gpus_below_one_pcie_switch_share_its_uplink_when_they_are_copied(one):
    """20 GB of each of two GPUs over 16 lanes of PCIe 4."""
    resolved = simulate(one, ["checkpoint.mode=background"]).resolved
    uplink = 31.508e9 * resolved.profile.value_or("link_fraction.pcie", 1.0)

    assert resolved.saving.stall_s == pytest.approx(2 * 20e9 / uplink, rel=1e-4)


def test_moments_and_gradients_are_those_of_what_is_trained(tmp_path):
    """Weights in 2 bytes; master weights and two moments of the head in 12; its gradients in 4."""
    path, vocabulary, hidden, total = tmp_path / "head.toml", 128256, 4096, 8_030_261_248
    step = '[model]\npreset = "llama3-8b"\n[freeze]\nlayers = "all"\nembedding = true\n'
    step += "[batch]\nglobal = 8\nseq_len = 512\n"
    path.write_text(ONE_NODE.replace('[step]\ntime = "1 s"\n', step).replace('bytes = "160 GB"\n', ""))
    trained = vocabulary * hidden + hidden

    resolved = simulate(path).resolved

    assert (resolved.checkpoint_bytes, resolved.gradient_bytes) == (2 * total + 12 * trained, 4 * trained)


def test_workers_exchange_gradients_of_adapters_and_save_these_with_their_states(tmp_path):
    """Of rank 4 beside a square product: 4 rows of 4,096 and as many columns, in each of 32 layers."""
    path = tmp_path / "adapters.toml"
    step = '[model]\npreset = "llama3-8b"\n[lora]\nrank = 4\ntargets = ["proj"]\n[batch]\nglobal = 8\nseq_len = 512\n'
    path.write_text(ONE_NODE.replace('[step]\ntime = "1 s"\n', step).replace('bytes = "160 GB"\n', ""))
    adapters = 32 * 4 * (4096 + 4096)

    resolved = simulate(path).resolved

    assert (resolved.gradient_bytes, resolved.checkpoint_bytes) == (4 * adapters, 14 * adapters)


@pytest.mark.parametrize("mtp", [True, False])
def test_layers_for_multi_token_prediction_are_exchanged_and_saved_where_a_step_trains_them(tmp_path, mtp):
    path = tmp_path / "deepseek.toml"
    step = f'[model]\npreset = "deepseek-v3"\nmtp = {str(mtp).lower()}\n[parallel]\npp = 2\nep = 4\n'
    step += "[batch]\nglobal = 8\nseq_len = 512\n"
    path.write_text(ONE_NODE.replace('[step]\ntime = "1 s"\n', step).replace('bytes = "160 GB"\n', ""))

    resolved = simulate(path).resolved

    total, biases = total_params(preset("deepseek-v3"), mtp), 256 * (58 + mtp)  # of routers, which have no gradients
    assert (resolved.parameters, resolved.trained) == (total, total - biases)


def test_a_node_writes_no_faster_than_its_nics_carry(one):
    """Eight NICs of 200 Gb/s on a store that would take all at once."""
    resolved = simulate(one, ["checkpoint.bytes=10 TB"]).resolved

    assert resolved.saving.stall_s == pytest.approx(10e12 / resolved.node_bytes_per_s)
    assert 0.8 * 8 * 25e9 < resolved.node_bytes_per_s < 8 * 25e9


def test_a_stated_rate_of_a_node_stands_for_its_nics(one):
    assert simulate(one, ["checkpoint.node_rate=40 GB/s"]).resolved.saving.stall_s == pytest.approx(160 / 40)


@pytest.mark.parametrize(("store", "slower"), [(1e9, 1e9), (1e15, 2 * 10e9)])
def test_workers_pass_on_what_they_read_while_the_store_serves(store, slower):
    """Two workers of two nodes each: the slower of store and NICs counts once."""
    machine = Machine(
        nodes=4, nodes_per_worker=2, gpus=8, gpus_per_worker=4, copy_bytes_per_s=inf, nic_bytes_per_s=10e9
    )

    assert saving(Checkpoint(store=store), 40e9, machine).read_s == pytest.approx(40e9 / slower)


# A store of 1 GB/s for checkpoints of 200 GB and for input, which asks for 1 GB in each second.

EVERY_SECOND = Input(sample=10**6, samples=1000, store=10**9, prefetch=1)
BEHIND = Saving(0.0, write_s=200.0, store_share=1.0)


def test_input_and_a_checkpoint_have_half_of_the_store_each():
    """In 1,000 s a checkpoint is written for 400 s, in which steps take 2 s: 800 steps."""
    history = train(steps=8000, input=EVERY_SECOND, saving=BEHIND, work_s=1000.0)

    assert history.wall_s == pytest.approx(8000 * 1.25, abs=3)


@pytest.mark.slow
def test_a_checkpoint_is_safe_later_where_input_reads_meanwhile():
    """The one of the first 1,000 s is safe after 1,400 s."""
    lost_s = [
        train(steps=2000, input=EVERY_SECOND, saving=BEHIND, work_s=1000.0, failures=[failure(at)]).breakdown_s["lost"]
        for at in (1390.0, 1410.0)
    ]

    assert lost_s == [pytest.approx(1390, abs=3), pytest.approx(410, abs=3)]


def test_input_takes_what_a_slow_writer_leaves():
    """Nodes write at a quarter of the store's rate, and readers have the rest: 800 s of 1,000 at 3/4."""
    slow = Saving(0.0, write_s=800.0, store_share=0.25)

    assert train(steps=8000, input=EVERY_SECOND, saving=slow, work_s=1000.0).wall_s == pytest.approx(1e4, abs=3)


def test_a_checkpoint_that_training_stands_for_leaves_input_its_rate():
    history = train(steps=1000, input=EVERY_SECOND, saving=Saving(50.0), work_s=400.0)

    assert history.wall_s == pytest.approx(1000 + 2 * 50, abs=3)


@given(st.floats(10, 900), st.floats(0.05, 1), st.floats(0.1, 3), st.floats(0, 1), st.floats(100, 1000))
def test_a_store_never_carries_more_than_its_rate(write_s, share, batch_gb, cpu_s, work_s):
    reads = Input(sample=10**6, samples=1000 * batch_gb, store=10**9, cpu=cpu_s / 1000, prefetch=1)
    history = train(steps=1500, input=reads, saving=Saving(0.0, write_s, store_share=share), work_s=work_s)
    written_gb = history.counts.get("checkpoints", 0) * write_s * share
    ahead_gb = 2 * batch_gb + write_s * share  # at the start, and at the end

    assert 1500 * batch_gb + written_gb <= history.wall_s * (1 + 1e-3) + ahead_gb


def test_a_run_of_two_sites_saves_at_the_rate_of_its_own_nics(one):
    """Between sites another rate holds, of which a checkpoint needs none."""
    two = "cluster={base='dgx-a100', sites=2, site_bandwidth='10 Gb/s', site_latency='10 ms'}"
    apart = "sync={mode='local', inner=100, workers=2}", "step.gradient=1 GB", "nodes=2"

    saving_s = simulate(one, [two, *apart, "checkpoint.bytes=10 TB"]).resolved.saving.stall_s
    alone = simulate(one, ["checkpoint.bytes=10 TB", "nodes=2"]).resolved.saving.stall_s
    assert saving_s == pytest.approx(alone)


@pytest.mark.parametrize(("nodes", "fits"), [(1, False), (2, False), (3, True)])
def test_copies_in_memory_need_a_node_each(one, nodes, fits):
    changes = f"nodes={nodes}", "checkpoint={mode='memory', bytes='1 GB', copies=3, interval='100 s'}"
    if fits:
        assert simulate(one, changes).resolved.saving.read_s > 0
        return
    with pytest.raises(UserError, match=f"checkpoint.copies = 3: expected at most {nodes}, the nodes that train"):
        simulate(one, changes)


def test_that_copies_outlive_a_leaf_is_said(one):
    leaf = "failures={cause=[{name='a', part='leaf', mtbf='1000 h', repair='1 h'}]}"
    memory = "nodes=4", "checkpoint={mode='memory', bytes='1 GB', interval='100 s'}"
    found = [simulate(one, [*memory, leaf, f"failures.cause.0.repair='{repair} h'"]).report.notes for repair in (0, 1)]

    assert [sum("have a copy elsewhere" in note for note in notes) for notes in found] == [0, 1]
