"""The page of profiles: what it shows of shipped ones and of a user's own, what it refuses, its address."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect
from runcast.dashboard.library import DEVICE, SOFTWARE, Library
from runcast.dashboard.pages import calibration
from runcast.dashboard.pages.calibration import Shown, class_of, classes, draw_device, draw_software
from runcast.dashboard.question import choices_of
from runcast.simulator.base.errors import UserError
from runcast.simulator.figures.profile import factor_dots
from runcast.simulator.profile import Z90, Parameter, load_profile, load_stack
from runcast.simulator.profile.parameters import PROVENANCE

SIZES = 2.0 ** np.arange(12, 28)


@pytest.fixture
def measured(tmp_path):
    """A user's profile `<b>mine.json`, a stack, samples of additions on H100, and files that are none of these."""
    named = {"schema": 2, "name": "<b>mine", "base": "h100-sxm", "devices": ["H100 SXM"]}
    (tmp_path / "<b>mine.json").write_text(json.dumps(named))
    (tmp_path / "own.toml").write_text('schema = 2\nname = "own"\nbase = "generic"\n')
    (tmp_path / "scenario.toml").write_text('kind = "train_step"\n')
    (tmp_path / "report.csv").write_text("point,status\n1,ok\n")
    head = {"cost_class": "memory.swiglu", "device": "H100 SXM", "library": "<i>torch", "group": "g"}
    pd.DataFrame({**head, "bytes": SIZES, "seconds": 4e-6 + SIZES / 2.5e12}).to_csv(tmp_path / "s.csv", index=False)
    return Library(tmp_path)


def plain(part) -> object:
    return part.tolist() if isinstance(part, np.ndarray) else part.to_plotly_json()


def text_of(found) -> str:
    """Everything that is shown, as the browser gets it."""
    return json.dumps([part.to_plotly_json() for part in found], default=plain, ensure_ascii=False)


def test_files_of_the_folder_go_by_their_full_names_before_shipped_ones(measured):
    firsts = measured.profiles(DEVICE)[:2], measured.profiles(SOFTWARE)[:2]
    assert firsts == (["<b>mine.json", "a100-sxm"], ["own.toml", "checkpoint-engine-7185b55"])


@pytest.mark.parametrize("name", ["../h100-sxm", "/etc/passwd", "scenario.toml", "own.toml", ""])
def test_only_what_is_listed_is_opened(measured, name):
    with pytest.raises(UserError, match="profile = "):
        measured.profile(DEVICE, name)


def test_a_file_of_the_folder_rests_on_what_it_names(measured):
    mine = measured.profile(DEVICE, "<b>mine.json")
    assert (mine.name, mine.value("link_fraction.nvlink")) == (
        "<b>mine",
        load_profile("h100-sxm").value("link_fraction.nvlink"),
    )


def test_tables_that_hold_no_samples_are_passed_over(measured):
    found = measured.samples()
    assert (found is not None and len(found), Library(None).samples()) == (len(SIZES), None)


@pytest.mark.parametrize(
    "asked", [Shown(), Shown(name="b200-sxm", cost_class="all_reduce"), Shown(SOFTWARE, "nemo"), Shown(name="a&b=<c>")]
)
def test_an_address_says_what_is_shown(asked):
    assert Shown.read(choices_of(asked.query())) == asked


def test_every_class_of_a_profile_can_be_chosen():
    profile = load_profile("h100-sxm")
    chosen = [kind for kinds in classes(profile).values() for kind in kinds]
    assert sorted(chosen) == sorted(profile.models)


@pytest.mark.parametrize(
    ("asked", "found"), [("all_reduce", "all_reduce"), ("nonsense", "gemm.bf16"), ("", "gemm.bf16")]
)
def test_a_class_that_is_not_there_is_another_one(asked, found):
    assert class_of(load_profile("h100-sxm"), asked) == found


@pytest.mark.parametrize("name", ["h100-sxm", "generic", "h800"])
def test_every_class_of_a_profile_is_drawn(name):
    profile = load_profile(name)
    some = sorted(profile.models)[::6]
    assert [bool(draw_device(profile, kind, Library(None))) for kind in some] == [True] * len(some)


def test_the_error_of_rows_left_out_stands_on_top():
    profile = load_profile("h100-sxm")
    held = profile.model("gemm.bf16").held_out
    first = draw_device(profile, "gemm.bf16", Library(None))[:1]
    words = f'"{held.median:.1%}"', f"{held.rows:,}\u00a0rows left out"
    assert [word in text_of(first) for word in words] == [True, True]


def test_a_class_that_nobody_measured_says_what_is_taken(measured):
    profile = load_profile("generic")
    said = text_of(draw_device(profile, "gemm.fp16", measured))
    assert f"{profile.model('gemm.fp16').factor:g} times the seconds of" in said


def test_samples_of_the_folder_stand_beside_the_fit_as_text(measured):
    found = text_of(draw_device(load_profile("h100-sxm"), "memory.swiglu", measured))
    assert ("&lt;i&gt;torch, not fitted to" in found, "holds no samples" in found) == (True, False)


def test_without_samples_the_page_says_so():
    assert "holds no samples" in text_of(draw_device(load_profile("h100-sxm"), "memory.swiglu", Library(None)))


def test_a_stack_says_what_it_rests_on_and_how_many_were_fitted():
    stack = load_stack("nemo")
    fitted = sum(p.provenance == "fitted" for p in stack.parameters.values())
    said = text_of(draw_software(stack)[:1])
    assert ("megatron-core → generic" in said, f'"{fitted:,}"' in said) == (True, True)


def test_a_factor_has_an_interval_of_ninety_percent():
    (trace,) = factor_dots({"time_factor.gemm": Parameter(2.0, 0.1, "fitted", "x")}).data
    low, high = trace.customdata[0]
    assert (low, high) == (pytest.approx(2 / np.exp(0.1 * Z90)), pytest.approx(2 * np.exp(0.1 * Z90)))


def test_the_page_shows_what_the_profile_says(page):
    held = load_profile("b200-sxm").model("all_reduce").held_out
    page.goto("/calibration?profile=b200-sxm&class=all_reduce")

    expect(page.locator(".numbers dd").first).to_have_text(f"{held.median:.1%}{held.rows:,} rows left out")


def test_another_class_stands_in_the_address_and_comes_back_from_it(page):
    page.goto("/calibration")
    chosen = page.get_by_label("Cost class", exact=True).first
    expect(chosen).to_have_value("gemm.bf16")
    chosen.fill("all_gather")
    page.get_by_role("option", name="all_gather", exact=True).click()
    page.wait_for_url(re.compile(r"profile=h100-sxm&class=all_gather$"))
    page.reload()

    expect(page.get_by_role("heading", name="all_gather: predicted over size")).to_be_visible()
    expect(chosen).to_have_value("all_gather")


def test_a_profile_that_is_not_there_is_told(page):
    page.goto("/calibration?profile=%3Cb%3Enope")

    expect(page.get_by_role("alert")).to_contain_text("'<b>nope': unknown")


def test_parameters_are_taken_along_as_csv(page):
    page.goto("/calibration?stack=nemo")
    page.wait_for_selector("text=barrier.s")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Parameters, the least sure first as CSV").click()
    table = pd.read_csv(saved.value.path())

    assert (saved.value.suggested_filename, len(table)) == (
        f"{calibration.PARAMETERS}.csv",
        len(load_stack("nemo").parameters),
    )


@pytest.mark.parametrize("name", ["h100-sxm", "b200-sxm"])
def test_parameters_begin_with_the_least_sure(name):
    profile = load_profile(name)

    said = text_of(draw_device(profile, "", Library(None)))

    names = re.findall(r'"name": "([^"]+)", "value"', said)
    said = [profile.parameters[name] for name in names]
    sure = [(-PROVENANCE.index(one.provenance), -(one.spread or 0.0)) for one in said]
    assert (set(names), sure) == (set(profile.parameters), sorted(sure))
