"""The numbers of a training report, each against its definition, and the keys of its JSON."""

import json
from dataclasses import replace

import pytest
from runcast.simulator.costs import PHASES
from runcast.simulator.predict import simulate
from runcast.simulator.systems.train_step.report import TrainReport
from runcast.simulator.systems.train_step.text import words

from ..lowering.steps import DENSE, resolved

KEYS = {
    "kind", "name", "scenario_hash", "makespan_s", "peak_memory_bytes", "exposed", "provenance", "step_time_s",
    "tokens_per_s", "tokens_per_s_per_gpu", "model_flops_per_gpu", "mfu", "bubble_fraction", "compute_s",
    "memory_by_rank_bytes", "cost",
}  # fmt: skip


@pytest.fixture(scope="module")
def report() -> TrainReport:
    return simulate(resolved(4, 8, parallel={"pp": 2, "tp": 2}, batch={"seq_len": 1024}).scenario).report


def test_json_has_the_promised_keys_and_plain_values(report):
    found = json.loads(json.dumps(report.to_json()))
    assert KEYS - set(found) == set()
    assert (found["kind"], found["makespan_s"]) == ("train_step", found["step_time_s"])


def test_headlines_are_what_their_names_say(report):
    peak = 989.4e12  # dense BF16 of an H100 SXM, data sheet
    assert report.tokens == 8 * 1024
    assert report.tokens_per_s_per_gpu == pytest.approx(report.tokens / report.step_time_s / 4)
    assert report.mfu == pytest.approx(report.model_flop / (4 * peak * report.step_time_s), rel=1e-3)
    assert report.mfu_full > report.mfu
    assert set(report.split_s) == set(PHASES)
    assert sum(report.split_s.values()) == pytest.approx(report.step_time_s)
    assert sum(report.exposed.values()) == pytest.approx(report.step_time_s)
    assert sum(report.provenance.values()) == pytest.approx(1)


def test_model_flop_are_six_per_parameter_and_token_and_attention(report):
    spec = resolved().spec
    width = spec.head_dim * (2 * spec.num_attention_heads + 2 * spec.num_key_value_heads)
    dense = spec.num_hidden_layers * spec.hidden_size * (width + 3 * spec.intermediate_size)
    products = dense + spec.vocab_size * spec.hidden_size
    attention = spec.num_hidden_layers * 12 * 1024 * spec.num_attention_heads * spec.head_dim
    assert report.full_flop == pytest.approx(report.tokens * (6 * products + attention))
    assert report.model_flop == pytest.approx(report.tokens * (6 * products + attention / 2))


def test_recomputation_counts_as_time_and_not_as_work():
    plain, again = (
        simulate(resolved(1, 2, recompute={"mode": mode}, batch={"seq_len": 4096}).scenario).report
        for mode in ("none", "full")
    )
    assert plain.model_flop == again.model_flop
    assert again.step_time_s > plain.step_time_s
    assert again.mfu < plain.mfu


def test_a_padded_vocabulary_counts_as_time_and_not_as_work():
    plain, padded = (
        simulate(resolved(1, 2, parallel={"pad_vocab": multiple}, batch={"seq_len": 4096}).scenario).report
        for multiple in (1, 4096)
    )
    assert (padded.model_flop, padded.step_time_s > plain.step_time_s) == (plain.model_flop, True)


def test_equal_scenarios_have_equal_hashes_and_names_do_not_count():
    scenario = resolved(1).scenario
    reports = [simulate(replace_name(scenario, name)).report for name in ("a", "a", "b")]
    assert len({one.scenario_hash for one in reports}) == 1
    assert replace(reports[0], name="") == replace(reports[2], name="")
    other = simulate(resolved(1, model={**DENSE, "mtp": True}, overrides={"num_hidden_layers": 3}).scenario).report
    assert other.scenario_hash != reports[0].scenario_hash


def replace_name(scenario, name):
    return scenario.model_copy(update={"name": name})


def test_without_a_pipeline_nothing_waits_for_other_stages():
    alone = simulate(resolved(4, 2, parallel={"tp": 2}, batch={"seq_len": 1024}).scenario).report
    assert alone.bubble_fraction == 0.0
    assert alone.split_s["dp"] > 0


def test_the_coarser_level_says_what_kernels_do():
    kernels, coarse = (
        simulate(resolved(4, 8, parallel={"pp": 2, "tp": 2}, batch={"seq_len": 512}, level=level).scenario).report
        for level in ("kernels", "coarse")
    )
    assert [row[0] for row in words(coarse).phases.rows] == [row[0] for row in words(kernels).phases.rows]


def test_the_loss_has_a_row_of_its_own(report):
    (row,) = (row for row in words(report).phases.rows if row[0] == "loss")
    assert row[-1] == "cross entropy"


def of_words(vocabulary: int, level: str = "kernels") -> TrainReport:
    """A small model whose head is a large part of it, with tokens enough that no host is in its way."""
    model = {"vocab_size": vocabulary, "hidden_size": 512, "head_dim": 64}
    return simulate(resolved(1, 1, overrides=model, batch={"seq_len": 4096}, level=level).scenario).report


@pytest.mark.parametrize("level", ["kernels", "coarse"])
def test_a_note_says_what_awkward_shapes_cost_and_what_to_pad(level):
    odd, neat = of_words(20001, level), of_words(20032, level)
    (note,) = [note for note in odd.notes if note.startswith("awkward shapes")]
    share = float(note.split()[3].removesuffix("%")) / 100
    assert note.endswith("of the step: vocabulary per rank 20,001: pad to 20,032")
    assert share == pytest.approx(1 - neat.step_time_s / odd.step_time_s, abs=0.002)
    assert not [note for note in neat.notes if "awkward" in note]
