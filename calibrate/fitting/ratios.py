"""What a device takes on from a sibling as a ratio: a class that only the sibling measured, of a class that both did.

A sibling's backward kernels say less of this device than its own forward ones, times what the sibling's backward takes
over its forward. `generic` says which class is like which one.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import exp, hypot

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...simulator.base.arrays import Floats
from ...simulator.formats.samples import features_of
from ...simulator.profile import Entry, Model, Profile, Ratio, load_profile
from ...simulator.profile.forms import cost_class

Models = Mapping[str, Mapping[str, Entry]]


def ratios_of(base: Profile, models: Models, table: pd.DataFrame) -> dict[str, dict[str, Entry]]:
    """Ratios for the classes that `base` measured and `models` lack, of classes that both have.

    `table` holds the samples of `models`. A ratio is the median over those of their shapes that `base` has measured,
    weighted by their seconds: a step is made of long kernels. What differs by its data type stays as `generic` states
    it: at which rate a type runs, a device's data sheet says.
    """
    stated = {kind: next(iter(variants.values())) for kind, variants in load_profile("generic").models.items()}
    found: dict[str, dict[str, Entry]] = {}
    for kind, entry in stated.items():
        if not isinstance(entry, Ratio) or kind in models or not base.is_measured(kind):
            continue
        if entry.like in found or (entry.like in models and _of_another_type(kind, entry.like)):
            found[kind] = {"as stated": entry}
        elif entry.like in models:
            ratio = _ratio(base, kind, entry, table[table["cost_class"] == entry.like])
            found |= {} if ratio is None else {kind: {f"as on {base.name}": ratio}}
    return found


def _of_another_type(kind: str, like: str) -> bool:
    """Whether two classes are of GEMMs in different data types."""
    return kind.startswith("gemm.") and kind.split(".")[1] != like.split(".")[1]


def _ratio(base: Profile, kind: str, stated: Ratio, rows: pd.DataFrame) -> Ratio | None:
    """The ratio of a class on `base`; None if `base` has not measured the other class, or none of these shapes."""
    known = cost_class(stated.like)
    if known is None or rows.empty or not base.is_measured(stated.like):
        return None
    both, features = (base.model(kind), base.model(stated.like)), features_of(rows, known)
    inside = np.all([_measured(model, features) for model in both], axis=0)
    if not inside.any():
        return None
    equal = replace(base, models={**base.models, kind: {"equal": replace(stated, factor=1.0)}})
    logs = np.log(base.estimate(kind, features).seconds / equal.estimate(kind, features).seconds)[inside]
    middle = _weighted_median(logs, rows["seconds"].to_numpy(float)[inside])
    spread = hypot(float(np.std(logs)), max(model.bands[-1].spread for model in both if isinstance(model, Model)))
    libraries = " over ".join(model.library for model in both if isinstance(model, Model))
    source = f"{libraries} on {base.name}: median of the {inside.sum()} shapes here that it has measured, by seconds"
    return replace(stated, factor=float(f"{exp(middle):.4g}"), spread=float(f"{spread:.3g}"), source=source)


def _measured(model: Entry, features: Mapping[str, object]) -> NDArray[np.bool_]:
    """Which shapes lie in the range that a model was measured in."""
    assert isinstance(model, Model)
    return model.growth_beyond(model.cost_class.columns(features, model.limits)) == 0


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(weights[order].cumsum(), weights.sum() / 2)])
