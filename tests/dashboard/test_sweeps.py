"""The page of sweeps: figures of tables by hand, what a browser may name and send, a point as a question, the page."""

import re
from base64 import b64encode
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import TimeoutError, expect
from runcast.dashboard.app import make_app
from runcast.dashboard.figures.sweep import INK, SCALE, best_cells, front, heat, parallel, scatter
from runcast.dashboard.library import Library
from runcast.dashboard.page import Here
from runcast.dashboard.pages.sweeps import choices_for, read_upload
from runcast.dashboard.question import parse_query
from runcast.dashboard.sweeps import points as sweep_points
from runcast.dashboard.sweeps import run as sweep_run
from runcast.dashboard.sweeps.folders import SweepFolders
from runcast.dashboard.sweeps.points import MOST_REPORT_BYTES
from runcast.dashboard.sweeps.run import SweepRequest
from runcast.simulator.answers.sweep import load_sweep, run_sweep
from runcast.simulator.base.errors import UserError
from runcast.simulator.runner import InProcess
from runcast.simulator.scenario import check_question, resolve

ROOT = Path(__file__).parents[2]
MARKUP = "<b onclick=alert(1)>bold</b>"


def frame(x, y, status=None, axis=None):
    size = len(x)
    return pd.DataFrame(
        {
            "point": range(size),
            "tp": axis or [1] * size,
            "status": status or ["ok"] * size,
            "reason": [""] * size,
            "scenario_hash": ["h"] * size,
            "cost_usd": x,
            "step_time_s": y,
            "tokens_per_s": [1 / value for value in y],
        }
    )


def test_the_front_is_what_nothing_beats_in_both():
    points = frame([1.0, 2.0, 3.0, 2.0, 4.0], [9.0, 5.0, 6.0, 5.0, 1.0])

    assert front(points, "cost_usd", "step_time_s")["point"].tolist() == [0, 1, 3, 4]


def test_the_front_knows_that_more_throughput_is_better():
    points = frame([1.0, 2.0, 3.0], [4.0, 2.0, 3.0])

    assert front(points, "cost_usd", "tokens_per_s")["point"].tolist() == [0, 1]


def test_what_cannot_be_run_is_on_no_front():
    points = frame([1.0, 2.0], [1.0, 2.0], status=["memory", "ok"])

    assert front(points, "cost_usd", "step_time_s")["point"].tolist() == [1]


@pytest.mark.parametrize(("shown", "drawn"), [(True, {0, 1, 2}), (False, {1, 2})])
def test_points_that_cannot_be_run_are_marked_or_left_out(shown, drawn):
    points = frame([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], status=["memory", "ok", "ok"])
    figure = scatter(points, "cost_usd", "step_time_s", "tp", shown)

    assert {point for trace in figure.data for point in trace.customdata or ()} == drawn


def test_a_refused_point_without_values_is_not_drawn():
    points = frame([1.0, float("nan")], [1.0, float("nan")], status=["ok", "infeasible"])
    figure = scatter(points, "cost_usd", "step_time_s", "tp")

    assert [list(trace.customdata) for trace in figure.data if trace.customdata is not None] == [[0]]


def test_a_cell_holds_the_best_of_its_points():
    points = frame([1.0, 2.0, 3.0, 4.0], [5.0, 3.0, 4.0, 1.0], ["ok", "ok", "ok", "memory"], [1, 1, 2, 2])
    found = best_cells(points.assign(pp=1), "tp", "pp", "step_time_s")

    assert sorted(found.itertuples(index=False, name=None)) == [(1, 1, 1, 3.0, 2), (2, 1, 2, 4.0, 1)]


def test_a_heat_map_is_blank_where_nothing_can_be_run():
    points = frame([1.0, 2.0, 3.0, 4.0], [5.0, 3.0, 4.0, 1.0], ["ok", "ok", "ok", "memory"], [1, 2, 1, 2])
    figure = heat(points.assign(pp=[1, 1, 2, 2]), "tp", "pp", "step_time_s")

    assert [list(line) for line in figure.data[0].z] == [[5.0, 3.0], [4.0, None]]


@pytest.mark.parametrize(("value", "told"), [(1.0, True), (123456.7, False)])
def test_cells_say_their_values_where_these_have_room(value, told):
    points = frame([value] * 8, [1.0] * 8, axis=list(range(8)))
    (drawn,) = heat(points, "tp", "status", "cost_usd").data

    assert (drawn.text is not None) == told


def test_text_on_cells_can_be_read_on_every_colour():
    ends = [rgb(colour) for _, colour in SCALE]
    between = [
        [a + (b - a) * part / 20 for a, b in zip(*pair, strict=True)] for pair in pairwise(ends) for part in range(21)
    ]

    assert min(contrast(colour, rgb(INK)) for colour in between) >= 4.5


def rgb(colour):
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def contrast(one, other):
    """Of two colours, as WCAG 2.1 counts it."""
    dark, light = sorted(sum(w * linear(c / 255) for w, c in zip(WEIGHTS, rgb, strict=True)) for rgb in (one, other))
    return (light + 0.05) / (dark + 0.05)


def linear(channel):
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


WEIGHTS = (0.2126, 0.7152, 0.0722)


def test_names_of_the_first_parallel_axis_have_room():
    points = frame([1.0, 2.0], [5.0, 3.0], axis=["half of activations on the host", "a"])
    figure = parallel(points, ["tp", "cost_usd"], "cost_usd")

    assert figure.layout.margin.l > 200


def test_values_whose_texts_are_the_same_have_cells_of_their_own():
    points = frame([1.0, 2.0], [5.0, 3.0], axis=[1.0000001, 1.0000002])
    (drawn,) = (figure := heat(points, "tp", "status", "step_time_s")).data

    assert (drawn.x, [list(line) for line in drawn.z], len(set(figure.layout.xaxis.ticktext))) == (
        None, [[5.0, 3.0]], 1,
    )  # fmt: skip


def test_quotes_in_figures_are_shown_as_they_are():
    points = frame([1.0, 2.0], [5.0, 3.0], axis=['say "a"', "it's"])
    drawn = [scatter(points, "tp", "step_time_s", "tp"), heat(points, "tp", "status", "step_time_s")]

    assert [("&quot;" in figure.to_json(), "&#x27;" in figure.to_json()) for figure in drawn] == [(False, False)] * 2


def test_one_column_may_be_both_ways_of_a_heat_map():
    figure = heat(frame([1.0, 2.0], [5.0, 3.0], axis=["a", "b"]), "tp", "tp", "step_time_s")

    assert [list(line) for line in figure.data[0].z] == [[5.0, None], [None, 3.0]]


def test_bytes_stand_in_the_unit_that_they_reach_and_other_axes_name_theirs():
    points = frame([1.0, 2.0], [5.0, 3.0]).assign(peak_memory_bytes=[2**30, 3 * 2**31])
    figure = scatter(points, "peak_memory_bytes", "step_time_s", "tp")
    x, y = figure.layout.xaxis, figure.layout.yaxis

    assert (list(figure.data[0].x), x.title.text, y.title.text, y.ticksuffix) == (
        [1.0, 6.0], "peak_memory_bytes in GiB", "step_time_s", "s",
    )  # fmt: skip


def test_the_title_names_the_unit_of_what_is_drawn():
    points = frame([1.0, 2.0], [5.0, 3.0], status=["ok", "memory"]).assign(peak_memory_bytes=[2**29, 2**32])
    figure = scatter(points, "peak_memory_bytes", "step_time_s", "tp", all_points=False)

    assert (list(figure.data[0].x), figure.layout.xaxis.title.text) == ([512.0], "peak_memory_bytes in MiB")


@pytest.mark.parametrize(("values", "named"), [(32, 32), (33, 17)])
def test_an_axis_of_a_heat_map_names_so_many_values(values, named):
    figure = heat(frame([1.0] * values, [1.0] * values, axis=list(range(values))), "tp", "status", "step_time_s")

    assert len(figure.layout.xaxis.ticktext) == named


def test_the_front_goes_through_its_points():
    points = frame([1.0, 2.0, 3.0], [5.0, 3.0, 4.0]).assign(peak_memory_bytes=[2**30, 2**31, 2**32])
    front = scatter(points, "peak_memory_bytes", "step_time_s", "tp").data[-1]

    assert (list(front.x), list(front.y)) == ([1.0, 2.0], [5.0, 3.0])


def test_points_in_one_place_name_each_other():
    points = frame([1.0] * 11 + [2.0], [5.0] * 11 + [3.0])
    told = scatter(points, "cost_usd", "step_time_s", "tp").data[0].hovertext

    assert [line.split("<br>")[-1] for line in (told[0], told[-1])] == [
        "here, too: point 1, 2, 3, 4, 5, 6, 7, 8 and 2 more", "step_time_s = 3 s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "said"),
    [({"name": "a"}, {"sweep": "a", "x": "mfu"}), ({"name": "b"}, {}), ({"text": "point\n", "file": "a"}, {})],
)
def test_columns_of_the_address_are_those_of_its_sweep(source, said):
    assert choices_for(source, {"sweep": "a", "x": "mfu"}) == said


def test_texts_have_places_on_a_parallel_axis():
    figure = parallel(frame([1.0, 2.0, 3.0], [5.0, 3.0, 4.0], axis=["b", "a", "b"]), ["tp", "cost_usd"], "cost_usd")
    first, second = figure.data[0].dimensions

    assert (list(first.values), list(first.ticktext), list(second.values)) == ([0, 1, 0], ["b", "a"], [1.0, 2.0, 3.0])


def test_nothing_that_can_be_run_still_draws():
    points = frame([1.0], [1.0], status=["memory"])
    drawn = [
        scatter(points, "cost_usd", "step_time_s", "tp"),
        heat(points, "tp", "status", "step_time_s"),
        parallel(points, ["tp", "cost_usd"], "cost_usd"),
    ]

    assert [len(figure.data) > 0 for figure in drawn] == [True, True, True]


def test_markup_of_a_report_is_text_in_figures():
    points = frame([1.0, 2.0], [5.0, 3.0], axis=[MARKUP, "a"])
    drawn = [
        scatter(points, "cost_usd", "step_time_s", "tp"),
        scatter(points, "tp", "step_time_s", "tp"),
        heat(points, "tp", "status", "step_time_s"),
        parallel(points, ["tp", "cost_usd"], "tp"),
    ]

    assert [("onclick" in figure.to_json(), "<b on" in _unicode(figure.to_json())) for figure in drawn] == [
        (True, False)
    ] * 4


def _unicode(json):
    return json.replace("\\u003c", "<").replace("\\u003e", ">")


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a\\b", "/etc", ".hidden", "x" * 61, "a\n", "a\0", "é"])
def test_a_sweep_is_never_put_where_its_name_leads(tmp_path, name):
    with pytest.raises(UserError, match="sweep: name"):
        sweep_run.folder_of(tmp_path, name)


def test_an_uploaded_report_is_that_of_the_folder(folder):
    text = (folder / "bucket-tiny" / "report.csv").read_text()
    contents = "data:text/csv;base64," + b64encode(text.encode()).decode()

    source = read_upload(contents, "report.csv")
    sent, kept = sweep_points.read_csv(source["text"], source["file"]), sweep_points.read_folder(folder / "bucket-tiny")

    assert (sent.total, sent.kind, list(sent.frame), sent.frame["update_time_s"].dropna().tolist()) == (
        kept.total, kept.kind, list(kept.frame), kept.frame["update_time_s"].dropna().tolist(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no CSV"),
        ("a,b\n1,2\n", "no column point, status, reason, scenario_hash"),
        ("point,status,reason,scenario_hash\n0,ok,,h\n", "no column between point and status"),
        ("point,tp,status,reason,scenario_hash\n", "no point is done yet"),
        ("point,tp,status,reason,scenario_hash\nx,1,ok,,h\n", "whole numbers that differ"),
        ("point,tp,status,reason,scenario_hash\n1,1,ok,,h\n1,2,ok,,h\n", "whole numbers that differ"),
        ("status,tp,point,reason,scenario_hash\nok,1,0,,h\n", "no column between point and status"),
        ('point,tp\n"0,1\n', "no CSV"),
    ],
)
def test_what_is_no_report_says_why(text, said):
    with pytest.raises(UserError, match=re.escape(said)):
        sweep_points.read_csv(text, "mine.csv")


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"x" * (MOST_REPORT_BYTES + 10), "more than 1 MiB"), (b"\xff\xfe\0", "no text in UTF-8")],
)
def test_what_is_no_text_or_large_is_refused(data, said):
    with pytest.raises(UserError, match=said):
        read_upload("data:text/csv;base64," + b64encode(data).decode(), "mine.csv")


def test_rows_beyond_the_most_are_counted_and_not_shown():
    rows = (f"{i},1,ok,,h\n" for i in range(sweep_points.MOST_ROWS + 3))
    text = "point,tp,status,reason,scenario_hash\n" + "".join(rows)
    found = sweep_points.read_csv(text, "mine.csv")

    assert (len(found.frame), found.total) == (sweep_points.MOST_ROWS, sweep_points.MOST_ROWS + 3)


def test_a_folder_of_any_name_says_what_sweep_it_holds(tmp_path):
    sweep = sweep_run.ready_sweeps()["bucket-tiny"]
    run_sweep(sweep, tmp_path / "my#1?%20", InProcess())

    assert sweep_points.origin(tmp_path / "my#1?%20") == sweep


def test_a_point_of_a_shipped_sweep_opens_as_the_scenario_of_its_report(folder):
    here, place = Here(Library(folder)), folder / "bucket-tiny"
    found = sweep_points.open_point(here, sweep_points.read_folder(place), 3, None, sweep_points.origin(place))

    assert (found.page, found.same, found.question.query()) == (
        "/update", True, "?base=tiny-2ranks&update.pipeline=two_stage&update.bucket=2048+KiB",
    )  # fmt: skip


@pytest.mark.parametrize("number", [0, 4, 22, 44])
def test_a_point_of_a_sweep_that_says_its_own_base_is_asked_by_changes_to_a_shipped_scenario(number):
    sweep = load_sweep(ROOT / "data" / "sweeps" / "llama3-70b-plans.toml")
    changes = sweep.grid.tables(number)
    itself = resolve(check_question(sweep.work.table(changes), sweep.where), sweep.where)

    here = Here(Library())
    query = sweep_points.question_of(here.library, sweep, changes).query()
    given, where = here.answers.scenario(parse_query(query, ""))

    assert resolve(given, where).hash == itself.hash


MEETING = """
base = "{base}"
axes = [
    {{ key = "update.bucket", values = ["1 MiB", "2 MiB"] }},
    {{ key = "update.bucket", values = [{{ times = 1 }}, {{ times = 2 }}] }},
    {{ key = "cluster.gpus_per_node", values = [2, 4] }},
    {{ key = "cluster.device.memory", values = [{{ times = 1 }}, {{ times = 0.5 }}] }},
]
"""


def swept_here(place, text):
    """The folder of a sweep over a scenario of its own folder, run."""
    (place / "sweep.toml").write_text(text)
    run_sweep(load_sweep(place / "sweep.toml"), place, InProcess())
    return place


def shipped_scenario(name):
    return ROOT / "data" / "scenarios" / f"{name}.toml"


@pytest.mark.parametrize("by_columns", [False, True])
def test_a_point_whose_axes_meet_opens_as_the_scenario_of_its_report(tmp_path, by_columns):
    place = swept_here(tmp_path, MEETING.format(base=shipped_scenario("tiny-2ranks")))
    base, sweep = ("tiny-2ranks", None) if by_columns else (None, sweep_points.origin(place))
    here, table = Here(Library()), sweep_points.read_folder(place)
    found = [sweep_points.open_point(here, table, number, base, sweep) for number in range(table.total)]

    assert [one.same for one in found] == [True] * 16


def test_a_point_opens_on_the_page_of_its_kind(tmp_path):
    base = shipped_scenario("rl-split-given-update-8xh100-nodes")
    place = swept_here(tmp_path, f'base = "{base}"\naxes = [{{ key = "seed", values = [1, 2] }}]\n')
    here, table = Here(Library()), sweep_points.read_folder(place)
    found = sweep_points.open_point(here, table, 1, None, sweep_points.origin(place))
    told = str(SweepFolders(here, tmp_path).point(table, 1, "rl-split-given-update-8xh100-nodes", None))

    assert (found.page, found.same, "/cycle?base=rl-split" in told) == ("/cycle", True, True)


def test_a_point_of_an_uploaded_report_needs_its_scenario():
    here = Here(Library())
    report = sweep_points.read_csv("point,parallel.tp,status,reason,scenario_hash,mfu\n0,4,ok,,h,0.4\n", "mine.csv")

    with pytest.raises(UserError, match="choose the scenario"):
        sweep_points.open_point(here, report, 0, None, None)
    found = sweep_points.open_point(here, report, 0, "train-llama3-70b-64xh100", None)

    assert (found.question.changes, found.same) == ({"parallel.tp": 4}, False)


def test_a_report_names_no_file_through_a_point():
    text = "point,cluster,status,reason,scenario_hash,mfu\n0,/etc/x.toml,ok,,h,0.4\n"
    report = sweep_points.read_csv(text, "mine.csv")

    with pytest.raises(UserError, match="expected a name of the catalogue"):
        sweep_points.open_point(Here(Library()), report, 0, "train-llama3-70b-64xh100", None)


def own(name="mine", **changes):
    """A sweep of four buckets over the smallest scenario."""
    said = {"base": "tiny-2ranks", "axes": (("update.bucket", "1 MiB, 2 MiB, 4 MiB, 8 MiB"), ("", ""))}
    return SweepRequest(name, **{**said, **changes})


def test_a_sweep_of_typed_axes_is_that_of_the_file_that_it_leaves(tmp_path):
    sweep_run.run(Library(), tmp_path, own(), InProcess(), lambda progress: None)
    run_sweep(load_sweep(tmp_path / "mine" / "sweep.toml"), tmp_path / "again", InProcess())

    assert (tmp_path / "mine" / "report.csv").read_bytes() == (tmp_path / "again" / "report.csv").read_bytes()


def test_a_sweep_that_is_stopped_keeps_what_is_done_and_goes_on_from_there(tmp_path):
    seen = []

    def watch(progress):
        seen.append(progress.done)
        if progress.done == 2:
            sweep_run.stop(tmp_path, "mine")

    stopped = sweep_run.run(Library(), tmp_path, own(), InProcess(), watch)
    rows = len(pd.read_csv(tmp_path / "mine" / "report.csv"))
    ended = sweep_run.run(Library(), tmp_path, own(), InProcess(), lambda progress: None)

    assert (stopped.complete, rows, ended.complete, ended.counts) == (False, 2, True, {"ok": 4})


def test_a_sweep_at_work_is_stopped_though_another_of_its_name_is_refused(tmp_path):
    refused = []

    def watch(progress):
        if progress.done == 2:
            sweep_run.stop(tmp_path, "mine")
            with pytest.raises(UserError) as error:
                sweep_run.run(Library(), tmp_path, own(), InProcess(), lambda progress: None)
            refused.append(error)

    stopped = sweep_run.run(Library(), tmp_path, own(), InProcess(), watch)

    assert (len(refused), stopped.complete) == (1, False)


def test_a_stop_that_came_late_does_not_stop_the_next_run(tmp_path):
    (tmp_path / "mine").mkdir()
    sweep_run.stop(tmp_path, "mine")

    assert sweep_run.run(Library(), tmp_path, own(), InProcess(), lambda progress: None).complete


def test_a_folder_says_how_far_its_sweep_is_and_whether_it_goes_on(tmp_path):
    told = [sweep_run.progress_of(tmp_path, "mine")]

    def watch(progress):
        told.append(sweep_run.progress_of(tmp_path, "mine").text("mine"))
        if progress.done == 2:
            sweep_run.stop(tmp_path, "mine")

    sweep_run.run(Library(), tmp_path, own(), InProcess(), watch)
    told.append(sweep_run.progress_of(tmp_path, "mine").text("mine"))
    sweep_run.run(Library(), tmp_path, own(), InProcess(), lambda progress: None)
    told.append(sweep_run.progress_of(tmp_path, "mine").text("mine"))

    assert told == [
        None, "mine: 0 of 4 points", "mine: 1 of 4 points", "mine: 2 of 4 points",
        "mine: stopped with 2 of 4 points; Start goes on", "mine: 4 points",
    ]  # fmt: skip


def test_a_store_says_so_far_what_the_report_says_at_the_end(tmp_path):
    so_far = []

    def watch(progress):
        if progress.done == 2:
            so_far.append(sweep_points.read_store(tmp_path / "mine").frame)

    sweep_run.run(Library(), tmp_path, own(), InProcess(), watch)
    end = sweep_points.read_folder(tmp_path / "mine").frame

    pd.testing.assert_frame_equal(sweep_points.read_store(tmp_path / "mine").frame, end)
    shown = ["point", "update.bucket", "status", "scenario_hash", "update_time_s"]
    pd.testing.assert_frame_equal(so_far[0][shown], end[shown].head(2))


def test_a_sweep_is_read_from_its_store_until_it_has_a_report(tmp_path):
    sweeps, told = SweepFolders(Here(Library()), tmp_path), []

    def watch(progress):
        if progress.done == 2:
            told.append((sweeps.source("mine"), list(sweeps.folders())))

    sweep_run.run(Library(), tmp_path, own(), InProcess(), watch)
    told.append((sweeps.source("mine"), list(sweeps.folders())))
    (tmp_path / "mine" / "report.csv").unlink()  # as of one that was killed
    told.append((sweeps.source("mine"), list(sweeps.folders())))

    assert told == [
        ({"name": "mine", "done": "2"}, ["mine"]),
        ({"name": "mine"}, ["mine"]),
        ({"name": "mine", "done": "4"}, ["mine"]),
    ]


def test_a_store_of_a_sweep_that_nobody_knows_is_not_read(tmp_path):
    table = f'base = "{shipped_scenario("tiny-2ranks")}"\naxes = [{{ key = "nodes", values = [1] }}]'
    (tmp_path / "sweep.toml").write_text(table)
    run_sweep(load_sweep(tmp_path / "sweep.toml"), tmp_path / "mine", InProcess())

    assert sweep_points.read_store(tmp_path / "mine") is None


@pytest.mark.parametrize("name", ["", "..", "../mine", "none", "other"])
def test_what_is_no_sweep_holds_nothing(tmp_path, name):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "state.sqlite").write_text("no database")

    assert sweep_run.progress_of(tmp_path, name) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "../mine"}, "sweep: name"),
        ({"base": "../tiny-2ranks"}, "sweep: base"),
        ({"shipped": "../bucket-tiny"}, "sweep: sweep"),
        ({"axes": (("cluster", "/etc/cluster.toml"),)}, "expected a name of the catalogue"),
        ({"axes": (("update.bukket", "1, 2"),)}, "update.bucket"),
        ({"axes": (("update.bucket", ""),)}, "expected a key and its values"),
        ({"axes": (("update.bucket", "2020-01-01"),)}, "expected numbers, texts, lists or tables"),
        ({"axes": (("update.bucket", "1e400"),)}, "expected finite numbers"),
        ({"axes": (("parallel.layers", "[1e400]"),)}, "expected finite numbers"),
        ({"axes": (("hardware.gpu", "{ price = -inf }"),)}, "expected finite numbers"),
        ({"axes": (("parallel.layers", "[2020-01-01]"),)}, "expected numbers, texts, lists or tables"),
        ({"axes": (("parallel.layers", "[" * 3000 + "]" * 3000),)}, "expected a list|expected whole numbers|layers"),
        ({"axes": (("nodes", ",".join(map(str, range(1, 202)))),)}, "at most 200 points here"),
    ],
)
def test_what_may_not_be_run_is_refused_and_leaves_nothing(tmp_path, changes, said):
    with pytest.raises(UserError, match=said):
        sweep_run.run(Library(), tmp_path, own(**{"name": "mine", **changes}), InProcess(), lambda progress: None)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_else_is_told_without_options(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.csv").write_text("nothing of ours")

    with pytest.raises(UserError) as raised:
        sweep_run.run(
            Library(), tmp_path, SweepRequest("mine", shipped="bucket-tiny"), InProcess(), lambda progress: None
        )

    assert str(raised.value) == "sweep: holds report.csv, which is no sweep's; choose another name"


def test_no_figure_is_drawn_of_choices_that_are_not_there_yet(folder):
    """As between two sweeps: the page of the one has gone, that of the other is not drawn."""
    keys = ["across", "up", "value"]
    inputs = [{"id": {"sweeps": key}, "property": "value", "value": None} for key in keys]
    inputs.append({"id": "sweeps-source", "property": "data", "value": {"name": "bucket-tiny"}})
    asked = {"output": "sweeps-heat.figure", "outputs": {"id": "sweeps-heat", "property": "figure"}, "inputs": inputs,
             "changedPropIds": ["sweeps-source.data"], "state": []}  # fmt: skip

    answer = make_app(folder).server.test_client().post("/_dash-update-component", json=asked)

    assert answer.json["response"] == {}


def test_a_faulty_sweep_leaves_a_folder_to_the_corrected_one(tmp_path):
    (tmp_path / "mine").mkdir()
    faulty = own(axes=(("update.bukket", "1, 2"),))
    with pytest.raises(UserError, match="bukket"):
        sweep_run.run(Library(), tmp_path, faulty, InProcess(), lambda progress: None)

    assert sweep_run.run(Library(), tmp_path, own(), InProcess(), lambda progress: None).complete


def test_a_folder_with_another_sweep_is_left_alone(tmp_path):
    sweep_run.run(Library(), tmp_path, own(), InProcess(), lambda progress: None)
    before = (tmp_path / "mine" / "sweep.toml").read_bytes()

    with pytest.raises(UserError, match="holds another sweep"):
        sweep_run.run(Library(), tmp_path, own(axes=(("nodes", "1"),)), InProcess(), lambda progress: None)

    assert (tmp_path / "mine" / "sweep.toml").read_bytes() == before


def _rows_of(page):
    page.wait_for_selector(".ag-center-cols-container .ag-row")


def test_a_choice_stands_in_the_address_and_comes_back(page):
    page.goto("/sweeps?sweep=bucket-tiny&point=4")
    colour, link = page.get_by_label("Colour", exact=True).first, page.locator("#sweeps-point a")
    expect(link).to_be_visible()
    colour.click()
    page.locator("[role=option]:visible").get_by_text("update.bucket", exact=True).click()
    expect(page).to_have_url(re.compile("colour=update.bucket.*point=4"))
    page.reload()

    expect(colour).to_have_value("update.bucket")
    expect(link).to_have_attribute("href", "/update?base=tiny-2ranks&update.pipeline=two_stage&update.bucket=4096+KiB")


def test_the_grid_downloads_the_points_of_the_report(page, folder):
    page.goto("/sweeps?sweep=bucket-tiny")
    _rows_of(page)
    with page.expect_download() as started:
        page.get_by_role("button", name="All points as CSV").click()
    sent = pd.read_csv(started.value.path())
    kept = pd.read_csv(folder / "bucket-tiny" / "report.csv")

    assert (set(sent), sent["update.bucket"].tolist()) == (set(kept), kept["update.bucket"].tolist())


def test_a_dot_and_a_row_open_their_points(page):
    page.goto("/sweeps?sweep=bucket-tiny")
    _rows_of(page)
    page.locator('.ag-center-cols-container [row-id="8"]').click()
    page.wait_for_selector("#sweeps-point a[href*='three_stage']")
    dot = page.locator("#sweeps-scatter .scatterlayer .points path").first
    _hover(page, dot)
    page.mouse.down()
    page.mouse.up()

    opened = re.compile(r"update.pipeline=(two_stage|serial)&update.bucket=1024\+KiB")
    expect(page.locator("#sweeps-point a")).to_have_attribute("href", opened)


def _hover(page, dot):
    """The mouse is over a dot when its label is there; until then the page may still move."""
    label = page.locator("#sweeps-scatter .hoverlayer .hovertext").first
    for _ in range(30):
        dot.hover(force=True)
        with suppress(TimeoutError):
            label.wait_for(timeout=1000)
            return
    raise AssertionError("no label")


def test_markup_of_an_uploaded_report_shows_as_text(page, tmp_path):
    report = tmp_path / "report.csv"
    report.write_text(f'point,tp,status,reason,scenario_hash,mfu\n0,1,ok,,h,0.4\n1,2,infeasible,"{MARKUP}",h,\n')
    page.goto("/sweeps")
    page.set_input_files("#sweeps-upload input", report)
    page.wait_for_selector(f'.ag-cell:has-text("{MARKUP}")')

    assert page.locator("b[onclick]").count() == 0


def test_what_is_no_report_is_told_and_another_sweep_opens_after(page, tmp_path):
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    page.goto("/sweeps")
    _rows_of(page)
    page.set_input_files("#sweeps-upload input", tmp_path / "bad.csv")
    page.wait_for_selector("#sweeps-body [role=alert]")
    expect(page.locator("#sweeps-body")).to_contain_text("bad.csv: no column point")
    page.locator("#sweeps-name").click()
    page.locator("[role=option]:visible").get_by_text("bucket-tiny", exact=True).click()

    _rows_of(page)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("big.csv", "x" * (MOST_REPORT_BYTES + 2**19), "big.csv has 1.5 MiB"),
        ("report.xlsx", "x", "report.xlsx is no CSV file"),
    ],
)
def test_an_upload_that_is_not_taken_says_what_is(page, tmp_path, folder, file, text, said):
    (tmp_path / file).write_text(text)
    page.goto("/sweeps")
    _rows_of(page)
    page.set_input_files("#sweeps-upload input", tmp_path / file)

    told = page.locator("#sweeps-rejected")
    expect(told).to_have_text(f"{said}: expected the report.csv of a sweep, at most 1 MiB")
    page.set_input_files("#sweeps-upload input", folder / "bucket-tiny" / "report.csv")
    expect(told).to_have_text("")


SLOW = "kimi-k2-256xh20"
"""A scenario that takes long enough to be watched and stopped."""


def _start(page, name, values, base="tiny-2ranks"):
    page.goto("/sweeps")
    _rows_of(page)
    page.locator("#sweeps-base").fill(base)
    page.locator("[role=option]:visible").get_by_text(base, exact=True).click()
    expect(page.locator("#sweeps-base")).to_have_value(base)
    page.get_by_label("Axis 1: key").fill("update.bucket")
    page.get_by_label("Axis 1: values").fill(values)
    page.locator("#sweeps-new").fill(name)
    page.get_by_role("button", name="Start").click()


def test_a_small_sweep_runs_and_opens(page, folder):
    _start(page, "started-here", "1 MiB, 2 MiB")
    expect(page).to_have_url(re.compile("sweep=started-here"), timeout=60_000)
    expect(page.locator("#sweeps-told")).to_have_text("started-here: 2 points")

    assert len(pd.read_csv(folder / "started-here" / "report.csv")) == 2


def test_cancel_ends_a_sweep_with_what_is_done_as_soon_as_it_can_be_pressed(page):
    _start(page, "ended-early", ", ".join(f"{mib} MiB" for mib in range(8192, 8392)), SLOW)
    page.get_by_role("button", name="Cancel").click(timeout=60_000)

    told = re.compile(r"ended-early: stopped with \d+ of 200 points; Start goes on")
    expect(page.locator("#sweeps-told")).to_have_text(told, timeout=60_000)


def test_a_sweep_whose_page_was_left_goes_on_and_is_told_of(page):
    _start(page, "left-alone", ", ".join(f"{mib} MiB" for mib in range(8192, 8242)), SLOW)
    page.locator("#sweeps-told", has_text=" of 50 points").wait_for(timeout=60_000)
    page.goto("/")
    page.locator("h1").wait_for()
    page.goto("/sweeps")

    expect(page.locator("#sweeps-new")).to_have_value("left-alone")
    expect(page.locator("#sweeps-told")).to_have_text("left-alone: 50 points", timeout=60_000)
    expect(page.locator("#sweeps-cancel")).to_be_disabled()


def test_points_are_shown_while_a_sweep_is_at_work_and_choices_stay(page):
    _start(page, "growing", ", ".join(f"{mib} MiB" for mib in range(8192, 8342)), SLOW)
    points, colour = page.locator("#sweeps-counts dd").first, page.get_by_label("Colour", exact=True).first
    expect(points).to_have_text(re.compile(r"\d+growing, so far"), timeout=60_000)
    first = points.inner_text()
    colour.click()
    page.locator("[role=option]:visible").get_by_text("status", exact=True).click()
    expect(points).not_to_have_text(first, use_inner_text=True, timeout=60_000)
    more = points.inner_text()
    expect(page.locator("#sweeps-told")).to_have_text("growing: 150 points", timeout=120_000)
    expect(points).to_have_text("150growing")
    expect(page.locator("#sweeps-scatter .points path")).to_have_count(150)

    assert 0 < int(first.split("\n")[0]) < int(more.split("\n")[0]) < 150
    expect(colour).to_have_value("status")


def test_a_sweep_that_ended_early_says_that_it_can_go_on(page, folder):
    def watch(progress):
        if progress.done == 2:
            sweep_run.stop(folder, "ended-here")

    sweep_run.run(Library(), folder, own("ended-here"), InProcess(), watch)
    page.goto("/sweeps")
    page.locator("#sweeps-new").fill("ended-here")

    expect(page.locator("#sweeps-told")).to_have_text("ended-here: stopped with 2 of 4 points; Start goes on")


def test_the_page_is_pictured_and_no_wider_than_a_phone(page, pictured):
    page.goto("/sweeps?sweep=bucket-tiny")
    _rows_of(page)
    pictured("sweeps")
    page.set_viewport_size({"width": 390, "height": 1000})

    page.wait_for_function("document.documentElement.scrollWidth == 390")
