"""Kineto's traces by hand: what each microsecond of a step is, which steps there are, which stream computes."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.figures import gantt
from runcast.simulator.formats.traces import read_run
from runcast.simulator.program.check import faults

from .kineto_file import (
    ADAM,
    ALL_GATHER,
    ALL_REDUCE,
    FLASH,
    GEMM,
    HERE,
    LOSS,
    NORM,
    ODD,
    REDUCE_SCATTER,
    SEND_RECV,
    SILU,
    copy,
    document,
    fixtures,
    host_op,
    kernel,
    launch,
    nccl,
    step,
    write,
)

FIXTURES = HERE / "fixtures"
SOFTMAX = "void (anonymous namespace)::cunn_SoftMaxForward<8, float, float, float, at::native::"
DTOH = "Memcpy DtoH (Device -> Pinned)"


def microseconds(table):
    return {name: round(seconds * 1e6, 3) for name, seconds in table.items() if round(seconds * 1e9)}


def split_us(folder, events, length_us=100.0):
    """The split of a step of this length from time 100 that holds these events, in microseconds."""
    marked = [step(3, 100, length_us), *events, step(4, 100 + length_us, 10), kernel(GEMM, 100 + length_us, 10)]
    return microseconds(read_run(write(folder / "trace.json", marked)).split_s)


def test_every_microsecond_of_a_step_has_a_name(tmp_path):
    found = split_us(tmp_path, [
        kernel(NORM, 100, 10), kernel(GEMM, 110, 30), nccl(ALL_REDUCE, 135, 25, "allreduce"), kernel(GEMM, 165, 20),
    ])  # fmt: skip

    assert found == {"gemm": 50, "memory": 10, "tp": 20, "host": 20}


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        (GEMM, "gemm"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256_32x3_nt_align8>(Params)", "gemm"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k", "gemm"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>(int)", "gemm"),
        ("triton_tem_fused_mm_3", "gemm"),
        (FLASH, "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_64x128x128_4x1x1", "attention"),
        ("_attn_fwd", "attention"),
        ("void cutlass::device_kernel<cutlass::gemm::GroupProblemShape<cute::tuple<int, int, int>>>", "experts"),
        ("void deep_gemm::fp8_m_grouped_gemm_nt_contiguous<128, 128>", "experts"),
        ("_chunk_scan_fwd_kernel", "gemm"),
        ("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "gemm"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x64_MI16x16x16x1", "gemm"),
        ("online_softmax_kernel", "loss"),
        ("void kOptimizerStatic8bit2StateBlockwise<float, 0>", "optimizer"),
        (NORM, "memory"),
        (SILU, "memory"),
        ("triton_poi_fused_add_mm_native_layer_norm_4", "memory"),
        (LOSS, "loss"),
        ("triton_red_fused__log_softmax_nll_loss_2", "loss"),
        (SOFTMAX + "(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*)", "loss"),
        (SOFTMAX + "(anonymous namespace)::SoftMaxForwardEpilogue>(float*)", "attention"),
        (ADAM.replace("FusedAdamMathFunctor", "CopyFunctor"), "memory"),
        (ADAM, "optimizer"),
        (ODD, "memory"),
    ],
)
def test_kernels_are_known_by_their_names(tmp_path, name, phase):
    found = split_us(tmp_path, [kernel(name, 100, 100)])

    assert found == {phase: 100}


@pytest.mark.parametrize(
    ("description", "collective", "axis"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "_allgather_base", "tp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "_reduce_scatter_base", "dp"),
        ("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", "_allgather_base", "dp"),
        ("EXPERT_DATA_PARALLEL_GROUP", "allreduce", "dp"),
        ("MODEL_PARALLEL_GROUP", "allreduce", "dp"),
        ("CONTEXT_PARALLEL_GROUP", "send", "cp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "recv", "pipeline"),
        ("EMBEDDING_GROUP", "allreduce", "pipeline"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "all_to_allv", "ep"),
        ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", "all_to_all", "ep"),
        ("mesh_tp", "allreduce", "tp"),
        ("mesh_cp", "all_to_all", "cp"),
        ("mesh_pp", "send", "pipeline"),
        ("mesh_dp_replicate", "allreduce", "dp"),
        ("mesh_dp_shard_cp", "_allgather_base", "fsdp"),
        ("mesh_fsdp", "_reduce_scatter_base", "fsdp"),
        ("mesh_dp_shard_mod_ep", "_allgather_base", "fsdp"),
        ("mesh_dp_shard_in_ep", "_allgather_base", "fsdp"),
        ("mesh_ep", "all_to_all", "ep"),
        ("default_pg", "_allgather_base", "fsdp"),
        ("undefined", "all_to_all", "ep"),
        ("", "send", "pipeline"),
    ],
)
def test_an_exchange_belongs_to_the_axis_of_its_group(tmp_path, description, collective, axis):
    exchange = nccl(SEND_RECV, 120, 80, collective)
    exchange["args"] |= {"Process Group Description": description, "Process Group Name": "99"}

    found = split_us(tmp_path, [kernel(GEMM, 100, 20), exchange])

    assert found == {"gemm": 20, axis: 80}


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int)", "tp"),
        ("userbuffers_fp16_sum_inplace_gpu_rw_ag", "tp"),
        ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", "tp"),
        ("deep_ep::internode::dispatch<false, 4>", "ep"),
    ],
)
def test_an_exchange_without_a_group_belongs_to_the_axis_of_its_library(tmp_path, name, axis):
    events = [step(1, 100, 100), kernel(GEMM, 100, 20), kernel(name, 120, 80, 20)]
    run = read_run(write(tmp_path / "trace.json", events))

    assert (run.exposed_s[axis], [note for note in run.notes if "axis" in note]) == (pytest.approx(80e-6), [])


def test_a_group_without_description_is_looked_up_by_name(tmp_path):
    exchange = nccl(ALL_REDUCE, 120, 80, "allreduce", "2")
    del exchange["args"]["Process Group Description"]

    found = split_us(tmp_path, [kernel(GEMM, 100, 20), exchange])

    assert found == {"gemm": 20, "tp": 80}


def test_what_the_host_recorded_of_an_exchange_counts_where_its_kernel_says_nothing(tmp_path):
    said = nccl(ALL_GATHER, 120, 80, "_allgather_base", "2")["args"] | {"External id": 77}
    silent = kernel(ALL_GATHER, 120, 80, 20, **{"External id": 77})

    found = split_us(tmp_path, [kernel(GEMM, 100, 20), host_op("record_param_comms", **said), silent])

    assert found == {"gemm": 20, "tp": 80}


def test_an_exchange_behind_kernels_costs_nothing(tmp_path):
    found = split_us(tmp_path, [kernel(GEMM, 100, 100), nccl(REDUCE_SCATTER, 120, 60, "_reduce_scatter_base", "1")])

    assert found == {"gemm": 100}


def test_an_exchange_that_goes_on_behind_a_gap_was_not_waited_for(tmp_path):
    found = split_us(tmp_path, [
        kernel(GEMM, 100, 40), kernel(GEMM, 160, 40), nccl(REDUCE_SCATTER, 120, 70, "_reduce_scatter_base", "1"),
    ])  # fmt: skip

    assert found == {"gemm": 80, "host": 20}


def test_a_gap_is_named_after_what_ends_last_in_each_stretch_of_it(tmp_path):
    """110..130 tensors' until 125 inside gradients' until 130, then 10 us of nothing, then 20 us of a pipeline's."""
    found = split_us(tmp_path, [
        kernel(GEMM, 100, 10), nccl(ALL_REDUCE, 105, 20, "allreduce"),
        nccl(REDUCE_SCATTER, 108, 22, "_reduce_scatter_base", "1", 24), nccl(SEND_RECV, 140, 20, "recv", "3", 28),
        kernel(GEMM, 160, 40),
    ])  # fmt: skip

    assert found == {"gemm": 50, "dp": 20, "host": 10, "pipeline": 20}


def test_an_exchange_on_the_compute_stream_holds_it_up(tmp_path):
    found = split_us(tmp_path, [kernel(GEMM, 100, 60), nccl(ALL_REDUCE, 160, 40, "allreduce", stream=7)])

    assert found == {"gemm": 60, "tp": 40}


def test_copies_are_waited_for_as_offload_and_copies_on_the_device_are_memory(tmp_path):
    found = split_us(tmp_path, [
        kernel(GEMM, 100, 20), copy("Memcpy HtoD (Pinned -> Device)", 110, 30, 30), copy("Memset (Device)", 140, 10),
        copy("Memcpy DtoD (Device -> Device)", 150, 20), copy(DTOH, 170, 30),
    ])  # fmt: skip

    assert found == {"gemm": 20, "memory": 30, "offload": 50}


def test_kernels_of_another_stream_compute_where_the_main_one_idles(tmp_path):
    """The norm runs 115..175 beside products 100..120 and 150..180: 120..150 of it is on the compute lane."""
    found = split_us(tmp_path, [
        kernel(GEMM, 100, 20), kernel(NORM, 115, 60, stream=13), kernel(GEMM, 150, 30),
        kernel(SILU, 190, 20, stream=14),
    ])  # fmt: skip

    assert found == {"gemm": 50, "memory": 40, "host": 10}


def test_kernels_that_overlap_on_their_stream_count_once(tmp_path):
    found = split_us(tmp_path, [kernel(GEMM, 100, 60), kernel(NORM, 150, 50)])

    assert found == {"gemm": 60, "memory": 40}


def test_an_op_over_the_end_of_a_step_is_cut_there(tmp_path):
    found = split_us(tmp_path, [kernel(GEMM, 100, 60), nccl(ALL_GATHER, 150, 300, "_allgather_base", "1")])

    assert found == {"gemm": 60, "dp": 40}


def test_exposed_communication_by_hand(tmp_path):
    events = [
        step(3, 100, 100), kernel(GEMM, 100, 40), nccl(ALL_REDUCE, 120, 50, "allreduce"), kernel(GEMM, 170, 30),
    ]  # fmt: skip

    run = read_run(write(tmp_path / "trace.json", events))

    assert (microseconds(run.exposed_s), microseconds(run.facts["communication_s"])) == ({"tp": 30}, {"tp": 50})


def test_the_fixture_of_megatron_by_hand():
    """Six layers of 400 us kernels, 60 us tp and 10 us host; see `kineto_file.training_step` for what follows."""
    run = read_run(FIXTURES / "megatron-rank0.json.gz")

    assert (run.form, run.steps, microseconds(run.split_s)) == (
        "kineto",
        (10, 11, 12),
        {
            "gemm": 6 * 270, "attention": 6 * 80, "memory": 6 * 50, "loss": 40, "optimizer": 60, "tp": 6 * 60,
            "dp": 60 + 60, "offload": 8, "host": 6 * 10 + 10 + 2 + 140,
        },
    )  # fmt: skip


def test_fixtures_are_what_their_script_writes(tmp_path):
    written = {name: write(tmp_path / name, *given).read_bytes() for name, given in fixtures().items()}

    assert written == {name: (FIXTURES / name).read_bytes() for name in written}


def test_a_folder_of_ranks_is_averaged():
    one, two, both = (
        read_run(FIXTURES / name) for name in ("megatron-rank0.json.gz", "megatron-rank1.json.gz", "")
    )  # fmt: skip

    mean = {phase: (one.split_s[phase] + two.split_s[phase]) / 2 for phase in one.split_s}

    assert both.split_s == pytest.approx(mean, abs=1e-12)


def test_a_folder_has_a_place_per_rank():
    run = read_run(FIXTURES)

    assert [place.ranks for place in run.timeline.program.places] == [(0,), (1,)]


def test_facts_of_a_trace():
    facts = read_run(FIXTURES / "megatron-rank1.json.gz").facts

    assert {name: facts[name] for name in ("world_size", "ranks", "device", "tp", "pp", "dp", "step")} == {
        "world_size": 4, "ranks": (1,), "device": "NVIDIA H100 80GB HBM3", "tp": 2, "pp": 1, "dp": 2, "step": 10,
    }  # fmt: skip


def test_an_exchange_keeps_bytes_type_and_group(tmp_path):
    exchange = nccl(ALL_REDUCE, 110, 20, "allreduce", nelems=1000)
    program = read_run(write(tmp_path / "t.json", [step(1, 100, 50), kernel(GEMM, 100, 10), exchange])).timeline.program

    op = program.names.index("ncclDevKernel_AllReduce_Sum_bf16_RING_LL")

    assert (program.kind_of(op), program.bytes[op], program.dtypes[program.dtype[op]], program.groups[program.group[op]]
            ) == ("all_reduce", 2000, "BFloat16", (0, 1))  # fmt: skip


# --- steps ----------------------------------------------------------------------------------------------------------


def three_steps(gpu):
    kernels = [kernel(GEMM, ts, 30) for ts in (100, 150, 210)]
    if gpu:
        return [*kernels, step(1, 100, 30), step(2, 150, 30), step(3, 210, 30)]
    marks = [step(1, 10, 40, gpu=False), step(2, 50, 50, gpu=False), step(3, 100, 40, gpu=False)]
    return [*kernels, *marks, launch(20, 100), launch(60, 150), launch(110, 210)]


@pytest.mark.parametrize("gpu", [True, False])
def test_a_step_lasts_until_the_next_one_begins_on_the_device(tmp_path, gpu):
    run = read_run(write(tmp_path / "trace.json", three_steps(gpu)))

    assert (run.steps, run.steps_s) == ((1, 2, 3), pytest.approx((50e-6, 60e-6, 30e-6)))


def test_steps_of_the_host_count_where_nothing_says_what_launched_kernels(tmp_path):
    events = [event for event in three_steps(gpu=False) if event["cat"] != "cuda_runtime"]

    run = read_run(write(tmp_path / "trace.json", events))

    assert run.steps_s == pytest.approx((40e-6, 50e-6, 40e-6))


def test_the_typical_step_is_the_lower_median_of_those_that_another_follows(tmp_path):
    starts = (0, 70, 120, 180, 225)  # 70, 50, 60, 45, and the last of 10
    events = [event for i, ts in enumerate(starts) for event in (step(i, ts, 10), kernel(GEMM, ts, 10))]

    run = read_run(write(tmp_path / "trace.json", events))

    assert (run.facts["step"], run.step_s) == (1, pytest.approx(50e-6))


def test_a_step_may_be_asked_for():
    run = read_run(FIXTURES / "megatron-rank0.json.gz", step=12)

    assert (run.step_s, run.notes[0]) == (
        pytest.approx(3060e-6), "step 12 is the last of the file: it ends with its last GPU op",
    )  # fmt: skip


# --- the Timeline ---------------------------------------------------------------------------------------------------


def test_the_program_is_well_formed_and_has_lanes_by_axis():
    program = read_run(FIXTURES).timeline.program

    assert (faults(program), {lane.name for lane in program.lanes}) == ([], {"compute", "tp", "dp", "host", "d2h"})


def test_causes_end_before_what_they_let_start():
    timeline = read_run(FIXTURES).timeline
    has = timeline.cause >= 0

    assert (timeline.end_s[timeline.cause[has]] <= timeline.start_s[has] + 1e-12).all()


def test_a_gantt_chart_shows_it():
    run = read_run(FIXTURES / "megatron-rank0.json.gz")

    names = {trace.name for trace in gantt(run.timeline).data}

    assert {"gemm", "attention", "all_reduce", "issue"} <= names


ops = st.lists(
    st.tuples(
        st.sampled_from([GEMM, NORM, ODD, DTOH, "tp", "dp"]), st.integers(0, 400), st.integers(0, 120),
        st.sampled_from([7, 7, 7, 13, 20]),
    ),
    min_size=1,
    max_size=30,
)  # fmt: skip


@given(ops)
def test_a_split_sums_to_the_step_and_no_part_is_negative(tmp_path_factory, drawn):
    events = [step(1, 0, 500), kernel(GEMM, 0, 1)]
    for name, ts, dur, stream in drawn:
        if name in ("tp", "dp"):
            events.append(nccl(ALL_REDUCE, ts, dur, "allreduce", "2" if name == "tp" else "1", stream))
        else:
            events.append(copy(name, ts, dur, stream) if name == DTOH else kernel(name, ts, dur, stream))
    run = read_run(write(tmp_path_factory.mktemp("traces") / "trace.json", events))

    parts = np.array(list(run.split_s.values()))

    assert (parts.sum(), (parts >= -1e-15).all()) == (pytest.approx(run.step_s, abs=1e-12), True)


# --- notes ----------------------------------------------------------------------------------------------------------


def test_notes_say_what_was_assumed(tmp_path):
    kernels = [kernel(GEMM, 100, 60), kernel(ODD, 160, 20), kernel(ALL_GATHER, 190, 10, 20)]
    run = read_run(write(tmp_path / "trace.json", [step(1, 100, 100), *kernels]))

    assert run.notes == (
        "25.0% of kernel time is of unknown kernels and counts as memory-bound: my_own_thing_v2",
        "1e-05 s of exchanges do not say their axis and are taken as fsdp",
        "step 1 is the last of the file: it ends with its last GPU op",
        "1 of 4 ranks; exchanges hold the time that this rank waits for others",
    )


def test_a_list_of_events_is_a_chrome_trace(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document([step(1, 0, 10), kernel(GEMM, 0, 10)])["traceEvents"]))

    assert read_run(path).form == "chrome"


def test_categories_of_older_files_count(tmp_path):
    old = kernel(GEMM, 100, 100) | {"cat": "Kernel"}

    assert split_us(tmp_path, [old]) == {"gemm": 100}
