"""References of Hydra's configs to keys of the same file."""

import pytest
from runcast.simulator.formats.recipes.references import resolve

TABLE = {"model": {"size": 8, "none": None, "inner": {"size": 2}}, "a": "${model.size}"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${model.size}", 8),
        ("${a}", 8),
        ("${model.inner.size}", 2),
        ("x-${model.size}-${a}", "x-8-8"),
        ("${multiply:4,${model.size}}", 32),
        ("${oc.select:model.size,4}", 8),
        ("${oc.select:model.other,4}", 4),
        ("${oc.select:model.other,null}", "null"),
        ("${model.none}", "null"),
        ("${model.other}", "${model.other}"),
        ("${model}", "${model}"),
        ("${multiply:4,x}", "${multiply:4,x}"),
        ("${training.model.size}", 8),
        ("${b}", "${b}"),
    ],
)
def test_what_a_reference_means(text, value):
    assert resolve(TABLE | {"b": text})["b"] == value
