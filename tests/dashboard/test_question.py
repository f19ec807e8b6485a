"""Questions in addresses: they come back as they were, and what would open a file is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.dashboard.forms.fields import number_text, read_number
from runcast.dashboard.library import Library
from runcast.dashboard.question import MOST_CHARACTERS, Question, parse_query
from runcast.simulator.base.errors import UserError

KEYS = st.from_regex(r"[a-z_]{1,8}(\.[a-z_]{1,8}){0,2}", fullmatch=True).filter(lambda key: key.split(".")[0] != "base")
PLAIN = st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text(max_size=30)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_a_question_comes_back_from_its_address(changes):
    try:
        asked = Question("tiny-2ranks").change(changes)
    except UserError:  # a text that looks like a path, under a key that opens files
        return

    assert parse_query(asked.query(), "other") == asked


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cluster", "../../etc/cluster.toml"),
        ("profile", "/etc/passwd"),
        ("stack", "mine.toml"),
        ("model.config", "config.json"),
        ("model.config", "~/model"),
        ("model.config", "folder"),
        ("schedule.file", "mine"),
        ("schedule", {"file": "/etc/passwd"}),
        ("model", {"config": "folder"}),
        ("cluster", {"base": "dgx-h100", "device": "a/b"}),
        ("cluster", {"mix": [{"base": "x\\y", "nodes": 1}]}),
    ],
)
def test_no_file_is_named_by_a_browser(key, value):
    with pytest.raises(UserError, match="expected a name of the catalogue"):
        Question("tiny-2ranks").change({key: value})


def test_brackets_without_end_are_text():
    deep = "[" * 9000

    assert parse_query(f"?nodes={deep}", "tiny-2ranks").changes == {"nodes": deep}


def test_a_flood_is_refused():
    with pytest.raises(UserError, match="at most 32,000"):
        parse_query("?x=" + "y" * MOST_CHARACTERS, "tiny-2ranks")


@pytest.mark.parametrize("name", ["../tiny-2ranks", "/etc/passwd", "tiny-2ranks.toml", "<script>"])
def test_a_scenario_is_looked_up_and_never_opened_by_its_name(name):
    with pytest.raises(UserError, match="address: base"):
        Library().scenario(name)


def test_scenarios_of_a_folder_stand_before_shipped_ones(tmp_path):
    (tmp_path / "tiny-2ranks.toml").write_text('kind = "train_step"\nname = "mine"\n')
    (tmp_path / "notes.toml").write_text("x = 1\n")
    library = Library(tmp_path)

    assert (library.scenario("tiny-2ranks")[0]["name"], "notes" in library.scenarios()) == ("mine", False)


@pytest.mark.parametrize(
    ("number", "text"),
    [(2e12, "2e12"), (16384, "16384"), (1_234_567_890_123, "1234567890123"), (0.5, "0.5"), (1e16, "1e+16")],
)
def test_a_number_in_a_field_is_short_and_reads_back(number, text):
    assert (number_text(number), read_number(text)) == (text, number)
