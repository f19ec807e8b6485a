"""What the fit left open of software and devices becomes errors of phases; what it has not seen is less sure."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from runcast.simulator import simulate
from runcast.simulator.answers.validate.steps import shipped_table
from runcast.simulator.base.files import digest
from runcast.simulator.costs import PHASES
from runcast.simulator.predict import TrainPrediction
from runcast.simulator.profile import FACTORS, SCHEMA, Model, load_profile, write_models
from runcast.simulator.scenario import check_train, load_question, resolve
from runcast.simulator.systems.train_step.errors import errors_of_phases
from runcast.simulator.systems.train_step.resolve import ResolvedTrain
from runcast.simulator.uncertainty import Fit, Term, phase_errors, shipped_fit

STEP = Path(__file__).parents[2] / "data/scenarios/train-llama3-8b-8xh100.toml"
GEMM, TP = PHASES.index("gemm"), PHASES.index("tp")
APART = {"time_factor.gemm": 0.3, "time_factor.tp": 0.4}
FIT = Fit(
    covariance=np.array([[0.04, -0.01], [-0.01, 0.09]]),
    index={("base", "time_factor.gemm"): 0, ("own", "time_factor.gemm"): 1},
    apart=APART,
    heard=frozenset({"own"}),
    sources={("own", "gpu"): frozenset({"one"}), ("own", "other"): frozenset({"one", "two"})},
    novelty=0.5,
)


def variance(*terms: Term) -> float:
    return float(phase_errors(terms, FIT).covariance[GEMM, GEMM])


def gemm(of: str, power: float = 1.0, stated: float | None = None) -> Term:
    return Term(GEMM, of, "time_factor.gemm", power, stated)


def test_a_stack_and_its_base_are_off_together():
    assert variance(gemm("own"), gemm("base")) == pytest.approx(0.04 + 0.09 - 2 * 0.01)


def test_software_that_no_row_ran_with_is_apart_from_its_base():
    assert variance(gemm("new"), gemm("base")) == pytest.approx(0.04 + (0.5 * 0.3) ** 2)


def test_a_base_that_no_row_ran_with_stands_for_software_that_is_apart_from_it():
    assert variance(gemm("base")) == pytest.approx(0.04 + (0.5 * 0.3) ** 2)


def test_what_a_user_states_stands_for_itself():
    assert variance(gemm("mine.toml", stated=0.02)) == pytest.approx(0.02**2)


def test_one_parameter_behind_two_phases_is_one_error():
    terms = Term(GEMM, "new", "time_factor.tp", 1.0), Term(TP, "new", "time_factor.tp", -0.5)
    found = phase_errors(terms, FIT).covariance
    assert found[GEMM, TP] == pytest.approx(-0.5 * (0.5 * 0.4) ** 2)


def test_a_source_of_the_fit_is_no_new_site():
    assert FIT.site_weight("own", ["gpu"], "one") == 0.0


def test_another_site_differs_from_the_mean_of_those_that_are_known():
    """site^2 of its own, and site^2 / m of the mean of m sites; no site says no more than one."""
    weights = [FIT.site_weight(*asked, "mine") for asked in (("own", ["gpu"]), ("own", ["other"]), ("new", ["gpu"]))]
    assert weights == [2.0, 1.5, 2.0]


def test_a_mix_of_devices_is_known_as_its_least_known_one():
    assert FIT.site_weight("own", ["gpu", "other"], "mine") == 2.0


def log_width(*changes: str) -> float:
    found = simulate(STEP, changes)
    assert isinstance(found, TrainPrediction)
    return float(np.log(found.report.interval_high_s / found.report.interval_low_s))


def test_a_stack_of_many_rows_is_surer_than_one_of_none():
    assert log_width("stack=nemo") < 0.9 * log_width("stack=generic")


def test_a_device_that_steps_ran_on_is_surer_than_one_that_none_did():
    known, unknown = (log_width("stack=nemo", f"cluster={cluster}") for cluster in ("h100-hgx", "h20-hgx"))
    assert known < unknown


def users_stack(file: Path, spread: float) -> str:
    factors = "\n".join(f'"time_factor.{phase}" = {{ value = 1.0, spread = {spread}, provenance = "measured", '
                        f'source = "mine" }}' for phase in ("gemm", "attention", "memory", "loss"))  # fmt: skip
    file.write_text(f'schema = 2\nname = "mine"\nbase = "generic"\n[parameters]\n{factors}\n')
    return f"stack={file}"


def test_a_users_stack_is_as_sure_as_it_says(tmp_path):
    sure, unsure = (log_width(users_stack(tmp_path / f"{spread}.toml", spread)) for spread in (0.01, 0.2))
    assert sure < 0.9 * unsure


def own_profile(file: Path, spread: float) -> str:
    """A user's profile of an H100 with the shipped sums over GPUs, as sure as is asked for; the rest is taken over."""
    of_base = load_profile("h100-sxm").models["all_reduce"]["nccl 2.29.2"]
    assert isinstance(of_base, Model)
    bands = tuple(replace(band, spread=spread) for band in of_base.bands)
    models = write_models({"all_reduce": {"nccl mine": replace(of_base, bands=bands)}})
    file.write_text(json.dumps({"schema": SCHEMA, "base": "h100-sxm", "models": models}))
    return f"profile={file}"


TP_STEP = "parallel={tp = 8, zero = 0, sequence_parallel = false}"


def test_a_profile_that_measured_some_ops_is_as_sure_of_the_others_as_its_base(tmp_path):
    assert log_width(TP_STEP, own_profile(tmp_path / "own.json", 0.0)) == pytest.approx(log_width(TP_STEP), rel=0.02)


@pytest.mark.parametrize("level", ["kernels", "coarse"])
def test_what_a_profile_measured_is_as_sure_as_its_samples(level, tmp_path):
    changes = TP_STEP, f"level={level}"
    sure, unsure = (log_width(*changes, own_profile(tmp_path / f"{spread}.json", spread)) for spread in (0.0, 0.5))
    assert unsure > 1.2 * sure


def sheet(change: str) -> str:
    """An H100 of a data sheet that differs in one number."""
    return f"cluster={{ base = 'dgx-h100', device = {{ base = 'h100-sxm', name = 'mine', {change} }} }}"


def test_a_data_sheet_says_less_than_steps_on_the_device():
    assert log_width(sheet("memory_bytes_per_s = '4 TB/s'")) > 1.2 * log_width()


def test_the_farther_a_data_sheet_the_less_it_says():
    widths = [log_width(sheet(f"memory_bytes_per_s = '{rate} TB/s'")) for rate in (4, 5, 7)]
    assert widths == sorted(widths)


def test_a_step_on_a_data_sheet_has_an_error_of_its_own():
    resolved = resolve(load_question(STEP, [sheet("memory_bytes_per_s = '4 TB/s'")]))
    without = replace(shipped_fit(), data_sheet=0.0)
    wide, narrow = (errors_of_phases(resolved, fit).covariance for fit in (shipped_fit(), without))
    grown = wide - narrow
    every = np.array([phase in FACTORS for phase in PHASES], float)

    assert grown == pytest.approx(shipped_fit().data_sheet ** 2 * np.outer(every, every))


def test_a_data_sheet_with_the_rates_of_a_device_is_that_device():
    assert log_width(sheet("memory = '94 GB'")) == log_width()


def test_a_device_that_rows_ran_on_is_no_data_sheet():
    resolved = resolve(load_question(STEP, [sheet("memory_bytes_per_s = '4 TB/s'")]))
    known = replace(shipped_fit(), heard=shipped_fit().heard | {"mine"})
    assert (
        errors_of_phases(resolved, known).covariance[GEMM, GEMM]
        < errors_of_phases(resolved, shipped_fit()).covariance[GEMM, GEMM]
    )


def test_the_shipped_errors_are_of_the_shipped_ledger():
    fit = shipped_fit()
    least = np.linalg.eigvalsh(fit.covariance).min()
    assert (fit.about["sha256"], bool(least > -1e-6)) == (digest(shipped_table()), True)


def test_a_configuration_differs_by_more_than_a_repeated_run():
    assert shipped_fit().floor > shipped_fit().run_to_run > 0


@pytest.mark.parametrize(("preset", "own"), [("qwen3-30b-a3b", True), ("llama3-8b", False)])
def test_hosts_of_layers_with_experts_are_off_as_their_stack_states(preset, own):
    """Beside the site; without experts the stack's hosts are those of its base, of which the ledger says little."""
    stack = {"kind": "train_step", "cluster": "dgx-b200", "stack": "megatron-bridge-no-graphs"}
    step = ResolvedTrain(check_train(stack | {"model": {"preset": preset}, "batch": {"global": 8, "seq_len": 4096}}))
    variance = np.diag(errors_of_phases(step, replace(shipped_fit(), site=0.0)).covariance)[PHASES.index("host")]

    assert bool(variance == pytest.approx(0.25**2)) is own
