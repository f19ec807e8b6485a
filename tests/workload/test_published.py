"""Every preset against the parameter count that others published, and the page that lists them."""

from pathlib import Path

import pytest
from runcast.simulator.models import active_params, preset, preset_names, total_params

from .models_page import page
from .published import PUBLISHED, Figure, counted

ROOT = Path(__file__).parents[2]
ROUNDED = {"megatron-gpt-1.7b", "megatron-gpt-3.6b", "megatron-bert-4b"}  # their last digit is coarser than 0.5 %
by_preset = pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row.preset)


def test_every_preset_has_a_published_count():
    assert sorted(row.preset for row in PUBLISHED) == preset_names()


@by_preset
def test_total_params_are_the_published_ones(row):
    count, _ = counted(preset(row.preset), row)
    published = Figure.of(row.total)
    assert published.agrees(count)
    assert count == pytest.approx(published.value, rel=5e-3) or row.preset in ROUNDED


@pytest.mark.parametrize("row", [row for row in PUBLISHED if row.active], ids=lambda row: row.preset)
def test_active_params_are_the_published_ones(row):
    _, active = counted(preset(row.preset), row)
    assert Figure.of(row.active).agrees(active)


def test_every_moe_preset_has_published_active_params_but_two():
    without = {row.preset for row in PUBLISHED if not row.active and preset(row.preset).moe}
    assert without == {"grok-1", "glm-5.2"}  # said once, and off by 3 %; not said


@pytest.mark.parametrize(
    ("text", "count", "agrees"),
    [
        ("8,030,261,248", 8_030_261_248, True),
        ("8,030,261,248", 8_030_261_247, False),
        ("8,030,261,248", 8_030_261_249, False),
        ("314 B", 313.5e9, True),
        ("314 B", 314.9e9, True),
        ("314 B", 315e9, False),
        ("1.32 B", 1.3157e9, True),
        ("1.32 B", 1.3149e9, False),
    ],
)
def test_a_figure_is_as_precise_as_its_last_digit(text, count, agrees):
    assert Figure.of(text).agrees(count) == agrees


def test_grok_1_misses_its_rounded_name():
    """314 B is the count without the embedding, cut off; with it, ours is 0.54 % more. Its card says 86 B active."""
    spec = preset("grok-1")
    assert total_params(spec) / 314e9 - 1 == pytest.approx(0.0054, abs=1e-4)
    assert active_params(spec) == pytest.approx(83.76e9, rel=1e-3)


def test_the_page_lists_what_is_counted():
    assert (ROOT / "docs/models.md").read_text() == page()
