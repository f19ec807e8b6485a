"""Raw samples of a GPU as JSON lines: what each case becomes, and which lines are left out or refused."""

import gzip
import json

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.samples import read_samples

MACHINE = {"group": "environment", "gpu": "NVIDIA H100 80GB HBM3", "torch": "2.6.0", "cuda": "12.4", "sms": 132}
GEMM = {"m": 4096, "n": 512, "k": 7168, "dtype": "bf16"}


def record(group, case, params, **more):
    return {"group": group, "case": case, "params": params, "unit": "us", "samples": [11.0, 10.0, 30.0], **more}


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def samples(*records, machine=MACHINE, name="p.jsonl"):
        lines = [r if isinstance(r, str) else json.dumps(r) for r in (machine, *records)]
        text = ("\n".join(lines) + "\n").encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return read_samples([name])

    return samples


def faults(read, *arguments, **named):
    with pytest.raises(UserError) as caught:
        read(*arguments, **named)
    return caught.value.faults


ATTENTION = {"batch": 2, "heads": 32, "kv_heads": 8, "seq": 4096, "head_dim": 128, "causal": True, "backend": "flash"}
FP8 = {"m": 2048, "n": 512, "k": 7168, "dtype": "fp8_e4m3"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            record("gemm", "forward_NT", GEMM),
            {"cost_class": "gemm.bf16", "library": "torch", "group": "512x7168", "m": 4096, "n": 512, "k": 7168},
        ),
        # dx[m, k] = dy[m, n] w[n, k] and dw[n, k] = dy[m, n]' x[m, k]
        (record("gemm", "dgrad_NN", GEMM), {"cost_class": "gemm.bf16.dgrad", "m": 4096, "n": 7168, "k": 512}),
        (record("gemm", "wgrad_TN", GEMM), {"cost_class": "gemm.bf16.wgrad", "m": 512, "n": 7168, "k": 4096}),
        (record("gemm", "forward_NT", GEMM | {"dtype": "tf32"}), {"cost_class": "gemm.tf32"}),
        (
            record("gemm_fp8", "scaled_mm", FP8 | {"scale": "tensor", "fast_accum": True}),
            {"cost_class": "gemm.fp8", "library": "torch scaled_mm fast", "m": 2048, "n": 512, "k": 7168},
        ),
        (
            record("gemm_fp8", "scaled_mm_rowwise", FP8 | {"scale": "row", "fast_accum": False}),
            {"cost_class": "gemm.fp8", "library": "torch scaled_mm_rowwise full"},
        ),
        (
            record("gemm_fp8", "amax_and_cast", {"rows": 2048, "cols": 7168}, bytes=5 * 2048 * 7168),
            {"cost_class": "memory.amax_and_cast", "bytes": 5 * 2048 * 7168},
        ),
        (
            record("attention", "forward", ATTENTION),
            {
                "cost_class": "attention.forward",
                "library": "torch flash",
                "batch": 2,
                "seq": 4096,
                "heads": 32,
                "kv_heads": 8,
                "head_dim": 128,
                "causal": 1,
            },
        ),
        (
            record("attention", "backward", ATTENTION | {"kv_expanded": True, "causal": False, "backend": "cudnn"}),
            {"cost_class": "attention.backward", "library": "torch cudnn", "kv_heads": 32, "causal": 0},
        ),
        (record("copies", "h2d_pinned", {"bytes": 4096}), {"cost_class": "copy.h2d", "bytes": 4096}),
        (record("copies", "d2h_pageable", {"bytes": 4096}), {"cost_class": "copy.d2h.pageable", "bytes": 4096}),
        (record("copies", "d2d", {"bytes": 4096}, bytes=8192), {"cost_class": "copy.d2d", "bytes": 4096}),
        (record("launch", "tiny_kernels_issue", {"kernels": 1000}), {"cost_class": "host.launch", "count": 1000}),
        (record("launch", "synchronize", {}), {"cost_class": "host.synchronize", "count": 1}),
        (record("launch", "linear_call_issue", {"calls": 100}), {"cost_class": "host.linear_call", "count": 100}),
        (
            record("launch", "graph_replay_issue", {"kernels": 200}),
            {"cost_class": "host.graph_replay_issue", "count": 1},
        ),
        (record("launch", "graph_replay_device", {"kernels": 200}), {"cost_class": "host.graph_node", "count": 200}),
        (record("launch", "stream_wait_event", {"waits": 100}), {"cost_class": "host.stream_wait_event", "count": 200}),
        (
            record("reload", "copy_per_tensor_issue", {"tensors": 200, "bytes_each": 16384}),
            {"cost_class": "host.reload_copy_per_tensor_issue", "count": 200},
        ),
    ],
)
def test_a_record_is_the_median_of_its_repeats(given, expected, read):
    (row,) = read(given).table.to_dict("records")
    common = {"device": "H100 SXM", "seconds": pytest.approx(11e-6), "source": "p.jsonl:2"}
    assert {key: row[key] for key in (*common, *expected)} == common | expected


@pytest.mark.parametrize(
    ("case", "counted", "kernel", "library", "per_element"),
    [
        ("copy", 4, "copy", "torch", 4),
        ("residual_add", 6, "residual_add", "torch", 6),
        ("rms_norm_forward", 4, "rms_norm", "torch", 4),
        ("rms_norm_backward", 8, "rms_norm_backward", "torch", 6),
        ("layer_norm_forward", 4, "layer_norm", "torch", 4),
        ("layer_norm_backward", 8, "layer_norm_backward", "torch", 6),
        ("swiglu_forward_unfused", 6, "swiglu", "torch", 6),
        ("swiglu_backward_unfused", 10, "swiglu_backward", "torch", 10),
        ("cast_bf16_fp32", 6, "cast", "torch", 6),
        ("fp32_accumulate", 10, "fp32_accumulate", "torch", 10),
        ("cross_entropy_fp32_forward", 6, "loss_passes", "torch", 38),
        ("cross_entropy_fp32_backward", 10, "loss_passes_backward", "torch", 14),
        ("adamw_fused", 28, "adamw", "torch fused", 28),
        ("adamw_foreach", 28, "adamw", "torch foreach", 28),
        ("grad_norm_foreach", 4, "grad_norm", "torch foreach", 4),
    ],
)
def test_memory_bound_cases_of_the_probe_join_the_classes_of_the_suite(
    case, counted, kernel, library, per_element, read
):
    rows = {"vocab": 4096} if case.startswith("cross") else {"hidden": 4096}
    sized = {"parameters": 2048 * 4096} if library != "torch" else {"tokens": 2048} | rows
    (row,) = read(record("membound", case, sized, bytes=counted * 2048 * 4096)).table.to_dict("records")
    assert (row["cost_class"], row["library"]) == (f"memory.{kernel}", library)
    assert row["bytes"] == pytest.approx(per_element * 2048 * 4096)
    assert (row["width"], row["group"]) == ((4096, "4096") if library == "torch" else (8192, ""))
    stated = membound_of_the_suite(kernel)
    assert not stated or (per_element, library) in stated


def membound_of_the_suite(kernel):
    """Bytes per element, or per parameter, and library of the suite's cases of this class; none without torch."""
    try:
        from runcast.calibrate.measure.case import Facts
        from runcast.calibrate.measure.cases import membound
    except ImportError:
        return set()
    cases = [case for case in membound.cases(Facts("cuda")) if case.cost_class == f"memory.{kernel}"]
    sizes = [case.params.get("parameters") or case.params["rows"] * case.params["width"] for case in cases]
    return {(case.bytes / size, case.library) for case, size in zip(cases, sizes, strict=True)}


@pytest.mark.parametrize("layout", ["forward_NT", "dgrad_NN", "wgrad_TN"])
def test_every_layout_has_the_work_of_the_forward_product(layout, read):
    (row,) = read(record("gemm", layout, GEMM)).table.to_dict("records")
    assert row["m"] * row["n"] * row["k"] == 4096 * 512 * 7168


@pytest.mark.parametrize(
    "other",
    [
        record("copies", "h2d_and_d2h_at_once", {"bytes_each": 4096}),
        record("interference", "gemm_8192", {"beside": "h2d"}),
        record("layer", "forward", {}),
        record("reload", "foreach_copy", {"tensors": 200, "bytes_each": 16384}),
        record("grouped", "grouped_mm", {"experts": 8, "rows": 4096, "n": 2048, "k": 7168, "skew": "balanced"}),
        record("sustained", "gemm", {}),
        {"group": "gemm", "case": "clocks", "clocks": None},
        record("gemm", "forward_TT", GEMM),
        record("gemm", "forward_NT", GEMM) | {"samples": []},
    ],
)
def test_what_is_no_sample_of_its_own_is_left_to_others(other, read):
    samples = read(other, record("gemm", "forward_NT", GEMM))
    assert (samples.table["source"].tolist(), samples.dropped) == (["p.jsonl:3"], ())


def test_a_case_that_failed_is_left_out_with_its_error(read):
    failed = {"group": "gemm", "case": "wgrad_TN", "params": GEMM, "error": "OutOfMemoryError: 80 GB"}
    samples = read(failed, record("gemm", "forward_NT", GEMM))
    assert samples.dropped == ("p.jsonl:2: gemm/wgrad_TN: OutOfMemoryError: 80 GB",)
    assert len(samples) == 1


def test_a_time_of_zero_is_left_out(read):
    none = record("gemm", "forward_NT", GEMM) | {"samples": [0.0]}
    assert read(none, record("gemm", "forward_NT", GEMM)).dropped == (
        "p.jsonl:2: seconds: expected a number greater than zero, 1e-12 to 1e9",
    )


def test_an_unknown_type_is_left_out(read):
    odd = record("gemm", "forward_NT", GEMM | {"dtype": "fp7"})
    (line,) = read(odd, record("gemm", "forward_NT", GEMM)).dropped
    assert line.startswith("p.jsonl:2: cost_class = 'gemm.fp7': unknown; ")


def test_the_environment_says_nothing_that_is_private(read):
    private = {
        "hostname": "node17",
        "user": "ann",
        "uuid": "GPU-1",
        "machine": "x86_64",
        "cpus": 96,
        "path": "/home/ann",
    }
    driver = {"driver_version,pcie.link.gen.current": "550.54"}
    assert read(record("gemm", "forward_NT", GEMM), machine=MACHINE | private | driver).environment == {
        "gpu": "NVIDIA H100 80GB HBM3",
        "torch": "2.6.0",
        "cuda": "12.4",
        "sms": "132",
        "driver_version": "550.54",
    }


def test_the_gpu_may_stand_among_the_parameters(read):
    machine = {"group": "environment", "params": {"gpu": "NVIDIA H20"}}
    assert read(record("gemm", "forward_NT", GEMM), machine=machine).table["device"].tolist() == ["H20"]


def test_a_compressed_file(read):
    assert len(read(record("gemm", "forward_NT", GEMM), name="p.jsonl.gz")) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"group": "gemm",', "p.jsonl:3: is not JSON: "),
        ("[1, 2]", "p.jsonl:3: expected an object with group, case, params and samples"),
        ('{"case": "d2d"}', "p.jsonl:3: expected an object with group, case, params and samples"),
    ],
)
def test_a_broken_line_is_refused_with_its_number(line, message, read):
    (told,) = faults(read, record("gemm", "forward_NT", GEMM), line)
    assert told.startswith(message)


@pytest.mark.parametrize("machine", [record("gemm", "forward_NT", GEMM), {"group": "environment", "torch": "2.6.0"}])
def test_a_file_that_does_not_name_its_gpu(machine, read):
    assert faults(read, machine=machine) == (
        "p.jsonl:1: the first line does not name the GPU; expected the environment",
    )


def test_an_unknown_gpu(read):
    (line,) = faults(read, machine=MACHINE | {"gpu": "NVIDIA Abacus"})
    assert line.startswith("p.jsonl: gpu = 'Abacus': unknown; ")


def test_a_file_with_an_environment_only(read):
    assert faults(read) == ("p.jsonl: holds no samples of kernels, copies or calls",)


def test_a_file_in_which_everything_failed(read):
    failed = {"group": "gemm", "case": "wgrad_TN", "params": GEMM, "error": "out of memory"}
    assert faults(read, *[failed] * 5) == tuple(f"p.jsonl:{n}: gemm/wgrad_TN: out of memory" for n in (2, 3, 4))


STATED = {
    "cost_class": "all_reduce",
    "features": {"bytes": 4096, "gpus": 4},
    "library": "nccl 2.29.2",
    "together": "ring",
    "cache": "hot",
    "wrong": 0,
    "round": 0,
}


def stated(case="all_reduce", **changes):
    return record("collectives", case, {"size": 4096}, **(STATED | changes))


def test_a_record_that_states_its_class_is_taken_as_it_says(read):
    (row,) = read(stated()).table.to_dict("records")
    assert row == {
        "cost_class": "all_reduce",
        "device": "H100 SXM",
        "library": "nccl 2.29.2",
        "group": "ring",
        "seconds": pytest.approx(11e-6),
        "source": "p.jsonl:2",
        "file": "p.jsonl",
        "bytes": 4096,
        "gpus": 4,
    }


def test_what_a_record_states_wins_over_what_its_case_is_called(read):
    given = record("gemm", "forward_NT", GEMM) | {"cost_class": "gemm.fp16", "features": {"m": 1, "n": 2, "k": 3}}
    (row,) = read(given).table.to_dict("records")
    assert (row["cost_class"], row["m"], row["n"], row["k"]) == ("gemm.fp16", 1, 2, 3)


def test_an_empty_class_is_no_sample_and_no_fault(read):
    samples = read(stated(cost_class="", features={}), stated("other"))
    assert (samples.table["source"].tolist(), samples.dropped) == (["p.jsonl:3"], ())
    (left,) = samples.others
    assert (left["case"], left["device"], left["source"]) == ("all_reduce", "H100 SXM", "p.jsonl:2")


def test_one_sample_per_case_is_the_median_over_all_its_rounds(read):
    other = stated("other")
    (first, second) = read(
        stated(samples=[1.0, 2.0, 9.0]), other, stated(round=1, samples=[7.0, 8.0]), stated(round=2, error="lost")
    ).table.to_dict("records")
    assert (first["seconds"], first["source"]) == (pytest.approx(7e-6), "p.jsonl:2")
    assert (second["seconds"], second["source"]) == (pytest.approx(11e-6), "p.jsonl:3")


def test_rounds_of_other_parameters_are_other_cases(read):
    larger = stated(round=1) | {"params": {"size": 8192}, "features": {"bytes": 8192, "gpus": 4}}
    assert len(read(stated(), larger)) == 2


def test_wrong_results_are_left_out_and_say_so(read):
    samples = read(stated(wrong=3), stated("other", wrong=None))
    assert samples.dropped == ("p.jsonl:2: collectives/all_reduce: 3 elements of the result were wrong",)
    assert len(samples) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"features": {"bytes": 4096, "gpus": "two"}}, "params or samples that do not fit the case: ValueError"),
        ({"features": {"bytes": 4096, "gpus": 4, "moon": 1}}, "ValueError: unknown feature 'moon'"),
        ({"features": {"bytes": 4096}}, "gpus: expected at least 2"),
        ({"cost_class": "all_reduced"}, "cost_class = 'all_reduced': unknown"),
        ({"samples": ["fast"]}, "params or samples that do not fit the case: ValueError"),
    ],
)
def test_a_record_that_states_something_impossible_is_left_out(changes, reason, read):
    samples = read(stated(**changes), stated("other"))
    (line,) = samples.dropped
    assert line.startswith("p.jsonl:2: ")
    assert reason in line
    assert len(samples) == 1


def test_a_file_with_nothing_but_other_records(read):
    samples = read(stated(cost_class="", features={}))
    assert (len(samples), len(samples.others), samples.table.columns.tolist()[-1]) == (0, 1, "file")


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = [json.dumps(MACHINE), json.dumps(stated()), json.dumps(stated("other"))]
    (tmp_path / "p.jsonl").write_text("\n".join(whole)[:-30])
    samples = read_samples(["p.jsonl"])
    assert (len(samples), samples.dropped) == (1, ("p.jsonl:3: cut short",))


def test_a_last_line_without_an_end_may_be_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.jsonl").write_text(json.dumps(MACHINE) + "\n" + json.dumps(stated()))
    assert len(read_samples(["p.jsonl"])) == 1


@pytest.mark.parametrize(
    ("gpu", "device"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA B200", "B200 SXM"),
        ("NVIDIA B300 SXM6 AC", "B300 SXM"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA H800", "H800 SXM"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2 32GB"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2 16GB"),
        ("CPU", "CPU"),
    ],
)
def test_devices_go_by_the_names_that_drivers_print(gpu, device, read):
    assert read(stated(), machine=MACHINE | {"gpu": gpu}).table["device"].tolist() == [device]


def test_the_environment_of_a_suite(read):
    told = {"driver": "550.54", "nccl": "2.29.2", "ranks": 4, "nodes": [[0, 1, 2, 3]], "suite": 1, "hostname": "n17"}
    environment = read(stated(), machine=MACHINE | told).environment
    assert {key: environment.get(key) for key in told} == {
        "driver": "550.54",
        "nccl": "2.29.2",
        "ranks": "4",
        "nodes": "[[0, 1, 2, 3]]",
        "suite": "1",
        "hostname": None,
    }
