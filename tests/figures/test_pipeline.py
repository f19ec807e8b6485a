"""Pictures of a training step: boxes where a hand would draw them, nothing lost, pages for every schedule."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from runcast.simulator.answers.outputs import figures_of
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.figures import Section, breakdown, layer_view, memory_by_owner, memory_by_rank, page, pipeline
from runcast.simulator.figures.actions import boxes, endings, few_boxes, traffic, waits, windows
from runcast.simulator.figures.layer_view import first_part, is_in_network, kernels, panels
from runcast.simulator.figures.layer_view import parts as layer_parts
from runcast.simulator.figures.pipeline import BUBBLE
from runcast.simulator.figures.spans import Window
from runcast.simulator.models import ModelSpec, preset, preset_names
from runcast.simulator.models.blocks import layer
from runcast.simulator.models.kernels import Kernel
from runcast.simulator.models.shard import Shard
from runcast.simulator.predict import TrainPrediction
from runcast.simulator.predict import simulate as predict
from runcast.simulator.program import ProgramBuilder, Ragged
from runcast.simulator.report.report import page_tables
from runcast.simulator.schedules import SCHEDULES, Grid, needs
from runcast.simulator.systems.train_step.lower import ACTIONS
from runcast.simulator.systems.train_step.scenario import TrainScenario
from runcast.simulator.systems.train_step.text import words
from runcast.simulator.timeline import Timeline
from runcast.simulator.timeline.timeline import union_s

TINY = Grid.from_text("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", "1f1b")
PAIRED = Grid.from_text("0F0 0F1 0F2&0B0 0B1 0B2\n1F0 1F1&1B0 1F2&1B1 1B2", "pairs")
SECONDS = {"F": 1.0, "B": 2.0, "FB": 2.5, "optimizer": 0.5}


def run(grid: Grid) -> Timeline:
    """A step of one kernel per action, and an optimizer behind them."""
    builder, done = ProgramBuilder(), {}
    lanes = [builder.lane(builder.place(f"stage {rank}", [rank]), "compute") for rank in range(grid.ranks)]
    for rank, row in enumerate(grid.rows):
        for cell in row:
            kind = "FB" if len(cell) > 1 else cell[0].kind
            tags = {"stage": cell[0].stage, "microbatch": cell[0].microbatch, "action": ACTIONS.index(kind), "layer": 0}
            op = builder.op(kind, [lanes[rank]], name=str(cell[0]), tags=tags)
            done |= dict.fromkeys(cell, op)
        builder.op("optimizer", [lanes[rank]], name="optimizer")
    after = [sorted({done[need] for one in done if done[one] == op for need in needs(grid, one)})
             for op in range(max(done.values()) + 2)]  # fmt: skip
    program = replace(builder.build(), deps=Ragged.build(after))
    return simulate(program, kind_costs(program, SECONDS))


def scenario(schedule: str, pp: int = 4, **tables) -> TrainPrediction:
    """A small Qwen3-MoE on 8 GPUs."""
    chunks = {"interleaved": 2, "interleaved-overlap": 2}
    return predict(TrainScenario(**{
        "name": f"{schedule} on {pp}",
        "kind": "train_step",
        "cluster": "dgx-h100",
        "model": {"preset": "qwen3-30b-a3b", "overrides": {"num_hidden_layers": 16}},
        "parallel": {"pp": pp, "ep": 2},
        "schedule": {"name": schedule, "vpp": chunks.get(schedule)},
        "batch": {"global": 8 * (8 // pp), "micro": 1, "seq_len": 4096},
    } | tables))  # fmt: skip


@pytest.fixture(scope="module")
def paired() -> TrainPrediction:
    """Overlapped pairs, offload, tensor parallelism."""
    return scenario("interleaved-overlap", offload={"activations": 0.5})


def test_boxes_of_a_tiny_grid_are_where_a_hand_draws_them() -> None:
    rows = boxes(run(TINY), TINY)[["rank", "kind", "microbatch", "start_s", "end_s", "idle_s"]]
    assert [tuple(row) for row in rows.itertuples(index=False)] == [
        (0, "F", 0, 0.0, 1.0, 0.0), (0, "F", 1, 1.0, 2.0, 0.0), (0, "B", 0, 4.0, 6.0, 2.0), (0, "B", 1, 7.0, 9.0, 1.0),
        (1, "F", 0, 1.0, 2.0, 1.0), (1, "B", 0, 2.0, 4.0, 0.0), (1, "F", 1, 4.0, 5.0, 0.0), (1, "B", 1, 5.0, 7.0, 0.0),
    ]  # fmt: skip


def test_the_figure_has_them_with_their_numbers() -> None:
    forward, backward, *_ = pipeline(run(TINY), TINY).data
    assert (forward.name, backward.name) == ("forward", "backward")
    assert sorted(zip(backward.base, backward.x, backward.text, strict=True)) == [
        (2.0, 2.0, "0"), (4.0, 2.0, "0"), (5.0, 2.0, "1"), (7.0, 2.0, "1")
    ]  # fmt: skip
    first = forward.hovertext[0]
    assert first == "<b>forward of micro-batch 0</b><br>stage 0 on rank 0<br>from 0 s for 1 s<br>kernels 1 s"


def test_pairs_are_halves_of_one_box_with_both_numbers() -> None:
    found = boxes(run(PAIRED), PAIRED)
    halves = found[(found["rank"] == 1) & (found.half > 0)]
    assert list(zip(halves.kind, halves.microbatch, halves.start_s, halves.end_s, strict=True)) == [
        ("F", 1, 2.0, 4.5), ("B", 0, 2.0, 4.5), ("F", 2, 7.0, 9.5), ("B", 1, 7.0, 9.5)
    ]  # fmt: skip
    above, below = (trace.y for trace in pipeline(run(PAIRED), PAIRED).data[:2])
    assert set(above) != set(below)


def test_what_ends_a_step_is_a_box_of_its_own() -> None:
    ends = endings(run(TINY), TINY)
    assert [tuple(row) for row in ends.itertuples(index=False)] == [
        (0, "optimizer", 9.0, 9.5), (1, "optimizer", 7.0, 7.5)
    ]  # fmt: skip


SOME = ("1f1b", "interleaved", "zb-v", "dualpipe-v")
EVERY = [pytest.param(name, marks=() if name in SOME else pytest.mark.slow) for name in SCHEDULES]


@pytest.mark.parametrize("name", EVERY)
def test_every_action_once_and_a_page_for_all_schedules(name: str) -> None:
    done = scenario(name, parallel={"pp": 4, "ep": 1}, model={"preset": "llama3-8b"})
    grid = done.resolved.plan.grid
    found = boxes(done.timeline, grid)
    drawn = sorted(zip(found["rank"], found.stage, found.kind, found.microbatch, strict=True))
    assert drawn == sorted((rank, *action) for rank in range(grid.ranks) for action in grid.actions(rank))
    assert (found.idle_s >= 0).all()
    assert (found.busy_s <= found.end_s - found.start_s + 1e-9).all()
    text = page("step", [Section(figures=figures_of(done), tables=page_tables(done.report, words(done.report)))])
    assert text.count("Plotly.newPlot(") == 5


@pytest.mark.parametrize("tables", [{}, {"level": "coarse"}, {"batch": {"global": 8, "seq_len": 4096}}])
def test_one_rank_has_its_figures_too(tables: dict) -> None:
    done = scenario("1f1b", 1, parallel={"pp": 1}, model={"preset": "llama3-8b"}, **tables)
    figures = figures_of(done)
    assert ("Kernels of a rank" in figures) == ("level" not in tables)
    assert "Memory by rank" not in figures
    assert page("step", [Section(figures=figures)])


def test_boxes_drawn_together_do_not_cross_a_long_idle_time() -> None:
    drawn, cells = few_boxes(boxes(run(TINY), TINY), most=7)
    assert cells == 2
    first = drawn[(drawn["rank"] == 0) & (drawn.kind == "B")].iloc[0]
    assert (first.start_s, first["count"], drawn["count"].sum()) == (4.0, 1, 8)


def test_boxes_drawn_together_keep_their_seconds(paired: TrainPrediction) -> None:
    found = boxes(paired.timeline, paired.resolved.plan.grid)
    drawn, cells = few_boxes(found, most=60)
    assert cells > 1
    assert len(drawn) < len(found)
    assert drawn["count"].sum() == len(found)
    assert np.isclose(drawn.length_s.sum(), (found.end_s - found.start_s).sum())
    for _, row in drawn.sort_values("start_s").groupby(["rank", "half"]):
        assert (row.start_s.to_numpy()[1:] >= row.end_s.to_numpy()[:-1] - 1e-9).all()


@pytest.mark.parametrize("most", [10**6, 300])
def test_thin_lanes_keep_their_busy_seconds(paired: TrainPrediction, most: int) -> None:
    timeline = paired.timeline
    spans, bin_s = traffic(timeline, most)
    assert len(spans) <= most
    assert (bin_s > 0) == (most == 300)
    program = timeline.program
    lane = next(i for i, at in enumerate(program.lanes) if (at.place, at.name) == (1, "ep"))
    ops = program.order[lane]
    drawn = spans[(spans["rank"] == 1) & (spans.lane == "ep")]
    assert np.isclose((drawn.end_s - drawn.start_s).sum(), union_s(timeline.start_s[ops], timeline.end_s[ops]))
    assert {"ep", "sends", "offload", "onload", "dp"} <= set(spans.lane)


def test_what_is_seen_is_told_apart_and_the_rest_is_not(paired: TrainPrediction) -> None:
    found = boxes(paired.timeline, paired.resolved.plan.grid)
    seen = Window(0.0, paired.timeline.makespan_s / 8)

    drawn, cells = few_boxes(found, most=40, window=seen)

    near = (found.end_s > seen.start_s) & (found.start_s < seen.end_s)
    alone = drawn[drawn["count"] == 1]
    assert (cells, drawn["count"].sum(), near.sum() <= len(alone) < len(found)) == (1, len(found), True)


def test_in_a_window_thin_lanes_keep_their_seconds_and_less_of_them_is_few_boxes(paired: TrainPrediction) -> None:
    seen = Window(0.0, paired.timeline.makespan_s / 8)

    near, near_bin_s = traffic(paired.timeline, 300, window=seen)

    whole, whole_bin_s = traffic(paired.timeline, 300)
    busy_s = [float((spans.end_s - spans.start_s).sum()) for spans in (near, whole)]
    assert (np.isclose(*busy_s), near_bin_s < whole_bin_s) == (True, True)


def test_a_figure_shows_its_window(paired: TrainPrediction) -> None:
    seen = Window(0.1 * paired.timeline.makespan_s, 0.2 * paired.timeline.makespan_s)

    figure = pipeline(paired.timeline, paired.resolved.plan.grid, window_s=seen, most_spans=100)

    assert tuple(figure.layout.xaxis.range) == seen


def test_exchanges_of_a_lane_are_one_area_as_long_as_they_are_busy(paired: TrainPrediction) -> None:
    """A browser draws an area of thousands of spans at once, and lines with breaks one by one."""
    figure = pipeline(paired.timeline, paired.resolved.plan.grid, most_spans=100)

    (area,) = [trace for trace in figure.data if trace.name == "EP"]
    begin, _, _, end, _ = np.array(area.x).reshape(-1, 5).T
    spans = traffic(paired.timeline, 100)[0]
    own = spans[spans.lane == "ep"]
    assert (area.mode, area.fill, (end - begin).sum()) == (
        "none",
        "toself",
        pytest.approx((own.end_s - own.start_s).sum()),
    )


def test_numbers_stand_near_what_is_seen_where_it_is_drawn_anew(paired: TrainPrediction) -> None:
    seen = Window(0.4 * paired.timeline.makespan_s, 0.45 * paired.timeline.makespan_s)

    figure = pipeline(paired.timeline, paired.resolved.plan.grid, window_s=seen, most_spans=100)

    forward = figure.data[0]
    numbered = [start for start, text in zip(forward.base, forward.text, strict=True) if text]
    far_s = 2 * seen.length_s + max(forward.x)
    assert (0 < len(numbered) < len(forward.x), min(numbered) > seen.start_s - far_s) == (True, True)


def test_a_bubble_is_seen_and_says_how_long_it_is() -> None:
    figure = pipeline(run(TINY), TINY)

    (bubble,) = [trace for trace in figure.data if trace.name == "bubble"]
    said = dict(zip(zip(bubble.base, bubble.x, strict=True), bubble.hovertext, strict=True))
    assert said[0.0, 1.0] == "<b>bubble: 1 s</b><br>rank 1 waits<br>from 0 s for 1 s"
    assert bubble.marker.color == BUBBLE


@pytest.mark.parametrize(("microbatches", "seen"), [(4, "all"), (128, "warm-up")])
def test_a_step_of_very_many_actions_opens_at_its_warm_up(microbatches: int, seen: str) -> None:
    grid = SCHEDULES["1f1b"].make(2, microbatches)
    timeline = run(grid)

    figure = pipeline(timeline, grid, opens_near=True)

    assert tuple(figure.layout.xaxis.range) == windows(boxes(timeline, grid), timeline.makespan_s)[seen]


def test_windows_follow_each_other(paired: TrainPrediction) -> None:
    found = windows(boxes(paired.timeline, paired.resolved.plan.grid), paired.timeline.makespan_s)
    assert list(found) == ["all", "warm-up", "steady", "cool-down"]
    assert found["warm-up"].start_s == 0.0
    assert found["cool-down"].end_s == found["all"].end_s == paired.timeline.makespan_s
    (buttons,) = pipeline(paired.timeline, paired.resolved.plan.grid).layout.updatemenus
    assert [tuple(one.args[0]["xaxis.range"]) for one in buttons.buttons] == list(found.values())


def test_waits_inside_actions_lie_in_them_and_have_a_cause(paired: TrainPrediction) -> None:
    found, gaps = boxes(paired.timeline, paired.resolved.plan.grid), waits(paired.timeline, paired.resolved.plan.grid)
    for rank, start, end, name in gaps.itertuples(index=False):
        assert ((found["rank"] == rank) & (found.start_s <= start) & (found.end_s >= end)).any()
        assert name


def test_the_layer_view_has_three_panels_of_what_overlaps(paired: TrainPrediction) -> None:
    timeline, grid = paired.timeline, paired.resolved.plan.grid
    shown = panels(boxes(timeline, grid), 1)
    assert list(shown) == ["warm-up", "steady", "cool-down"]
    figure = layer_view(timeline, grid, 1)
    assert [note.text.split(":")[0] for note in figure.layout.annotations] == list(shown)
    pair = kernels(timeline, grid, 1, shown["steady"])
    assert {"forward", "backward", "weight gradient", "exchange"} <= set(pair.kind)
    assert {"dispatch", "combine", "dispatch_back", "combine_back"} <= set(pair[pair.lane == "ep"].label)
    first = first_part(pair, shown["steady"])
    assert first.end_s <= shown["steady"].end_s + 0.02 * (first.end_s - first.start_s)


@pytest.mark.parametrize("schedule", ["dualpipe", "interleaved-overlap"])
def test_what_a_pair_computes_again_is_of_its_backward(schedule: str) -> None:
    done = scenario(schedule, recompute={"mode": "full"})
    timeline, grid = done.timeline, done.resolved.plan.grid
    pair = kernels(timeline, grid, 1, panels(boxes(timeline, grid), 1)["steady"])
    own = pair[pair.lane == "compute"]
    of = {kind: set(own.name[own.kind == kind].str.extract(r"(s\d+ m\d+)$")[0]) for kind in set(own.kind)}
    assert len(of["forward"]) == len(of["backward"]) == 1
    assert of["computed again"] == of["backward"] != of["forward"]


def test_parts_of_layers_cover_their_kernels(paired: TrainPrediction) -> None:
    window = panels(boxes(paired.timeline, paired.resolved.plan.grid), 0)["warm-up"]
    found = kernels(paired.timeline, paired.resolved.plan.grid, 0, window)
    blocks, own = layer_parts(found), found[found.lane == "compute"]
    assert blocks.start_s.min() == own.start_s.min()
    assert blocks.end_s.max() == own.end_s.max()
    assert any(part.startswith("Attn F L") for part in blocks.part)


def test_breakdown_bars_sum_to_the_step(paired: TrainPrediction) -> None:
    report = paired.report
    figure = breakdown(report.by_rank_s)
    assert list(figure.data[0].y) == ["rank 0", "rank 1", "rank 2", "rank 3", "mean"]
    assert np.allclose(np.sum([trace.x for trace in figure.data], axis=0), report.step_time_s)


def test_memory_peaks_are_the_reports(paired: TrainPrediction) -> None:
    report, figures = paired.report, figures_of(paired)
    areas = [trace.y for trace in figures["Memory by owner"].data]
    assert np.isclose(np.sum(areas, axis=0).max() * 2**30, report.peak.peak_bytes)
    lines = {trace.name: max(trace.y) * 2**30 for trace in figures["Memory by rank"].data}
    expected = {f"rank {stage.pipeline_rank}": stage.peak_bytes for stage in report.memory}
    assert lines == pytest.approx(expected)


def test_thousands_of_times_keep_the_peak() -> None:
    held = np.random.default_rng(0).uniform(0, 2**30, 20_000)
    table = pd.DataFrame({"time_s": np.arange(20_000.0), "x": held, "total": held})
    figure = memory_by_owner(table, 2**30, 20_000.0, 0)
    assert len(figure.data[0].x) < 2000
    assert max(figure.data[0].y) == held.max() / 2**30
    (line,) = memory_by_rank({0: table}, 2**30, 20_000.0).data
    assert max(line.y) == held.max() / 2**30


@pytest.mark.parametrize(("peak", "above"), [(0.9, 1.0), (0.5, 0.5), (1.2, 1.2)])
def test_the_text_of_a_peak_is_clear_of_the_line_of_the_device(peak: float, above: float) -> None:
    table = pd.DataFrame({"time_s": [0.0, 1.0], "weights": [0.0, peak * 2**30], "total": [0.0, peak * 2**30]})

    figure = memory_by_owner(table, 2**30, 4.0, 0)

    (text,) = (note for note in figure.layout.annotations if note.name == "peak")
    assert (text.ay, text.xanchor) == (pytest.approx(above + 0.06 * max(1, peak)), "left")


@pytest.mark.slow
def test_the_png_of_a_step_is_its_pipeline(tmp_path: Path, chromium: str) -> None:
    from runcast.simulator.figures import png

    figure = pipeline(run(TINY), TINY)
    png(figure, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(figure.layout.updatemenus) == 1


def test_kernels_of_a_network_are_known_by_their_names() -> None:
    named = {kernel.name for name in preset_names() for kernel in of_networks(preset(name))}
    of_both = {"residual", "streams", "final_norm"}
    assert {name for name in named - of_both if not is_in_network(name)} == set()


def of_networks(spec: ModelSpec) -> Iterator[Kernel]:
    """The kernels of the FFNs and experts of a model."""
    for number in sorted(set(spec.first_alike)):
        found = layer(spec, number, Shard(batch=1, seq=128))
        yield from (*found.mlp_in, *found.mlp, *found.experts, *found.after)
