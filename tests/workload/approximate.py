"""How far steps are off where known models are read as if they were built like Llama, as `model.unknown` does.

`python -m tests.workload.approximate` prints it; data/architectures.toml has the result as the spread of `approximate`.
"""

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
from runcast.simulator.base.errors import UserError
from runcast.simulator.models import hf
from runcast.simulator.predict import simulate
from runcast.simulator.systems.train_step.scenario import TrainScenario

from .built import read_models


def refuse(keys, family, model_type):
    """In place of the checks of a family: whatever it is, it is not modelled."""
    keys.fault("model_type", "not modelled")


def step_s(config, unknown):
    """Seconds of a step on a node of H100, weights sharded and layers computed again."""
    scenario = TrainScenario.model_validate({
        "kind": "train_step", "cluster": "dgx-h100", "model": {"config": config, "unknown": unknown},
        "parallel": {"zero": 3}, "recompute": {"mode": "full"}, "batch": {"global": 64, "seq_len": 4096},
    })  # fmt: skip
    return simulate(scenario).report.step_time_s


def ratios() -> Iterator[tuple[str, float]]:
    """Each type that can be read so, and its time over that of the real model."""
    for model in read_models():
        try:
            real = step_s(model.config, "refuse")
            with patch.object(hf, "refuse", refuse):
                yield model.model_type, step_s(model.config, "approximate") / real
        except UserError:
            continue


if __name__ == "__main__":
    found = dict(ratios())
    off = np.sort(np.abs(np.log(list(found.values()))))
    for name, part in (("all", off), ("the quarter that differs most", off[-(len(off) // 4) :])):
        print(f"{name}: {len(part)} types, root mean square {np.sqrt((part**2).mean()):.1%}, at most {part.max():.0%}")
