"""What parameters do to rows, what is free, and that files say what a fit used."""

import numpy as np
import pytest
from runcast.calibrate.fitting.ledger import least_squares
from runcast.calibrate.fitting.owners import ARCHITECTURE, NETWORK, owner_of, statements
from runcast.calibrate.fitting.step_ledger import Crew, _entries, simulate_all, watch
from runcast.calibrate.fitting.steps import CLOCK, RATE, SMALL, Design, is_no_slower
from runcast.simulator.answers.validate.steps import read_cases, shipped_table
from runcast.simulator.profile import load, load_architecture, load_network, load_profile, load_stack
from runcast.simulator.profile.parameters import parameters

DENSE, MOE, SIXTEEN = "torchtitan-1d15bccfcd", "nvidia_dgxc-05c7876c47", "simumax_b200-6c4a45a060"  # fp8, fp8, bf16
BLOCKED = "hf_ultrascale-66a25fcacf"  # tensor parallelism in a pipeline over nodes
FAR = "hf_ultrascale-2e978fe71c"  # and over nodes itself
SIBLING = "nvidia_megatron_bridge-56f7996c01"  # B300, of whose GEMMs in 16 bits only GPT-OSS tells
KEYS = (
    DENSE, MOE, SIXTEEN, BLOCKED, FAR,
    "mosaic_llmfoundry-f25237a6cd", "nvidia_dgxc-2c7e132ede", "nvidia_dgxc-af4caea272",
    "megatron2020_tex-2fb2376f18", "vtrain_multi-0bc9127df0", "mlperf_nvidia-c2b6e86d4e",
    "nvidia_megatron_bridge-738b681900", "nvidia_megatron_bridge-021e255ffa", SIBLING,
)  # fmt: skip


class Here(Crew):
    """A crew of this process alone."""

    def __init__(self, cases):
        self.cases = cases

    def predict(self, values):
        return {row: self.cases[row].answer(of, memory=False) for row, of in values.items()}


@pytest.fixture(scope="module")
def cases():
    return [case for case in read_cases(shipped_table()) if case.key in KEYS]


@pytest.fixture(scope="module")
def watched(cases):
    """A Design that knows which rows each parameter moves, and a simulation with factors below one."""
    design = Design(cases)
    rows = simulate_all(design, Here(cases), np.full(len(design.free), -0.05))
    watch(design, Here(cases), rows)
    return design, rows


def at(design, of, name):
    return [(free.of, free.name) for free in design.free].index((of, name))


SLOW = [pytest.param(key, marks=pytest.mark.slow) for key in (SIXTEEN, DENSE, MOE, FAR)]


@pytest.mark.parametrize("key", [BLOCKED, *SLOW])
def test_slopes_are_those_of_simulations(cases, watched, key):
    """To 3 % of a row's time: exchanges that are hidden slow kernels a little, which no critical path says.

    But for the host of a far pipeline whose groups are on several nodes: it also waits for exchanges.
    """
    design, rows = watched
    row = [case.key for case in cases].index(key)
    slopes, values = design.slopes(rows, rows.u)[row], design.values(row, rows.u)
    own = {design.free[i].name: slopes[i] for i in np.unique(design.at[design.row == row])}
    waits = own.pop("time_factor.host") if key == FAR else 0.0
    assert waits < 0.75
    both = [{**values, name: values[name] * np.exp(by)} for name in own for by in (SMALL, -SMALL)]
    seconds = np.log([cases[row].answer(changed, memory=False).seconds for changed in both]).reshape(-1, 2)
    difference = dict(zip(own, (seconds[:, 0] - seconds[:, 1]) / 2 / SMALL, strict=True))
    assert own == pytest.approx(difference, abs=0.03)
    assert max(difference.values()) > 0.2


def test_products_of_experts_and_16_bit_products_of_8_bit_steps_have_clocks_too(cases, watched):
    design, rows = watched
    slopes = design.slopes(rows, rows.u)[[case.key for case in cases].index(MOE)]
    gemm, experts = (slopes[at(design, "generic", f"time_factor.{phase}")] for phase in ("gemm", "experts"))
    eight = slopes[at(design, "h100-sxm", "gemm.training_rate.fp8")]
    assert -gemm - experts < eight < -0.9 * experts  # casts of what enters them do not go with the rate
    assert slopes[at(design, "h100-sxm", "gemm.training_rate")] < -0.05


def test_what_one_stack_says_is_said_of_that_stack(cases, watched):
    design, _ = watched
    known = design.tell_about(np.ones(len(cases), bool))
    assert known[at(design, "generic", "time_factor.gemm")]
    assert known[at(design, "nanotron", "time_factor.host")]
    assert not known[at(design, "generic", "time_factor.host")]  # of these rows only nanotron's wait for the host
    assert known[at(design, "nemo", "time_factor.experts")]  # a base, of which one row here is its own
    without = np.array([case.stack != "nanotron" for case in cases])
    assert not design.tell_about(without)[at(design, "nanotron", "time_factor.host")]


def test_what_is_not_known_stays_as_stated(cases, watched):
    design, rows = watched
    every = np.ones(len(cases), bool)
    u = design.solve(rows, every, np.full(len(design.free), 0.1))
    known, bound = design.tell_about(every), np.array([is_no_slower(*free) for free in design.free])
    assert set(u[~known]) == {0.0}
    assert np.abs(u[known & ~bound]).min() > 0
    assert u[bound].min() >= 0


def test_flash_attention_2_is_a_factor_where_it_was_not_measured(cases, watched):
    design, _ = watched
    known = design.tell_about(np.ones(len(cases), bool))
    name = "attention.flash2_factor"
    assert known[at(design, "a100-sxm", name)]
    assert ("h100-sxm", name) not in [(free.of, free.name) for free in design.free]
    row = [case.key for case in cases].index("mosaic_llmfoundry-f25237a6cd")
    assert design.values(row, np.zeros(len(design.free)))[name] == 0.62  # as stated, whatever an older fit found


def test_what_a_sibling_has_of_its_own_moves_gemms_of_all_types(cases, watched):
    design, _ = watched
    row, u = [case.key for case in cases].index(SIBLING), np.zeros(len(design.free))
    u[at(design, "b300", "gemm.clock")] = 0.1
    rate = "gemm.training_rate"
    assert design.values(row, u)[rate] == pytest.approx(design.values(row, 0 * u)[rate] * np.exp(0.1))
    assert [design.adds(at(design, "b300", name), u) for name in (rate, "gemm.clock")] == [True, False]


def test_files_say_what_the_fit_used(cases, watched, monkeypatch):
    """Also where a stack states a number of its own and only its base moved."""
    design, rows = watched
    u = np.random.default_rng(0).normal(0, 0.2, len(design.free)) * design.tell_about(np.ones(len(cases), bool))
    u[at(design, "generic", "time_factor.host")] = 0.5
    assert not u[at(design, "pytorch-fsdp", "time_factor.host")]
    tables = _entries(design, u, design.effects(rows))
    entries = {folder: {of: parameters(of, table) for of, table in tables[folder].items()} for folder in tables}
    monkeypatch.setattr(load, "fitted_parameters", lambda folder="stacks": entries[folder])
    monkeypatch.setattr(load, "_fits", lambda stated, folder: statements(tables).get(folder, {}))
    for row, case in enumerate(cases):
        kind = NETWORK.of_case(case)
        loaded = load_profile(case.resolved.profile_name).join(load_network(kind)).join(load_stack(case.stack))
        if of := ARCHITECTURE.of_case(case):
            loaded = loaded.join(load_architecture(of))
        used = design.values(row, u)
        plain = loaded.value_or("gemm.training_rate", 1.0)
        otherwise = {name: plain if name.startswith("gemm.") else 1.0 for name in used}
        assert {name: loaded.value_or(name, otherwise[name]) for name in used} == pytest.approx(used, rel=1e-3)
    follows = tables["stacks"]["pytorch-fsdp"]["time_factor.host"]
    assert follows["value"] == pytest.approx(30.0 * np.exp(0.5), rel=1e-3)
    assert "no training step" in follows["source"]
    assert all(owner_of(name).table == of for of in tables for table in tables[of].values() for name in table)


def test_messages_are_free_on_networks_that_the_profile_was_not_measured_on(cases, watched):
    design, rows = watched
    place = at(design, "efa", "network.message_s")
    ran = {cases[row].stack for row in design.row[design.at == place].tolist()}
    assert ran == {"nanotron"}  # the others' machines have InfiniBand
    assert design.slopes(rows, rows.u)[:, place].max() > 0
    assert not any(free.name == "network.message_s" and free.of != "efa" for free in design.free)


def test_rows_of_none_tell_nothing(cases, watched):
    design, _ = watched
    assert not design.tell_about(np.zeros(len(cases), bool)).any()


@pytest.mark.parametrize(
    ("of", "name", "bound"),
    [
        ("b300", RATE, True),
        ("gb300", CLOCK, True),
        ("b300", f"{RATE}.fp4", False),  # its peak in 4 bits is higher
        ("gb200", RATE, False),  # the peaks of its sheet are
        ("h20", RATE, False),  # half of H100's chip
        ("h100-sxm", RATE, False),  # rests on no device
        ("b300", "grouped_gemm.training_rate", False),
        ("megatron-lm", "time_factor.gemm", False),
    ],
)
def test_a_sibling_of_equal_peak_and_no_less_power_is_no_slower(of, name, bound):
    assert is_no_slower(of, name) == bound


def test_a_bounded_parameter_stays_and_the_others_fit_what_is_left():
    """Rows of two parameters: a + b = -1 and b = 0.5 want a = -1.5; with a at 0 or above b alone is between both."""
    slopes, error, loose = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([1.0, -0.5]), np.full(2, 1e6)

    free = least_squares(error, slopes, np.ones(2), np.zeros(2), loose)
    bound = least_squares(error, slopes, np.ones(2), np.zeros(2), loose, np.array([0.0, -np.inf]))

    assert (free, bound) == (pytest.approx([-1.5, 0.5], abs=1e-6), pytest.approx([0.0, -0.25], abs=1e-6))
