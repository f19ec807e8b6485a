"""Fits: what made the samples is found again, whatever their order and in spite of single bad ones."""

import itertools

import numpy as np
import pandas as pd
import pytest
from runcast.simulator.profile.forms import cost_class

SIZES = 2.0 ** np.arange(10, 31)
BETWEEN = SIZES[:-1] * 1.4


def grid(*axes):
    """All combinations, one array per axis."""
    return np.array(list(itertools.product(*axes)), float).T


SIZE, GPUS = grid(SIZES[::2], [2, 4, 8])
SIZE_OUT, GPUS_OUT = grid(SIZES[1::2], [2, 4, 8])
NODE_SIZE, NODES = grid(SIZES[::2], [2, 3, 4, 8])
NODE_SIZE_OUT, NODES_OUT = grid(SIZES[1::2], [2, 4, 6])
M, N, K = grid([128, 500, 1024, 4096, 16384], [512, 4096, 14336], [512, 2048, 8192])
M_OUT, N_OUT, K_OUT = grid([256, 2000, 8192], [1024, 7168], [1024, 4096])

IN_NODE = {"a_s": 15e-6, "h_s": 5e-7, "c_s": 3e-6, "g": 0.5, "e": 0.9}
OVER_NODES = {"a_s": 18e-6, "h_s": 4e-6, "c": 0.3, "g": 0.4, "e": 0.8, "e2": 1.2}
PRODUCT = {"t0_s": 5e-6, "e": 0.7, "e_m": 0.6, "thr": 0.2}
CODER = {"a_s": 1e-4, "e": 0.05, "g": 1.5, "y0": 0.5}


@pytest.mark.parametrize(
    ("kind", "c", "measured", "asked", "within"),
    [
        ("send_recv", {"a_s": 8e-6, "e": 0.85}, {"bytes": SIZES}, {"bytes": BETWEEN}, 0.001),
        ("copy.h2d", {"a_s": 3e-6, "e": 0.9}, {"bytes": SIZES}, {"bytes": BETWEEN}, 0.001),
        ("compress.top_k_encode", CODER, {"bytes": SIZES}, {"bytes": BETWEEN}, 0.01),
        ("all_reduce", IN_NODE, {"bytes": SIZE, "gpus": GPUS}, {"bytes": SIZE_OUT, "gpus": GPUS_OUT}, 0.03),
        (
            "all_reduce.network",
            OVER_NODES,
            {"bytes": NODE_SIZE, "gpus": 8 * NODES, "nodes": NODES},
            {"bytes": NODE_SIZE_OUT, "gpus": 8 * NODES_OUT, "nodes": NODES_OUT},
            0.04,  # latencies are pulled towards those of NCCL's tuner
        ),
        (
            "all_gather.network",
            {"a_s": 2e-5, "h_s": 3e-6, "e": 0.8},
            {"bytes": NODE_SIZE, "gpus": 8 * NODES, "nodes": NODES},
            {"bytes": NODE_SIZE_OUT, "gpus": 8 * NODES_OUT, "nodes": NODES_OUT},
            0.001,
        ),
        ("gemm.bf16", PRODUCT, {"m": M, "n": N, "k": K}, {"m": M_OUT, "n": N_OUT, "k": K_OUT}, 0.04),
        ("memory.add", {"e": 0.8}, {"bytes": SIZES}, {"bytes": BETWEEN}, 0.02),
        ("host.launch", {"item_s": 3e-6}, {"count": [1, 100, 1000]}, {"count": [7]}, 0.001),
    ],
)
def test_what_made_the_samples_is_found_again(kind, c, measured, asked, within, made, fit, off):
    model = fit(kind, made(kind, c, **measured))
    assert np.abs(off(model, made(kind, c, **asked))).max() < within


def test_rates_are_found_again_where_they_are_identified(made, fit):
    link = fit("send_recv", made("send_recv", {"a_s": 8e-6, "e": 0.85}, bytes=SIZES)).coefficients
    table = made("all_reduce.network", OVER_NODES, bytes=NODE_SIZE, gpus=8 * NODES, nodes=NODES)
    network = fit("all_reduce.network", table).coefficients
    assert (link["e"], network["e"], network["e2"]) == pytest.approx((0.85, 0.8, 1.2), rel=0.02)


@pytest.mark.parametrize(("nodes", "made_with"), [(2, {"e2": 0.44}), (4, {"e": 0.36})])
def test_rates_over_two_nodes_and_over_more_keep_their_ratio_where_one_of_them_was_measured(
    nodes, made_with, made, fit
):
    table = made("all_reduce.network", OVER_NODES | made_with, bytes=SIZES, gpus=8 * nodes, nodes=nodes)
    model = fit("all_reduce.network", table)
    assert (model.coefficients["e"], model.coefficients["e2"]) == pytest.approx((0.36, 0.44), rel=0.02)


def test_that_ratio_is_less_sure_than_further_nodes(made, fit):
    def growth(nodes):
        return fit("all_reduce.network", made("all_reduce.network", {}, bytes=1e9, gpus=8 * nodes, nodes=nodes)).growth

    assert growth(np.array([2, 2]))["nodes"] ** 2 == pytest.approx(growth(np.array([2, 4]))["nodes"] ** 2 + 0.2**2)


@pytest.mark.parametrize("factor", [0.05, 20])
@pytest.mark.parametrize("row", [0, 20, 39])
def test_one_wild_row_of_forty_hardly_matters(factor, row, made, fit, off):
    measured = np.geomspace(1e3, 1e9, 40)
    good = made("send_recv", {"a_s": 8e-6, "e": 0.85}, noise=np.exp(0.03 * np.sin(measured)), bytes=measured)
    wild = good.assign(seconds=good["seconds"] * np.where(np.arange(40) == row, factor, 1))
    with_it, without = fit("send_recv", wild), fit("send_recv", good)
    assert np.abs(off(with_it, good) - off(without, good)).max() < 0.03


@pytest.mark.parametrize("kind", ["all_reduce", "memory.add"])
def test_the_order_of_samples_does_not_matter(kind, made, fit):
    noise = np.exp(np.random.default_rng(0).normal(0, 0.05, len(SIZE)))
    table = made(kind, {}, noise=noise, bytes=SIZE, gpus=GPUS)
    shuffled = table.sample(frac=1, random_state=1)
    one, other = fit(kind, table), fit(kind, shuffled)
    assert dict(one.coefficients) == pytest.approx(dict(other.coefficients), rel=1e-6)


def test_the_same_samples_give_the_same_bits(made, fit):
    table = made("gemm.bf16", PRODUCT, noise=np.exp(np.random.default_rng(0).normal(0, 0.1, len(M))), m=M, n=N, k=K)
    assert fit("gemm.bf16", table).to_json() == fit("gemm.bf16", table.copy()).to_json()


@pytest.mark.parametrize(
    ("kind", "features"),
    [
        ("send_recv", {"bytes": 1e6}),
        ("all_reduce", {"bytes": 1e6, "gpus": 8}),
        ("all_reduce.network", {"bytes": 1e9, "gpus": 32, "nodes": 4}),
        ("gemm.bf16", {"m": 4096, "n": 4096, "k": 4096}),
        ("memory.add", {"bytes": 1e8}),
        ("host.launch", {"count": 10}),
    ],
)
def test_a_single_sample_is_reproduced_and_all_else_is_beyond(kind, features, made, fit, off):
    table = made(kind, {}, noise=1.2, **features)
    model = fit(kind, table)
    assert (abs(off(model, table)[0]) < 0.03, model.held_out.rows) == (True, 0)
    assert model.estimate({name: 2 * value for name, value in features.items()}).labels() == ["extrapolated"]


def test_more_rows_than_a_fit_needs_give_the_same_answer(made, fit, off):
    measured = np.geomspace(1e3, 1e9, 2000)
    model = fit("send_recv", made("send_recv", {"a_s": 8e-6, "e": 0.85}, bytes=measured))
    assert dict(model.coefficients) == pytest.approx({"a_s": 8e-6, "e": 0.85}, rel=0.001)


def test_a_model_knows_what_was_measured(made, fit):
    model = fit("all_reduce", made("all_reduce", IN_NODE, group=np.where(SIZE > 1e6, "a", "b"), bytes=SIZE, gpus=GPUS))
    assert (model.range, model.groups, model.fitted.rows) == (
        {"bytes": (2.0**10, 2.0**30), "gpus": (2, 8), "link_bytes_per_s": (400e9, 400e9)},
        2,
        33,
    )


def test_each_number_of_gpus_with_enough_sizes_has_a_curve(made, fit):
    sizes, gpus = np.array([(s, 8) for s in SIZES[:5]] + [(s, 4) for s in SIZES[:4]]).T
    assert list(fit("all_reduce", made("all_reduce", IN_NODE, bytes=sizes, gpus=gpus)).curves) == [8]


def test_a_curve_follows_what_the_formula_cannot(made, fit, off):
    bent = made("all_reduce", IN_NODE, noise=np.where(SIZES > 2**20, 1.5, 1.0), bytes=SIZES, gpus=8)
    model = fit("all_reduce", bent)
    assert np.median(np.abs(off(model, bent))) < 0.02


def test_tiny_products_count_only_where_there_are_no_others(made, fit, off):
    tiny = made("gemm.bf16", PRODUCT, noise=3.0, m=[1, 2, 4, 8] * 10, n=512, k=512)
    real = made("gemm.bf16", PRODUCT, m=M, n=N, k=K)
    both, alone = (fit("gemm.bf16", table) for table in (pd.concat([tiny, real], ignore_index=True), tiny))
    assert np.median(np.abs(off(both, real))) < 0.02
    assert np.median(np.abs(off(alone, tiny))) < 0.02


def test_a_power_limit_is_seen_in_long_products(made, fit):
    limited = fit("gemm.bf16", made("gemm.bf16", PRODUCT | {"thr": 0.4}, m=M, n=N, k=K)).coefficients["thr"]
    free = fit("gemm.bf16", made("gemm.bf16", PRODUCT | {"thr": 0.01}, m=M, n=N, k=K)).coefficients["thr"]
    assert limited > 2 * free


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather"])
def test_coefficients_stay_within_bounds_whatever_the_samples(kind, made, fit):
    noise = np.exp(np.random.default_rng(3).normal(0, 1.5, len(SIZE)))
    model = fit(kind, made(kind, {}, noise=noise, bytes=SIZE, gpus=GPUS))
    bounds = {c.name: (c.low, c.high) for c in cost_class(kind).form.coefficients}
    outside = [n for n, v in model.coefficients.items() if not bounds[n][0] * 0.999999 <= v <= bounds[n][1] * 1.000001]
    assert outside == []


HEADS = {"batch": 1, "seq": 256, "kv_heads": 8, "causal": 1}


@pytest.mark.parametrize(
    ("kind", "name", "features"),
    [
        ("attention.backward", "s64", HEADS | {"heads": [8, 16, 32], "head_dim": 64}),
        ("attention.backward", "few", HEADS | {"heads": 8, "head_dim": [32, 64, 128]}),
        ("memory.add", "narrow", {"bytes": [1e5, 1e6, 1e7], "width": 512}),
        ("grouped_gemm.bf16", "s", {"tokens": [64, 256, 1024], "hidden": 1024, "inter": 512, "topk": 2, "experts": 8,
                                    "tp": 1, "ep": 1, "skew": 1.2, "matrices": 3}),
    ],
)  # fmt: skip
def test_samples_of_one_value_do_not_tell_what_another_one_changes(kind, name, features, made, fit):
    """They take so much longer than the form may that any free coefficient runs to its bound."""
    start = next(c.start for c in cost_class(kind).form.coefficients if c.name == name)
    assert fit(kind, made(kind, {}, noise=50.0, **features)).coefficients[name] == start
