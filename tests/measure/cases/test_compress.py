import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from dataclasses import replace

from runcast.calibrate.measure.cases.compress import cases
from runcast.kernels.compress import METHODS
from runcast.simulator.systems.run.sync.compression import Compress, Gpus, Gradient, compress

from .families import BENCH, CPU, GPU, check, each, measures, one

SETTINGS = {method: {"density": 0.01} for method in ("top_k", "threshold", "random", "block")}
SETTINGS["low_rank"] = {"rank": 4, "rows": 512, "columns": 512}


@each
def test_cases_are_sound(facts):
    check(cases, facts)


def test_every_method_is_encoded_and_decoded_at_several_sizes():
    for facts, sizes in ((CPU, 4), (GPU, 6)):
        names = [case.name for case in cases(facts)]
        parts = {f"{method}_{part}" for method in METHODS for part in ("encode", "decode")}
        assert {name: names.count(name) for name in names} == dict.fromkeys({*parts, "clear"}, sizes)


@pytest.mark.parametrize("name", sorted({case.name for case in cases(CPU)}))
def test_cases_run_and_give_back_what_they_promise(name):
    measures(one(cases, CPU, name, bytes=1 << 20))


@pytest.mark.parametrize("method", ["int8", "top_k", "block"])
@pytest.mark.parametrize("part", ["encode", "decode"])
def test_a_message_that_is_lost_is_seen(method, part, monkeypatch):
    monkeypatch.setitem(METHODS, method, replace(METHODS[method], decode=lambda _message, total: total.zero_()))
    assert one(cases, CPU, f"{method}_{part}", bytes=1 << 20).measure(BENCH).wrong > 0


@pytest.mark.parametrize("method", METHODS)
def test_a_run_asks_by_the_bytes_that_are_measured(method):
    """Of one gradient of 1 MiB in float32."""
    asked = {}
    keys = Compress(method=method, **SETTINGS.get(method, {}))
    compress(keys, Gradient(1 << 20, 4), 1, Gpus(1, 1e9, 1e9, asked.__setitem__))
    known = {case.name: case.features["bytes"] for case in cases(CPU) if case.params["bytes"] == 1 << 20}
    assert {f"{method}_encode", f"{method}_decode"} <= {*asked}
    assert asked == pytest.approx({part: known[part] for part in asked})
