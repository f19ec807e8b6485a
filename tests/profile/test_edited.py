"""A number that somebody edits in a shipped file counts, also where the ledger has a fit of it."""

from copy import deepcopy

import pytest
from runcast.simulator.profile import fitted_parameters, load, load_stack

STACK = "nanotron"
FIT = fitted_parameters()[STACK]


@pytest.fixture
def edit(monkeypatch):
    """Writes numbers into the file of the stack, as an editor would."""

    def write(**values):
        shipped = load._content
        content = deepcopy(shipped("stacks", STACK))
        for name, value in values.items():
            said = {"value": value, "spread": 0.1, "provenance": "measured", "source": "our cluster"}
            content["parameters"][name.replace("__", ".")] = said
        edited = {("stacks", STACK): content}
        monkeypatch.setattr(load, "_content", lambda *place: edited.get(place) or shipped(*place))

    return write


def test_a_file_as_it_was_fitted_takes_the_fit():
    assert load_stack(STACK)["layer.tp_s"] == FIT["layer.tp_s"]


def test_a_number_that_was_edited_since_the_fit_stands(edit):
    edit(layer__tp_s=9e-5)
    assert load_stack(STACK)["layer.tp_s"].source == "our cluster"
    assert load_stack(STACK)["exchange.s"] == FIT["exchange.s"]


def test_a_number_that_was_added_since_the_fit_stands(edit):
    assert "time_factor.gemm" in FIT
    edit(time_factor__gemm=1.1)
    assert load_stack(STACK).value("time_factor.gemm") == 1.1


def test_what_rests_on_an_edited_file_takes_the_number_too(edit, tmp_path):
    edit(layer__tp_s=9e-5)
    mine = tmp_path / "mine.toml"
    mine.write_text(f'schema = 2\nbase = "{STACK}"\n')
    assert load_stack(str(mine)).value("layer.tp_s") == 9e-5
