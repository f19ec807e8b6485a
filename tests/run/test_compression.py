import json
import subprocess
import sys
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from runcast.simulator.profile import PROVENANCE, Estimate
from runcast.simulator.systems.run.sync.compression import (
    Compress,
    Gpus,
    Gradient,
    compress,
    dense,
    exchange_s,
    nothing_measured,
)

ROWS, COLUMNS = 48, 80
VALUES = ROWS * COLUMNS
KEYS = {
    "fp16": Compress(method="fp16"),
    "int8": Compress(method="int8", bucket=256),
    "int4": Compress(method="int4"),
    "sign": Compress(method="sign", bucket=256),
    "top_k": Compress(method="top_k", density=0.05),
    "threshold": Compress(method="threshold", density=0.05),
    "random": Compress(method="random", density=0.05),
    "block": Compress(method="block", density=0.05),
    "low_rank": Compress(method="low_rank", rank=3, rows=ROWS, columns=COLUMNS),
}
METHODS = pytest.mark.parametrize("method", KEYS)
SUMMED = ["fp16", "random", "block", "low_rank"]


def message(
    keys, gradient_bytes=4.0 * VALUES, workers=8, bytes_per_value=4, shapes=(), flop_per_s=1e15, gpus=1,
    measured=nothing_measured,
):  # fmt: skip
    gradient = Gradient(gradient_bytes, bytes_per_value, shapes)
    return compress(keys, gradient, workers, Gpus(gpus, 1e12, flop_per_s, measured))


# Real encoders, on this CPU: each returns the tensors that travel, and what the receiver makes of them.


def fp16(x, keys, seed):
    wire = x.half()
    return [wire], wire.float()


def int8(x, keys, seed):
    buckets = x.view(-1, keys.bucket)
    scales = buckets.abs().amax(dim=1, keepdim=True) / 127
    wire = torch.round(buckets / scales).to(torch.int8)
    return [wire, scales], (wire * scales).flatten()


def int4(x, keys, seed):
    scale = x.abs().max() / 7
    levels = (torch.round(x / scale) + 8).to(torch.uint8)  # 1 to 15
    wire = levels[::2] * 16 + levels[1::2]
    return [wire, scale], (torch.stack([wire // 16, wire % 16], 1).flatten().float() - 8) * scale


def sign(x, keys, seed):
    scales = x.view(-1, keys.bucket).abs().mean(dim=1)
    wire = torch.from_numpy(np.packbits(x.numpy() >= 0))
    signs = torch.from_numpy(np.unpackbits(wire.numpy())).float() * 2 - 1
    return [wire, scales], signs * scales.repeat_interleave(keys.bucket)


def top_k(x, keys, seed):
    return sent(x, torch.topk(x.abs(), round(keys.density * x.numel())).indices, with_positions=True)


def threshold(x, keys, seed):
    limit = x.abs().sort(descending=True).values[round(keys.density * x.numel())]
    return sent(x, torch.nonzero(x.abs() > limit).flatten(), with_positions=True)


def random(x, keys, seed):
    order = torch.randperm(x.numel(), generator=torch.Generator().manual_seed(seed))
    return sent(x, order[: round(keys.density * x.numel())], with_positions=False)


def block(x, keys, seed):
    size = round(keys.density * x.numel())
    return sent(x, (seed * size + torch.arange(size)) % x.numel(), with_positions=False)


def sent(x, positions, with_positions):
    decoded = torch.zeros_like(x)
    decoded[positions] = x[positions]
    return [x[positions], *([positions.to(torch.int32)] if with_positions else [])], decoded


def low_rank(x, keys, seed):
    matrix = x.view(ROWS, COLUMNS)
    q = torch.randn(COLUMNS, keys.rank, generator=torch.Generator().manual_seed(seed))
    p = torch.linalg.qr(matrix @ q).Q
    return [p, matrix.T @ p], (p @ p.T @ matrix).flatten()


ENCODERS = {one.__name__: one for one in (fp16, int8, int4, sign, top_k, threshold, random, block, low_rank)}


def gradient(seed, scale=1.0):
    return scale * torch.randn(VALUES, generator=torch.Generator().manual_seed(seed))


@METHODS
def test_a_real_message_has_as_many_bytes(method):
    wire, _ = ENCODERS[method](gradient(0), KEYS[method], seed=0)
    assert sum(one.numel() * one.element_size() for one in wire) == message(KEYS[method]).wire_bytes


@METHODS
def test_with_error_feedback_nothing_is_lost(method):
    """What was sent and what is left add up to the sum of all gradients: arXiv 1901.09847, algorithm 1."""
    left, total = torch.zeros(VALUES), torch.zeros(VALUES)
    for step in range(30):
        want = gradient(step) + left
        _, decoded = ENCODERS[method](want, KEYS[method], seed=step)
        left, total = want - decoded, total + decoded
    gradients = torch.stack([gradient(step) for step in range(30)]).sum(0)
    assert torch.allclose(total + left, gradients, atol=1e-4)
    assert not torch.allclose(total, gradients, atol=1e-4)


@pytest.mark.parametrize("method", ["fp16", "random", "block"])
def test_what_keeps_the_all_reduce_can_be_summed_as_it_is(method):
    gradients = [gradient(worker) for worker in range(4)]
    wires = [ENCODERS[method](one, KEYS[method], seed=3)[0][0].float() for one in gradients]
    of_the_sum = ENCODERS[method](sum(gradients), KEYS[method], seed=3)[0][0].float()
    assert torch.allclose(sum(wires), of_the_sum, atol=1e-2)


def test_sums_of_low_rank_factors_are_factors_of_the_sum():
    """P is linear in the gradient, and Q is given the orthogonal P: two all-reduces, one after another."""
    matrices, q = [gradient(worker).view(ROWS, COLUMNS) for worker in range(4)], torch.randn(COLUMNS, 3)
    p = torch.linalg.qr(sum(matrix @ q for matrix in matrices)).Q
    assert torch.allclose(sum(matrix.T @ p for matrix in matrices), sum(matrices).T @ p, atol=1e-4)
    assert message(KEYS["low_rank"]).rounds == 2


def test_a_sum_of_int8_messages_does_not_fit_in_int8():
    wires = [int8(gradient(worker), KEYS["int8"], 0)[0][0].int() for worker in range(8)]
    assert sum(wires).abs().max() > 127


@pytest.mark.parametrize("workers", [2, 8, 32])
def test_a_server_returns_the_union_of_positions(workers):
    """5 standard deviations of how many of 3,840 values at least one of W workers with independent gradients sends."""
    positions = [top_k(gradient(worker), KEYS["top_k"], 0)[0][1] for worker in range(workers)]
    union = torch.cat(positions).unique().numel()
    share = 0.95**workers
    assert abs(union - VALUES * (1 - share)) < 5 * (VALUES * share * (1 - share)) ** 0.5
    assert message(KEYS["top_k"], workers=workers).pull_bytes == pytest.approx(
        min(8 * VALUES * (1 - share), 4 * VALUES)
    )


def test_pytorch_s_power_sgd_sends_as_many_values(tmp_path):
    """Its hook counts values before and after compression; biases travel as they are."""
    matrices, biases = [(48, 80), (64, 48), (80, 64)], [(48, 1), (64, 1), (80, 1)]
    # Gloo's threads may end the process that leaves a group: they must not end pytest's.
    command = [
        sys.executable,
        Path(__file__).with_name("power_sgd.py"),
        tmp_path / "store",
        json.dumps(matrices + biases),
    ]
    before, after = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    keys, shapes = Compress(method="low_rank", rank=3), [(n, m, 1) for n, m in matrices]
    assert message(keys, 4.0 * before, shapes=shapes).wire_bytes == 4 * after


# Formulas: systems.md 3.5


def test_low_rank_sends_r_times_n_plus_m_of_n_times_m():
    """arXiv 1905.13727: a ratio of r(n+m)/(nm)."""
    sent_bytes = message(Compress(method="low_rank", rank=4, rows=4096, columns=11008), 1e9).wire_bytes
    assert sent_bytes == pytest.approx(1e9 * 4 * (4096 + 11008) / (4096 * 11008))


def test_low_rank_leaves_what_gains_nothing_as_it_is():
    """A 4x4 matrix of rank 2 has 16 values in its factors too; 100 other values are no matrix."""
    assert message(Compress(method="low_rank", rank=2), 4 * 116, shapes=[(4, 4, 1)]).wire_bytes == 4 * 116


def test_a_rank_above_a_matrix_is_that_of_the_matrix():
    """Of 1000 x 1 no rank gains; of 1000 x 4 in rank 9 neither: 4 * 1004 values instead of 4,000."""
    shapes = [(1000, 1, 1), (1000, 4, 1)]
    assert message(Compress(method="low_rank", rank=9), 4 * 5000, shapes=shapes).wire_bytes == 4 * 5000


def test_top_k_receives_8_bytes_per_value_of_each_other_worker():
    """arXiv 1712.01887: k * 8 B * (N-1), without latency."""
    one = message(Compress(method="top_k", density=0.001), 4e9, workers=16)
    assert exchange_s(one, 16, bytes_per_s=1e10, latency_s=0) == pytest.approx(1e6 * 8 * 15 / 1e10)


def test_dense_is_a_ring():
    """Patarasuk and Yuan 2009: 2(N-1)a + 2(N-1)/N*S/B."""
    assert exchange_s(dense(1e9), 4, bytes_per_s=1e9, latency_s=0.01) == pytest.approx(2 * 3 * 0.01 + 2 * 3 / 4)


def test_low_rank_pays_latency_twice():
    one = message(KEYS["low_rank"])
    assert exchange_s(one, 4, bytes_per_s=1e30, latency_s=0.01) == pytest.approx(2 * 2 * 3 * 0.01)


def test_one_worker_exchanges_nothing():
    assert [exchange_s(message(keys, workers=1), 1, 1e9, 0.1) for keys in KEYS.values()] == [0] * len(KEYS)


@pytest.mark.parametrize(
    ("method", "density", "bytes_per_value", "limit"),
    [("top_k", 0.01, 4, 100), ("top_k", 0.001, 2, 2000 / 3), ("int8", None, 4, 8), ("sign", None, 4, 64)],
)
def test_gathering_is_slower_than_a_dense_all_reduce_beyond_a_number_of_workers(
    method, density, bytes_per_value, limit
):
    """(N-1)*M/B against 2(N-1)/N*S/B: N = 2S/M, which is 2b/(density*(b+4)) for top-k of values with b bytes."""

    def gain(workers):
        one = message(Compress(method=method, density=density), 1e12, workers, bytes_per_value)
        return exchange_s(dense(1e12), workers, 1e10, 0) / exchange_s(one, workers, 1e10, 0)

    assert gain(ceil(limit) - 1) > 1 > gain(int(limit) + 1)
    assert gain(1000) == pytest.approx(limit / 1000)


@given(st.sampled_from(SUMMED), st.integers(2, 1000))
def test_what_is_summed_is_never_slower_on_the_wire_than_dense(method, workers):
    assert exchange_s(message(KEYS[method], workers=workers), workers, 1e9, 0) < exchange_s(
        dense(4.0 * VALUES), workers, 1e9, 0
    )


def test_which_methods_are_summed():
    assert [method for method in KEYS if message(KEYS[method]).exchange == "all_reduce"] == SUMMED


@METHODS
def test_decoding_grows_with_workers_where_messages_are_gathered(method):
    few, many = (message(KEYS[method], workers=workers) for workers in (2, 200))
    assert (many.decode_s > few.decode_s) == (few.exchange == "all_gather")
    assert many.decode_one_s == few.decode_one_s


def test_quantised_gradients_take_encoding_a_smaller_wire_and_decoding():
    """arXiv 1610.02132: t_enc + S/ratio/B + t_dec, here at given rates, for one message on one link."""
    keys = Compress(method="int8", encode="50 GB/s", decode="100 GB/s")
    one = message(keys, 4e9, workers=2)
    assert one.encode_s + exchange_s(one, 2, 1e10, 0) + one.decode_one_s == pytest.approx(4 / 50 + 0.1 + 4 / 100)
    assert one.decode_s == 2 * one.decode_one_s


@pytest.mark.parametrize(
    ("method", "encode", "decode"),
    [  # bytes that memory moves, per byte of a gradient in float32; 3 workers
        ("fp16", 1 + 1 / 2, 1 / 2 + 1),
        ("int8", 2 + 1 / 4, 1 + 3 / 4),
        ("sign", 2 + 1 / 32, 1 + 3 / 32),
        ("top_k", 7 + 0.02, 1 + 3 * (0.02 + 2 * 0.08)),
        ("threshold", 2 + 0.02, 1 + 3 * (0.02 + 2 * 0.08)),
        ("random", 0.08 + 0.01, 1 + 0.01 + 2 * 0.08),
        ("block", 0.01 + 0.01, 1 + 0.01 + 2 * 0.01),
    ],
)
def test_memory_passes_say_how_long_codes_take(method, encode, decode):
    density = 0.01 if method in ("top_k", "threshold", "random", "block") else None
    one = message(Compress(method=method, density=density), 1e12, workers=3)
    assert (one.encode_s, one.decode_s) == pytest.approx((encode, decode))


def test_low_rank_takes_its_gemms_where_they_are_slower_than_memory():
    """Rank 8 of 100 matrices of 1000 x 2000: P, Q, and the orthogonal P; then their product."""
    flop, one = (
        2 * 1000 * 2000 * 8 * 100,
        message(Compress(method="low_rank", rank=8), 8e8, shapes=[(1000, 2000, 100)], flop_per_s=1e9),
    )
    assert (one.encode_s, one.decode_s) == pytest.approx(((2 * flop + 2 * 1000 * 8**2 * 100) / 1e9, flop / 1e9))


@METHODS
def test_error_feedback_takes_the_gradient_s_bytes_and_a_pass(method):
    """arXiv 1901.09847 and 1712.01887: S bytes each, and 2 reads and a write of S."""
    plain = message(KEYS[method])
    states = [{"error_feedback": True}, {"error_feedback": True, "momentum_correction": True}]
    ones = [message(KEYS[method].model_copy(update=update)) for update in states]
    assert [one.memory_bytes for one in ones] == [4.0 * VALUES, 2 * 4.0 * VALUES]
    assert [one.encode_s - plain.encode_s for one in ones] == pytest.approx(
        [3 * 4 * VALUES / 1e12, 6 * 4 * VALUES / 1e12]
    )
    assert replace(ones[0], encode_s=plain.encode_s, memory_bytes=0.0) == plain


# What a profile has measured


SPEEDS = {"encode": 2e9, "decode": 1e9, "clear": 8e9}  # bytes per second


def measured(*parts):
    """A profile that knows only these parts, each at its speed."""

    def estimate(name, size_bytes):
        part = name.rpartition("_")[2]
        return Estimate(np.array([size_bytes / SPEEDS[part]]), np.array([0.2]), FITTED) if part in parts else None

    return estimate


FITTED = np.array([PROVENANCE.index("fitted")])
BY_MESSAGE = {"encode": ("block",), "decode": ("top_k", "threshold", "random", "block")}


def size_bytes(method, part):
    """What a part's time goes by: the message's bytes where only what is sent is touched."""
    return message(KEYS[method]).wire_bytes if method in BY_MESSAGE[part] else 4.0 * VALUES


@METHODS
def test_measured_times_come_before_memory_passes(method):
    """A sum is cleared once and each message added to it; fp16 and low_rank write the sum once."""
    one = message(KEYS[method], measured=measured("encode", "decode", "clear"))
    clear_s = 0.0 if method in ("fp16", "low_rank") else 4.0 * VALUES / 8e9
    messages = 8 if one.exchange == "all_gather" else 1
    each_s = size_bytes(method, "decode") / 1e9
    assert one.encode_s == pytest.approx(size_bytes(method, "encode") / 2e9)
    assert one.decode_s == pytest.approx(clear_s + messages * each_s)
    assert one.decode_one_s == pytest.approx(clear_s + each_s)
    assert (one.encode_from, one.decode_from) == ("fitted", "fitted")


@METHODS
def test_times_are_as_unsure_as_their_models(method):
    """A fifth, of each message that is decoded alike; nobody says how sure clearing and passes of residuals are."""
    keys = KEYS[method].model_copy(update={"error_feedback": True})
    one, bare = (message(said, measured=measured("encode", "decode")) for said in (keys, KEYS[method]))
    messages_s = (8 if one.exchange == "all_gather" else 1) * size_bytes(method, "decode") / 1e9
    assert one.encode_spread * one.encode_s == pytest.approx(0.2 * bare.encode_s)
    assert one.decode_spread * one.decode_s == pytest.approx(0.2 * messages_s)


@METHODS
@pytest.mark.parametrize("gpus", [2, 8])
def test_gpus_share_what_their_worker_sends(method, gpus):
    one, each = (message(KEYS[method].model_copy(update={"error_feedback": True}), gpus=many) for many in (1, gpus))
    alone = replace(
        each, **{name: gpus * getattr(each, name) for name in ("encode_s", "decode_s", "decode_one_s", "memory_bytes")}
    )
    assert vars(alone) == pytest.approx(vars(one))


@METHODS
def test_stated_rates_come_before_measured_times(method):
    keys = KEYS[method].model_copy(update={"encode": 5e9, "decode": 4e9})
    stated, both = message(keys), message(keys, measured=measured("encode", "decode", "clear"))
    assert both == stated
    assert (both.encode_from, both.decode_from) == ("given", "given")


@METHODS
def test_without_either_parts_are_memory_passes(method):
    one, none = message(KEYS[method], measured=measured("encode")), message(KEYS[method])
    assert (one.encode_from, one.decode_from) == ("fitted", "datasheet")
    assert one.decode_s == none.decode_s


def test_error_feedback_adds_its_passes_to_what_was_measured():
    keys = KEYS["top_k"].model_copy(update={"error_feedback": True})
    feedback_s = message(keys, measured=measured("encode")).encode_s
    assert feedback_s == pytest.approx(4 * VALUES / 2e9 + 3 * 4 * VALUES / 1e12)


@pytest.mark.parametrize("density", [0.001, 0.1])
def test_another_density_changes_decoding_only(density):
    keys = Compress(method="top_k", density=density)
    one = message(keys, measured=measured("encode", "decode", "clear"), workers=1)
    assert one.encode_s == pytest.approx(4 * VALUES / 2e9)
    assert one.decode_s == pytest.approx(4 * VALUES / 8e9 + density * VALUES * 8 / 1e9)


def test_low_rank_of_no_matrix_asks_for_nothing():
    one = message(Compress(method="low_rank", rank=2), 4 * 116, shapes=[(4, 4, 1)], measured=measured("encode"))
    assert one.encode_s == 0


@METHODS
def test_a_server_returns_no_more_than_a_dense_gradient(method):
    pulls = [message(KEYS[method], workers=workers).pull_bytes for workers in (1, 2, 10_000)]
    assert pulls == sorted(pulls)
    assert pulls[0] == pytest.approx(message(KEYS[method]).wire_bytes)
    assert pulls[-1] <= 4 * VALUES


def test_a_bucket_that_is_not_full_has_a_scale_too():
    assert message(Compress(method="int8", bucket=512), 4.0 * 1000).wire_bytes == 1000 + 2 * 4


def test_two_bytes_per_value_take_positions_of_four():
    assert message(Compress(method="top_k", density=0.5), 2e6, bytes_per_value=2).wire_bytes == 0.5e6 * (2 + 4)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            {"method": "top_k"},
            "method = 'top_k' needs density",
        ),
        ({"method": "int8", "density": 0.1}, "density goes with .* .given: 'int8'."),
        ({"method": "low_rank"}, "method = 'low_rank' needs rank"),
        ({"method": "fp16", "rank": 2}, "rank goes with method = 'low_rank' .given: 'fp16'."),
        ({"method": "low_rank", "rank": 2, "rows": 8}, "rows and columns must be given together"),
        (
            {"method": "fp16", "rows": 8, "columns": 8},
            "columns must be given together, with method = 'low_rank'",
        ),
        ({"method": "fp16", "bucket": 8}, "bucket is for method = 'int8' or 'int4' or 'sign' .given: 'fp16'."),
        ({"method": "fp16", "momentum_correction": True}, "needs error_feedback = true"),
        ({"method": "top_k", "density": 1.0}, "less than 1"),
        ({"method": "zip"}, "'fp16', 'int8'"),
    ],
)
def test_keys_that_do_not_go_together(keys, says):
    with pytest.raises(ValidationError, match=says):
        Compress(**keys)


@pytest.mark.parametrize(
    ("keys", "others", "says"),
    [
        (KEYS["fp16"], {"bytes_per_value": 2}, "needs gradients of 4 bytes per value .given: 2."),
        (KEYS["fp16"], {"bytes_per_value": 8}, "values have 2 or 4 bytes .given: 8."),
        (Compress(method="low_rank", rank=1), {}, "needs rows and columns, or a model whose matrices are known"),
        (
            Compress(method="low_rank", rank=1),
            {"shapes": [(100, 100, 1)]},
            "40000 bytes are more than the gradient's 15360",
        ),
    ],
)
def test_gradients_that_a_method_cannot_compress(keys, others, says):
    with pytest.raises(ValueError, match=says):
        message(keys, **others)
