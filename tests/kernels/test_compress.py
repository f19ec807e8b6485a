"""Every method gives back what it promises; positions, scales and factors are the right ones."""

import pytest
import torch
from runcast.kernels.compress import METHODS, Scaled, decode_block, encode_block

VALUES, ROWS, COLUMNS, RANK = 4096, 64, 32, 4
DENSITY = 0.05
SENT = round(DENSITY * VALUES)
SETTINGS = {
    "top_k": {"density": DENSITY},
    "threshold": {"limit": 2.0},
    "random": {"density": DENSITY, "seed": 3},
    "block": {"density": DENSITY, "seed": 3},
}
each = pytest.mark.parametrize("method", METHODS)


def gradient(method="", seed=0):
    flat = torch.randn(VALUES, generator=torch.Generator().manual_seed(seed))
    return flat.view(-1, ROWS, COLUMNS) if method == "low_rank" else flat


def encode(method, x):
    settings = dict(SETTINGS.get(method, {}))
    if method == "low_rank":
        settings["q"] = torch.randn(len(x), COLUMNS, RANK, generator=torch.Generator().manual_seed(9))
    return METHODS[method].encode(x, **settings)


def decode(method, message, like):
    total = torch.zeros_like(like)
    METHODS[method].decode(message, total)
    return total


def round_trip(method, x):
    return decode(method, encode(method, x), x)


@each
def test_decoding_gives_what_the_method_promises(method):
    x = gradient(method)
    message = encode(method, x)
    torch.testing.assert_close(decode(method, message, x), METHODS[method].restored(x, message), rtol=1e-5, atol=1e-5)


@each
def test_decoding_adds_to_a_sum_or_overwrites_it(method):
    x, of = gradient(method), METHODS[method]
    message, total = encode(method, x), torch.ones_like(x)
    of.decode(message, total)
    torch.testing.assert_close(total, decode(method, message, x) + float(of.adds), rtol=1e-5, atol=1e-5)


@each
def test_a_gradient_of_zeros_stays_one(method):
    assert round_trip(method, torch.zeros_like(gradient(method))).count_nonzero() == 0


def test_halves_are_off_by_half_a_step_of_eleven_bits():
    x = gradient()
    assert ((round_trip("fp16", x) - x).abs() <= x.abs() * 2**-11 + 2**-25).all()


@pytest.mark.parametrize(("method", "levels"), [("int8", 127), ("int4", 7)])
def test_levels_are_off_by_half_a_step(method, levels):
    x = gradient()
    step = x.abs().max() / levels
    assert ((round_trip(method, x) - x).abs() <= step / 2 * (1 + 1e-5)).all()


def test_signs_stay_and_magnitudes_become_their_mean():
    x = gradient()
    torch.testing.assert_close(round_trip("sign", x), torch.sign(x) * x.abs().mean())


@pytest.mark.parametrize(("method", "bits"), [("int8", 8), ("int4", 4), ("sign", 1)])
def test_levels_are_packed(method, bits):
    message = encode(method, gradient())
    assert isinstance(message, Scaled)
    assert message.levels.nbytes * 8 == bits * VALUES


def test_top_k_sends_the_largest_magnitudes():
    x = gradient()
    kept = round_trip("top_k", x)
    limit = x.abs().sort(descending=True).values[SENT - 1]
    assert torch.equal(kept, torch.where(x.abs() >= limit, x, 0.0))


def test_a_threshold_sends_what_is_above_it():
    x = gradient()
    assert torch.equal(round_trip("threshold", x), torch.where(x.abs() > 2.0, x, 0.0))


def test_random_positions_are_shared_and_not_repeated():
    """So a sum of messages is the message of the sum."""
    one, other = (encode("random", gradient(seed=seed)) for seed in (0, 1))
    assert torch.equal(one.positions, other.positions)
    assert one.positions.unique().numel() == SENT


@pytest.mark.parametrize("seed", range(30))
def test_a_block_lies_inside(seed):
    x = torch.arange(1.0, 101.0)
    total = torch.zeros_like(x)
    decode_block(encode_block(x, 0.3, seed), total)
    kept = total.nonzero().flatten()
    assert torch.equal(kept, torch.arange(30) + kept[0])
    assert torch.equal(total[kept], x[kept])


def test_matrices_of_low_rank_come_back_whole():
    p, q = torch.randn(2, ROWS + COLUMNS, RANK, generator=torch.Generator().manual_seed(0)).split([ROWS, COLUMNS], 1)
    x = p @ q.mT
    torch.testing.assert_close(round_trip("low_rank", x), x, rtol=1e-3, atol=1e-3)


def test_factors_leave_out_what_is_orthogonal_to_them():
    """M - PP'M has nothing of the columns of P: the best that coefficients of P can do."""
    x = gradient("low_rank")
    message = encode("low_rank", x)
    left = x - decode("low_rank", message, x)
    torch.testing.assert_close(message.p.mT @ left, torch.zeros(len(x), RANK, COLUMNS), rtol=0, atol=1e-4)
