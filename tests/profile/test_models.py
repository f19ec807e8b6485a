"""Fitted models in a profile: written and read back, what a file may not say, and what an answer is worth where."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from runcast.simulator import UserError
from runcast.simulator.hardware import Limits, device
from runcast.simulator.profile import (
    Band,
    Errors,
    Model,
    Profile,
    Ratio,
    Stated,
    check_devices,
    errors_of,
    load_profile,
    write_limits,
    write_models,
)
from runcast.simulator.profile.forms import Curve

H = Limits({"bf16": 1e15, "fp16": 1e15}, 3e12, 100, 50e6, 400e9, 60e9, 50e9, 8)
TWICE = Limits({"bf16": 2e15, "fp16": 2e15}, 6e12, 100, 50e6, 800e9, 60e9, 100e9, 8)
"""The next generation: everything twice as fast."""

GOOD = Errors(40, 0.02, 0.05, 0.001)
SIZES = 2.0 ** np.arange(10, 31, 2)


def model(kind="send_recv", library="nccl", **change):
    coefficients = {
        "send_recv": {"a_s": 1e-5, "e": 0.8},
        "all_gather": {"a_s": 1e-5, "h_s": 1e-6, "c_s": 1e-6, "g": 0.5, "e": 0.8},
    }[kind]
    axes = {"bytes": (2.0**10, 2.0**30), "link_bytes_per_s": (400e9, 400e9)}
    growth = {"bytes": 0.15, "link_bytes_per_s": 0.1}
    if kind == "all_gather":
        axes, growth = {**axes, "gpus": (2.0, 8.0)}, {**growth, "gpus": 0.2}
        change = {"curves": {8.0: Curve(SIZES, 2e-5 + SIZES / 3e11)}} | change
    bands = tuple(Band(**vars(GOOD), size=size, spread=spread) for size, spread in ((0.0, 0.05), (2.0**20, 0.02)))
    known = {"range": axes, "growth": growth, "fitted": GOOD, "held_out": GOOD, "groups": 2, "bands": bands}
    return Model(kind, library, coefficients, **{**known, "limits": H, "source": "this test", **change})


def content(models=None, **change):
    """What a profile file says."""
    models = models or {"send_recv": {"nccl": model()}}
    return {"schema": 2, "limits": write_limits(H, "this test"), "models": write_models(models)} | change


GONE = object()


def put(tree, path, value):
    """A copy of a tree with another value at a path of keys, or without that key."""
    key, *below = path
    changed = list(tree) if isinstance(tree, list) else dict(tree)
    changed[key] = put(tree[key], below, value) if below else value
    if value is GONE and not below:
        del changed[key]
    return changed


@pytest.fixture
def load(tmp_path):
    def loaded(said, name="mine.json"):
        (tmp_path / name).write_text(json.dumps(said))
        return load_profile(str(tmp_path / name))

    return loaded


def faults(read, *arguments, **named):
    with pytest.raises(UserError) as caught:
        read(*arguments, **named)
    return caught.value.faults


# ---- a file and back


@pytest.mark.parametrize("kind", ["send_recv", "all_gather"])
def test_a_model_is_written_and_read_back(kind, load):
    written = content({kind: {"nccl": model(kind), "other": model(kind, "other", source="elsewhere")}})
    read = load(written).models
    assert write_models(read) == written["models"]


def test_what_is_read_predicts_as_what_was_written(load):
    features = {"bytes": [1, 5000, 2.0**22, 2.0**33], "gpus": [2, 4, 8, 16]}
    read = load(content({"all_gather": {"nccl": model("all_gather")}})).estimate("all_gather", features)
    made = model("all_gather").estimate(features)
    assert read.seconds == pytest.approx(made.seconds, rel=1e-5)
    assert (read.spread.tolist(), read.labels()) == (made.spread.tolist(), made.labels())


def test_ratios_and_stated_seconds_are_written_and_read_back(load):
    known = {"send_recv": {"nccl": model()}, "copy.p2p": {"any": Ratio("send_recv", 1.5, 0.2, "a guess")}}
    written = content(known | {"host.launch": {"any": Stated(4e-6, 0.3, "a guess")}})
    assert write_models(load(written).models) == written["models"]


def test_the_default_library_comes_first(load):
    said = content({"send_recv": {"a": model(library="a"), "b": model(library="b")}})
    said["models"]["send_recv"]["default"] = "b"
    assert load(said).model("send_recv").library == "b"


def test_models_are_laid_over_those_of_the_base(load):
    load(content({"send_recv": {"nccl": model()}, "all_gather": {"nccl": model("all_gather")}}), "base.json")
    mine = load({"schema": 2, "base": "base.json"} | content({"send_recv": {"mine": model(library="mine")}}))
    assert {kind: list(variants) for kind, variants in mine.models.items()} == {
        "send_recv": ["mine"],
        "all_gather": ["nccl"],
    }


# ---- what a file may not say

SEND = ("models", "send_recv", "variants", "nccl")
GATHER = ("models", "all_gather", "variants", "nccl")
CURVE = (*GATHER, "curves", "8")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((*SEND, "coefficients", "e"), math.nan, "coefficients.e = nan: expected a number"),
        (
            (*SEND, "coefficients", "e"),
            1.26,
            "coefficients.e = 1.26: expected 0.02 to 1.25",
        ),
        ((*SEND, "coefficients", "a_s"), 0, "coefficients.a_s = 0.0: expected 1e-08 to 0.01"),
        ((*SEND, "coefficients", "a_s"), GONE, "coefficients.a_s: is missing"),
        ((*SEND, "coefficients", "b"), 1, "coefficients.b: unknown key; known: a_s, e"),
        (
            (*SEND, "form"),
            "lynk",
            "form = 'lynk': expected 'link', the form of this version of runcast; fit the profile",
        ),
        ((*SEND, "range", "bytes"), [2, 1], "range.bytes = [2.0, 1.0]: expected the smaller number first"),
        ((*SEND, "range", "bytes"), [1], "range.bytes.1: is missing"),
        ((*SEND, "range", "bytes"), [1, math.nan], "range.bytes.1 = nan: expected a number"),
        ((*SEND, "range", "bytes"), GONE, "range.bytes: is missing"),
        ((*SEND, "growth", "bytes"), GONE, "growth.bytes: is missing"),
        ((*SEND, "growth", "bytes"), 6, "growth.bytes = 6: expected at most 5"),
        ((*SEND, "held_out", "median"), -0.1, "held_out.median = -0.1: expected at least 0"),
        ((*SEND, "held_out", "rows"), 1.5, "held_out.rows = 1.5: expected a whole number"),
        ((*SEND, "fitted", "p90"), math.nan, "fitted.p90 = nan: expected a number"),
        ((*SEND, "groups"), -1, "groups = -1: expected at least 0"),
        ((*SEND, "bands"), [], "bands = []: expected at least 1"),
        ((*SEND, "bands"), GONE, "bands: is missing"),
        ((*SEND, "bands", 1), 3, "bands.1 = 3: expected a table"),
        ((*SEND, "bands", 1, "spread"), 5.1, "bands.1.spread = 5.1: expected at most 5"),
        ((*SEND, "bands", 1, "size"), GONE, "bands.1.size: is missing"),
        ((*SEND, "source"), 3, "source = 3: expected text"),
        (SEND, [], "models.send_recv.variants.nccl = []: expected a table"),
        (SEND, {"like": "all_gather", "spread": 0, "source": "s"}, "factor: is missing"),
        (SEND, {"seconds": 1, "spread": 0.1, "source": "s"}, "may be stated of calls that are counted only"),
        (SEND, {"like": "send_recv", "factor": 1, "spread": 0, "source": "s"}, "expected another cost class"),
        (("models", "send_recv"), 1, "models.send_recv = 1: expected a table"),
        (("models", "send_recv", "default"), "ncll", "send_recv.default = 'ncll': expected one of nccl"),
        (("models", "send_recv", "variants"), {}, "send_recv.default = 'nccl': expected one of none"),
        ((*CURVE, "seconds", 3), 1e-9, "expected at least two rising numbers greater than zero"),
        ((*CURVE, "seconds", 3), math.nan, "expected at least two rising numbers"),
        ((*CURVE, "seconds", 3), "1", "expected at least two rising numbers"),
        ((*CURVE, "seconds", 3), True, "expected at least two rising numbers"),
        ((*CURVE, "bytes", 0), 0, "expected at least two rising numbers greater than zero"),
        ((*CURVE, "bytes", 1), 2.0**10, "expected at least two rising numbers"),
        ((*CURVE, "bytes"), [1.0, 2.0], "curves.8: 2 sizes but 11 times"),
        (CURVE, [], "curves.8 = []: expected a table"),
        ((*GATHER, "curves"), {"1": {"bytes": [1, 2], "seconds": [1, 2]}}, "curves.1 = '1': expected at least 2"),
        (
            (*GATHER, "curves"),
            {"8.5": {"bytes": [1, 2], "seconds": [1, 2]}},
            "curves.8.5 = '8.5': expected a whole number",
        ),
        (("limits",), GONE, "limits: missing; models need the data-sheet numbers of the device that was measured"),
        (("limits",), 3, "limits = 3: expected a table"),
        (("limits", "sms"), GONE, "limits.sms: is missing"),
        (("limits", "memory_bytes_per_s"), 0, "limits.memory_bytes_per_s = 0: expected at least 1"),
        (("limits", "flop_per_s", "bf16"), math.nan, "limits.flop_per_s.bf16 = nan: expected a number"),
        (("models",), [], "models = []: expected a table"),
    ],
)
def test_a_mistake_in_a_model_is_one_line(path, value, message, load, tmp_path):
    good = content({"send_recv": {"nccl": model()}, "all_gather": {"nccl": model("all_gather")}})
    (line,) = faults(load, put(good, path, value))
    assert line.startswith(f"{tmp_path}/mine.json: ")
    assert message in line


@pytest.mark.parametrize(
    ("kind", "hint"),
    [("all_redcue", "did you mean all_reduce"), ("gemm.bf61", "did you mean gemm.bf16"), ("xyz", "known: all_reduce,")],
)
def test_an_unknown_class_is_one_line_with_those_that_are_near(kind, hint, load):
    (line,) = faults(load, content() | {"models": {kind: {"default": "a", "variants": {}}}})
    assert f"models.{kind}: unknown cost class; {hint}" in line


# ---- asking a profile


def profile(**models):
    return Profile("mine", {}, {kind: {"nccl": entry} for kind, entry in models.items()}, ("H100 SXM",), H)


def test_a_missing_class_is_one_line():
    assert faults(profile(send_recv=model()).estimate, "send_rec", {}) == (
        "profile mine: send_rec: is missing; did you mean send_recv?",
    )


def test_a_class_that_nobody_measured_is_not_taken_for_another_name():
    assert faults(profile(**{"gemm.fp16": model()}).model, "gemm.bf16") == (
        "profile mine: gemm.bf16: is missing; "
        "expected a base that has it, such as the shipped profile of the device, or samples of it",
    )


def test_a_profile_without_models_says_so():
    assert faults(profile().model, "send_recv") == ("profile mine: send_recv: is missing; it has no models",)


def test_a_library_that_is_not_there_is_one_line_with_those_that_are():
    two = Profile("mine", {}, {"send_recv": {"a": model(), "b": model()}}, limits=H)
    (line,) = faults(two.estimate, "send_recv", {"bytes": 1}, library="c")
    assert line == "profile mine: send_recv: library = 'c': expected one of a, b"


def test_another_device_is_refused():
    assert faults(check_devices, profile(), [device("h100-sxm"), device("gh200-96")], "s.toml") == (
        "s.toml: profile = 'mine': is made for H100 SXM, not for GH200 96GB, whose profile is generic",
    )


def test_a_refusal_names_the_device_and_what_it_is_like():
    assert faults(check_devices, profile(), [device("a100-pcie-80")], "s.toml") == (
        "s.toml: profile = 'mine': is made for H100 SXM, not for A100 PCIe 80GB or what it is like (A100 SXM 80GB), "
        "whose profile is a100-sxm",
    )


def test_a_profile_for_any_device_is_never_refused():
    check_devices(Profile("generic", {}), [device("h100-sxm"), device("b200")], "s.toml")


# ---- what an answer is worth


def test_within_its_range_a_model_is_fitted_and_a_curve_interpolated():
    formula = model().estimate({"bytes": 2.0**15})
    curve = model("all_gather").estimate({"bytes": 2.0**15, "gpus": [4, 8]})
    assert (formula.labels(), curve.labels()) == (["fitted"], ["fitted", "interpolated"])


def test_each_band_of_sizes_has_its_spread():
    assert model().estimate({"bytes": [2.0**10, 2.0**20 - 1, 2.0**20, 2.0**30]}).spread.tolist() == [
        0.05,
        0.05,
        0.02,
        0.02,
    ]


def test_beyond_the_largest_size_the_spread_grows_with_every_doubling():
    asked = model().estimate({"bytes": 2.0**30 * np.array([1, 2, 4, 8])})
    assert asked.labels() == ["fitted", *["extrapolated"] * 3]
    assert asked.spread == pytest.approx([0.02, 0.17, 0.32, 0.47])


def test_below_the_smallest_size_too():
    asked = model().estimate({"bytes": 2.0**10 / np.array([1, 2, 4])})
    assert asked.spread == pytest.approx([0.05, 0.2, 0.35])


def test_a_rounding_error_is_not_beyond():
    assert model().estimate({"bytes": 2.0**30 * (1 + 1e-9)}).labels() == ["fitted"]


def test_axes_beyond_the_range_add_up():
    asked = model("all_gather").estimate({"bytes": 2.0**31, "gpus": 16})
    assert (asked.labels(), asked.spread[0]) == (["extrapolated"], pytest.approx(0.02 + 0.15 + 0.2))


def test_generations_do_not_transfer():
    here, there = (model().estimate({"bytes": 2.0**25}, limits) for limits in (H, TWICE))
    assert (here.labels(), there.labels()) == (["fitted"], ["extrapolated"])
    assert there.spread[0] == pytest.approx(here.spread[0] + 0.1)


def test_with_other_limits_the_formula_scales_its_efficiencies():
    there = model().estimate({"bytes": 8e8}, TWICE)
    assert there.seconds[0] == pytest.approx(1e-5 + 8e8 / (0.8 * 800e9))


def test_a_curve_is_carried_to_other_limits_as_a_ratio_to_its_formula():
    bare, drawn = model("all_gather", curves={}), model("all_gather")
    x = {"bytes": 2.0**26, "gpus": 8}
    ratio = drawn.estimate(x).seconds / bare.estimate(x).seconds
    assert drawn.estimate(x, TWICE).seconds == pytest.approx(bare.estimate(x, TWICE).seconds * ratio)


def test_a_curve_says_the_seconds_of_its_number_of_gpus():
    assert model("all_gather").estimate({"bytes": SIZES, "gpus": 8}).seconds == pytest.approx(2e-5 + SIZES / 3e11)


def drawn(**factors):
    """A model with a curve per number of GPUs (`of_8`), so many times its formula at each size."""
    bare = model("all_gather", curves={})
    curves = {}
    for name, factor in factors.items():
        gpus = float(name.removeprefix("of_"))
        curves[gpus] = Curve(SIZES, factor * bare.estimate({"bytes": SIZES, "gpus": gpus}).seconds)
    return bare, model("all_gather", curves=curves)


@pytest.mark.parametrize(("gpus", "factor"), [(2, 1), (4, 2**0.5), (8, 2), (16, 2)])
def test_between_two_curves_their_ratios_to_the_formula_are_mixed(gpus, factor):
    bare, both = drawn(of_2=1.0, of_8=2.0)
    x = {"bytes": 2.0**28, "gpus": gpus}
    assert both.estimate(x).seconds / bare.estimate(x).seconds == pytest.approx(factor, rel=0.01)


def test_a_curve_is_carried_over_at_equal_bytes_through_the_busiest_link():
    bare, bent = drawn(of_8=np.where(SIZES > 2**20, 2.0, 1.0))
    x = {"bytes": 2.0**20 * (7 / 8) / (1 / 2), "gpus": 2}  # as many as 2^20 bytes of eight
    assert bent.estimate(x).seconds == pytest.approx(bare.estimate(x).seconds)


def test_wider_adds_in_squares_and_marks_everything_extrapolated():
    lent = model().carry_over(0.3).carry_over(0.4).estimate({"bytes": [2.0**25, 2.0**31]})
    assert lent.labels() == ["extrapolated", "extrapolated"]
    assert lent.spread == pytest.approx([math.hypot(0.02, 0.5), math.hypot(0.17, 0.5)])


def test_a_profile_that_rests_on_a_wider_base_borrows_its_models(load):
    load(content() | {"name": "base"}, "base.json")
    lent = load({"schema": 2, "base": "base.json", "wider": 0.3})
    asked = lent.estimate("send_recv", {"bytes": 2.0**25})
    assert (asked.labels(), asked.spread[0]) == (["extrapolated"], pytest.approx(math.hypot(0.02, 0.3)))


def test_a_borrowed_profile_answers_for_its_own_limits(load):
    load(content(), "base.json")
    lent = load({"schema": 2, "base": "base.json", "wider": 0.3, "limits": write_limits(TWICE, "this test")})
    asked = lent.estimate("send_recv", {"bytes": 8e8})
    assert (asked.seconds[0], asked.spread[0]) == (
        pytest.approx(1e-5 + 8e8 / (0.8 * 800e9)),
        pytest.approx(math.hypot(0.02 + 0.1, 0.3)),
    )


def test_a_base_that_is_no_wider_lends_its_models_as_they_are(load):
    load(content(), "base.json")
    assert load({"schema": 2, "base": "base.json"}).estimate("send_recv", {"bytes": 2.0**25}).labels() == ["fitted"]


def test_a_ratio_scales_another_class_and_is_assumed():
    known = profile(**{"send_recv": model(), "copy.p2p": Ratio("send_recv", 1.5, 0.3, "a guess")})
    like, scaled = (known.estimate(kind, {"bytes": 2.0**25}) for kind in ("send_recv", "copy.p2p"))
    assert scaled.seconds == pytest.approx(1.5 * like.seconds)
    assert (scaled.labels(), scaled.spread[0]) == (["assumed"], pytest.approx(math.hypot(0.02, 0.3)))


def test_stated_seconds_are_per_item_and_assumed():
    asked = profile(**{"host.launch": Stated(4e-6, 0.3, "a guess")}).estimate("host.launch", {"count": [1, 10]})
    assert asked.seconds == pytest.approx([4e-6, 4e-5])
    assert (asked.labels(), asked.spread.tolist()) == (["assumed", "assumed"], [0.3, 0.3])


def test_a_missing_feature_is_named():
    with pytest.raises(UserError, match="gpus: missing"):
        model("all_gather").estimate({"bytes": 1})


def test_a_hash_depends_on_what_predictions_depend_on():
    said = [profile(send_recv=m).to_json() for m in (model(), model(source="elsewhere"), model(growth={"bytes": 1.0}))]
    assert (said[0] == said[1], said[0] == said[2]) == (True, False)


def test_errors_of_hand_made_ratios():
    errors = errors_of(np.log([1.1, 0.9, 1.2, 1.0]))
    assert (errors.rows, errors.median, errors.bias) == (4, pytest.approx(0.1), pytest.approx(0.05))


def test_errors_of_nothing_are_zero():
    assert errors_of(np.array([])) == Errors(0, 0.0, 0.0, 0.0)


def test_a_curve_measured_at_small_sizes_never_promises_more_than_the_link():
    flat = model("all_gather", curves={8.0: Curve(np.array([1e3, 6.4e4]), np.array([2e-5, 2e-5]))})
    size, link = 2.0**30, H.link_bytes_per_s
    answer = flat.estimate({"bytes": size, "gpus": 8})

    assert answer.seconds[0] >= size * 7 / 8 / (1.1 * link)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_kernels_on_another_chip_are_extrapolated_and_less_sure(factor):
    profile = load_profile("h100-sxm")
    other = replace(profile.limits, memory_bytes_per_s=factor * profile.limits.memory_bytes_per_s)
    kinds = {"gemm.bf16": {"m": 4096, "n": 4096, "k": 4096}, "memory.swiglu": {"bytes": 1e8}}
    here = [profile.estimate(kind, x) for kind, x in kinds.items()]
    there = [profile.estimate(kind, x, limits=other) for kind, x in kinds.items()]

    assert [a.labels() for a in there] == [["extrapolated"], ["extrapolated"]]
    assert [float(b.spread[0]) for b in there] == pytest.approx([math.hypot(a.spread[0], 0.1) for a in here])
