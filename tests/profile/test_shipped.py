"""The shipped profiles: complete, true to the catalogue, and within the errors that the docs promise."""

import json
from importlib.resources import files
from pathlib import Path

import pytest
from runcast.simulator.hardware import cluster, device, limits
from runcast.simulator.profile import Model, load_profile, profile_for, profile_names

FITTED = ("a100-sxm", "b200-sxm", "gb200", "h100-sxm", "h200-sxm")
DERIVED = ("b300", "gb300", "h20", "h800", "l40s", "v100")

# median and p90 that a class aims at, per profile; `docs/profiles.md` lists the cells that miss them
AIMS = {
    ("h100-sxm", "gemm.bf16"): (0.06, 0.16),
    ("h200-sxm", "gemm.bf16"): (0.06, 0.16),
    ("b200-sxm", "gemm.bf16"): (0.06, 0.16),
    ("a100-sxm", "gemm.bf16"): (0.08, 0.22),
    ("h100-sxm", "gemm.fp8"): (0.06, 0.15),
    ("h200-sxm", "gemm.fp8"): (0.06, 0.15),
    ("b200-sxm", "gemm.fp8"): (0.06, 0.15),
    ("h100-sxm", "all_reduce.network"): (0.10, 0.22),
    ("h100-sxm", "send_recv"): (0.03, 0.10),
    ("h100-sxm", "send_recv.network"): (0.03, 0.10),
    ("a100-sxm", "send_recv"): (0.10, 0.18),
    ("a100-sxm", "attention.forward"): (0.06, 0.17),
    ("b200-sxm", "attention.forward"): (0.06, 0.17),
    ("h200-sxm", "attention.forward"): (0.06, 0.17),
    ("a100-sxm", "memory.rms_norm"): (0.06, 0.19),
    ("h100-sxm", "memory.swiglu"): (0.06, 0.19),
}


def raw(name: str) -> dict:
    return json.loads((files("runcast.data") / "profiles" / f"{name}.json").read_text())


def test_all_that_were_promised_are_there():
    assert sorted(profile_names()) == sorted(["generic", *FITTED, *DERIVED])


@pytest.mark.parametrize("name", [*FITTED, *DERIVED])
def test_limits_are_those_of_the_catalogue(name):
    assert load_profile(name).limits == limits(cluster(raw(name)["limits"]["cluster"], 1))


@pytest.mark.parametrize("name", [*FITTED, *DERIVED])
def test_devices_are_the_catalogues_and_find_their_profile(name):
    named = load_profile(name).devices

    assert [(device(each).name, profile_for(each)) for each in named] == [(each, name) for each in named]


@pytest.mark.parametrize("name", [*FITTED, *DERIVED])
def test_every_file_says_how_it_is_made_again(name):
    read = [of["file"] for of in raw(name)["samples"]]

    assert raw(name)["command"].split()[: 3 + len(read)] == ["runcast", "calibrate", "fit", *read]


@pytest.mark.parametrize(("name", "kind"), list(AIMS))
def test_held_out_errors_meet_their_aim(name, kind):
    model = load_profile(name).model(kind)
    median, p90 = AIMS[name, kind]

    assert isinstance(model, Model)
    assert (model.held_out.median <= median, model.held_out.p90 <= p90) == (True, True)


@pytest.mark.parametrize("name", FITTED)
def test_what_is_inside_the_range_is_not_extrapolated(name):
    own = {kind for kind, entry in raw(name)["models"].items() if kind in ("all_reduce", "all_gather")}
    labels = {load_profile(name).estimate(kind, {"bytes": 3e6, "gpus": 4}).labels()[0] for kind in own}

    assert labels == {"interpolated"}


@pytest.mark.parametrize("name", DERIVED)
def test_what_a_derived_profile_borrows_is_extrapolated_and_less_sure(name):
    profile = load_profile(name)
    base = load_profile(raw(name)["base"])
    features = {"bytes": 3e6, "gpus": 4}
    mine, theirs = profile.estimate("all_reduce", features), base.estimate("all_reduce", features)

    assert (mine.labels(), bool((mine.spread > theirs.spread).all())) == (["extrapolated"], True)


PRODUCT = {"m": 8192, "n": 4096, "k": 4096}
SEQUENCE = {"batch": 1, "seq": 8192, "heads": 32, "kv_heads": 8, "head_dim": 128, "causal": 1}
EXPERTS = {"tokens": 8192, "hidden": 4096, "inter": 1536, "topk": 8, "experts": 128, "tp": 1, "ep": 8}
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
STEP = {
    **{f"gemm.{dtype}{layout}": PRODUCT for dtype in ("bf16", "fp16") for layout in ("", ".dgrad", ".wgrad")},
    **{f"attention.{direction}": SEQUENCE for direction in ("forward", "backward")},
    **{f"memory.{kernel}": {"bytes": 1e8} for kernel in ("rms_norm", "swiglu", "adamw", "cross_entropy")},
    **{op: {"bytes": 1e8, "gpus": 4} for op in OPS},
    **{f"{op}.network": {"bytes": 1e8, "gpus": 32, "nodes": 4} for op in OPS},
    "grouped_gemm.bf16": {**EXPERTS, "skew": 0, "matrices": 3},
    "send_recv.network": {"bytes": 1e8},
    "host.launch": {"count": 1},
}


@pytest.mark.parametrize("kind", STEP)
@pytest.mark.parametrize("name", [*FITTED, *DERIVED])
def test_a_training_step_finds_every_class(name, kind):
    answer = load_profile(name).estimate(kind, STEP[kind])

    assert (0 < answer.seconds[0] < 1, 0 < answer.spread[0] < 5) == (True, True)


def test_the_table_in_the_docs_is_what_the_files_say():
    page = (Path(__file__).parents[2] / "docs/profiles.md").read_text()
    rows = []
    for name in ("h100-sxm", "h200-sxm", "a100-sxm", "b200-sxm", "gb200"):
        for kind, entry in raw(name)["models"].items():
            for library, model in entry["variants"].items():
                held, star = model["held_out"], "*" if library == entry["default"] else ""
                error = f"{100 * held['median']:.1f} / {100 * held['p90']:.1f}" if held["rows"] else "-"
                rows.append(f"| `{name}` | `{kind}` | {library}{star} | {model['fitted']['rows']} | {error} |")

    assert [row for row in rows if row not in page] == []
