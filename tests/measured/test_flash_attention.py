"""What H100's profile says of FlashAttention-2 is what our own H100 measured beside the profile's kernels."""

import gzip
import json
from math import log
from pathlib import Path

import numpy as np
import pytest
from runcast.simulator.profile import load_profile
from runcast.simulator.systems.train_step.flash_attention import FLASH2

RECORDS = Path(__file__).parents[2] / "data/measured/h100-sxm/suite.jsonl.gz"


def ratios(profile, head_dim):
    """(seconds of PyTorch's flash kernels, their ratio to the profile's attention) by shape."""
    found = []
    with gzip.open(RECORDS, "rt") as lines:
        for one in map(json.loads, lines):
            if one.get("library") == "torch flash" and one["params"]["head_dim"] == head_dim:
                own = profile.estimate(one["cost_class"], {k: np.array([v]) for k, v in one["features"].items()})
                seconds = float(np.median(one["samples"])) * 1e-6
                found.append((seconds, seconds / float(own.seconds[0])))
    return np.array(found).T


@pytest.mark.parametrize("head_dim", [64, 128])
def test_the_factor_is_what_was_measured(head_dim):
    profile = load_profile("h100-sxm", fitted=False)
    seconds, ratio = ratios(profile, head_dim)
    order = np.argsort(ratio)
    middle = ratio[order][np.searchsorted(np.cumsum(seconds[order]), seconds.sum() / 2)]
    stated = profile[FLASH2]
    assert abs(log(middle / stated.value)) < 1.5 * stated.spread
