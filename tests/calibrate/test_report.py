"""The page about a Profile: which sections and rows it has, for fitted, derived and generic ones."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runcast.calibrate.fitting.profile import Flags, fit_files
from runcast.calibrate.report import sections, write_report
from runcast.simulator.figures import Section
from runcast.simulator.figures.profile_lines import FAMILIES, bands_of, family, lines, models_of
from runcast.simulator.formats.samples import read_samples
from runcast.simulator.profile import Profile, load_profile
from runcast.simulator.profile.forms import known_classes, quantity

SIZES = 2.0 ** np.arange(12, 28)


def rows(kind: str, library: str, seconds: np.ndarray, **features: float) -> pd.DataFrame:
    head = {"cost_class": kind, "device": "H100 SXM", "library": library, "group": "g", "seconds": seconds}
    return pd.DataFrame({**head, "bytes": SIZES, **features})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`seen.csv`, a profile `mine.json` fitted to it, `other.csv`, and `sibling.json`, which rests on the profile."""
    at = tmp_path_factory.mktemp("report")
    noise = np.random.default_rng(1).choice([0.4, 2.5], len(SIZES))
    steady = [rows("all_reduce", "nccl", 1e-5 + SIZES / 3e11 * (n / 8), gpus=n) for n in (4.0, 8.0)]
    kernel = [rows("memory.add", lib, (4e-6 + SIZES / 2.5e12) * w) for lib, w in (("good", 1.0), ("noisy", noise))]
    pd.concat([*steady, *kernel]).to_csv(at / "seen.csv", index=False)
    steady[1].assign(seconds=2e-5 + SIZES / 3e11).to_csv(at / "other.csv", index=False)
    flags = Flags(at / "mine.json", "H100 SXM", None, None, ("good",), "generic", 0.0, "this test", None)
    fit_files([at / "seen.csv"], flags)
    sibling = {"schema": 2, "name": "sib", "base": "mine.json", "wider": 0.25, "devices": ["H200 SXM"]}
    (at / "sibling.json").write_text(json.dumps(sibling))
    return at


@pytest.fixture(scope="module")
def mine(folder: Path) -> Profile:
    return load_profile(str(folder / "mine.json"))


@pytest.fixture(scope="module")
def sibling(folder: Path) -> Profile:
    return load_profile(str(folder / "sibling.json"))


@pytest.fixture
def page(tmp_path: Path) -> Callable[..., str]:
    def written(profile: Profile, *tables: Path) -> str:
        write_report(profile, read_samples(tables) if tables else None, tmp_path / "page.html")
        return (tmp_path / "page.html").read_text()

    return written


def test_the_page_has_its_sections_and_needs_no_network(page: Callable[..., str], mine: Profile, folder: Path) -> None:
    text = page(mine, folder / "seen.csv")
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    outside = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="', text)
    assert (headings, outside) == (
        ["Origin", "Errors", "Residuals by size", "Predicted over size", "Measured against predicted",
         "Extrapolated and assumed"],
        [],
    )  # fmt: skip


def section(profile: Profile, heading: str) -> Section:
    (found,) = (part for part in sections(profile, None) if part.heading == heading)
    return found


def test_the_head_says_where_the_profile_comes_from(mine: Profile) -> None:
    told = dict(section(mine, "Origin").facts)
    assert told == {
        "Devices": "H100 SXM",
        "Date": mine.about["date"],
        "Source": "this test",
        "Refit with": mine.about["command"],
        "Rests on": "generic, for what the samples do not cover; its spreads stand as they are",
    }


def test_the_files_of_a_fit_are_listed(mine: Profile) -> None:
    (table,) = section(mine, "Origin").tables
    assert [tuple(row) for row in table.rows] == [("seen.csv", mine.about["samples"][0]["sha256"][:12], 64)]


def test_a_sibling_names_its_base_and_what_carrying_over_adds(sibling: Profile) -> None:
    told = dict(section(sibling, "Origin").facts)["Rests on"].split("; ")
    assert told == [
        "mine.json",
        "carrying over adds 25% to its spreads, in squares",
        "3 models are carried over from other devices",
    ]


def test_what_is_told_of_the_machine_stands_in_the_head() -> None:
    told = section(Profile("p", {}, about={"environment": {"driver": "550.1"}}), "Origin").facts
    assert told == [("Devices", "any"), ("driver", "550.1")]


def test_weak_models_are_marked(mine: Profile) -> None:
    table, _ = section(mine, "Errors").tables
    assert [(row[0], row[1], row[-1]) for row in table.rows] == [
        ("all_reduce", "nccl", ""),
        ("memory.add", "good", "default library"),
        ("memory.add", "noisy", "▲ weak: p90 above 25%"),
    ]


def test_bands_of_a_borrowed_model_state_the_wider_spread(mine: Profile, sibling: Profile) -> None:
    (own,), (lent,) = ([m for m, _ in models_of(p) if m.library == "good"] for p in (mine, sibling))
    stated = [band[-1] for band in bands_of(lent)]
    assert stated == [pytest.approx(np.hypot(band[-1], 0.25)) for band in bands_of(own)]


def test_lines_are_extrapolated_exactly_beyond_the_measured_sizes(mine: Profile) -> None:
    table = lines(mine)["Collectives in one node"].table
    beyond = (table["x"] < SIZES[0]) | (table["x"] > SIZES[-1])
    assert (list(dict.fromkeys(table["line"])), list(table["outside"])) == (["4 GPUs", "8 GPUs"], list(beyond))


def test_bus_bandwidth_is_that_of_the_measured_times(mine: Profile) -> None:
    table = lines(mine)["Collectives in one node"].table
    top = table[(table["line"] == "8 GPUs") & (table["x"] == SIZES[-1])]
    assert list(top["y"]) == [pytest.approx(SIZES[-1] * 2 * 7 / 8 / (1e-5 + SIZES[-1] / 3e11), rel=0.02)]


def test_all_that_a_sibling_borrows_is_extrapolated(sibling: Profile) -> None:
    drawn = lines(sibling)
    assert {name: bool(of.table["outside"].all()) for name, of in drawn.items()} == {
        "Collectives in one node": True,
        "Memory-bound kernels": True,
    }


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (["seen.csv"], "64 samples scored. All are in-sample"),
        (["other.csv"], "16 samples scored. None is in-sample"),
        (["seen.csv", "other.csv"], "80 samples scored. By sha256 of their files: 64 in-sample, 16 not fitted to"),
    ],
)
def test_the_page_says_whether_the_fit_has_seen_the_samples(
    mine: Profile, folder: Path, tables: list[str], said: str
) -> None:
    samples = read_samples([folder / name for name in tables])
    (text,) = (part.text for part in sections(mine, samples) if part.heading == "Measured against predicted")
    assert text[0][: len(said)] == said


def test_rows_are_seen_by_the_file_that_was_read_whatever_source_they_name(
    mine: Profile, folder: Path, tmp_path: Path
) -> None:
    pd.read_csv(folder / "seen.csv").assign(source="a paper, table 3").to_csv(tmp_path / "x.csv", index=False)
    (part,) = (p for p in sections(mine, read_samples([tmp_path / "x.csv"])) if p.heading.startswith("Measured"))
    assert [row[2] for row in part.tables[0].rows] == ["not fitted to"]


def test_samples_of_another_device_are_not_scored(sibling: Profile, folder: Path) -> None:
    (part,) = (p for p in sections(sibling, read_samples([folder / "seen.csv"])) if p.heading.startswith("Measured"))
    assert part.text == ["No row of the given samples can be predicted by this profile."]


def test_a_point_says_what_was_measured(mine: Profile, folder: Path) -> None:
    (part,) = (p for p in sections(mine, read_samples([folder / "other.csv"])) if p.heading.startswith("Measured"))
    (figure,) = part.figures.values()
    assert re.sub(r"predicted .*? \(.*?\)", "predicted", figure.data[0].hovertext[0]) == (
        "all_reduce: bytes 4 KiB, gpus 8<br>measured 20 us, predicted, interpolated"
    )


def test_a_profile_without_models_has_its_assumptions_alone(page: Callable[..., str]) -> None:
    text = page(load_profile("generic"))
    assert (re.findall(r"<h2>(.*?)</h2>", text), text.count("Plotly.newPlot(")) == (
        ["Origin", "Errors", "Extrapolated and assumed"],
        0,
    )


def test_stated_classes_say_what_they_are_taken_as() -> None:
    table, _ = section(load_profile("generic"), "Extrapolated and assumed").tables
    taken = {row[0]: row[1] for row in table.rows}
    per_item = taken["host.launch"].endswith(" per item")
    assert (taken["all_gather.network"], per_item) == ("1 × all_reduce.network", True)


def test_parameters_come_with_the_least_sure_first() -> None:
    profile = load_profile("generic")
    _, table = section(profile, "Extrapolated and assumed").tables
    kinds = list(dict.fromkeys(row[0] for row in table.rows))
    order = ["assumed", "extrapolated", "datasheet", "fitted", "interpolated", "measured", "exact"]
    assert (len(table.rows), kinds) == (len(profile.parameters), sorted(kinds, key=order.index))


@pytest.mark.parametrize(
    ("axis", "value", "text"),
    [("bytes", 2.0**20, "1 MiB"), ("flop", 2.5e12, "2.5 TFLOP"), ("network_bytes_per_s", 4e11, "400 GB/s"),
     ("seq", 16384.0, "16,384"), ("tokens", 1048576.0, "1,048,576")],
)  # fmt: skip
def test_values_of_axes_are_readable(axis: str, value: float, text: str) -> None:
    said = quantity(axis, value)
    assert said == text


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("all_reduce", "Collectives in one node"),
        ("broadcast.network", "Collectives over nodes"),
        ("send_recv.network", "Copies and point to point"),
        ("gemm.fp8.wgrad", "Matrix products"),
        ("compress.top_k_encode", "Compression of gradients"),
        ("host.launch", "Host"),
    ],
)
def test_a_class_has_its_family(kind: str, name: str) -> None:
    found = family(kind)
    assert (found, found in FAMILIES) == (name, True)


@pytest.mark.parametrize("kind", known_classes())
def test_every_class_has_a_family(kind: str) -> None:
    assert family(kind) in FAMILIES
