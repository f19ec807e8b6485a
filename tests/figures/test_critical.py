"""The critical path over a timeline: through the rows of its ops, without a gap, from the beginning to the end."""

import pytest
from runcast.simulator import simulate
from runcast.simulator.figures import draw_timeline
from runcast.simulator.insight import critical_path

CASES = {"tiny-4ranks": [], "tiny-train-pp4": [], "train-llama3-70b-64xh100": ["level=coarse"]}


@pytest.fixture(scope="module", params=CASES)
def drawn(request):
    prediction = simulate(request.param, CASES[request.param])
    figure = draw_timeline(prediction.report.kind, prediction.timeline, prediction.grid)
    (line,) = (trace for trace in figure.data if trace.name == "critical path")
    return prediction, figure, line


def test_it_goes_from_the_beginning_to_the_end_without_a_gap(drawn):
    prediction, _, line = drawn
    begins, ends = line.x[::2], line.x[1::2]

    assert begins[0] == pytest.approx(0.0, abs=1e-9)
    assert ends[-1] == pytest.approx(prediction.timeline.makespan_s)
    assert list(begins[1:]) == pytest.approx(list(ends[:-1]))


def test_it_stands_on_rows_and_moves_to_another_with_an_op_of_it(drawn):
    prediction, figure, line = drawn
    moves = {float(prediction.timeline.start_s[op]) for op in critical_path(prediction.timeline).ops}

    assert set(line.x[::2]) <= moves
    assert set(line.y) <= set(figure.layout.yaxis.tickvals)


def test_it_is_shown_when_asked_for(drawn):
    assert drawn[2].visible == "legendonly"
