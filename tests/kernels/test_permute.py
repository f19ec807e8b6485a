import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from runcast.kernels.permute import permute, route, unpermute

SHAPES = [(1, 1, 1), (5, 7, 3), (33, 130, 8), (3, 4100, 2), (2, 9000, 5), (0, 16, 2), (4, 0, 2), (6, 16, 0)]


@pytest.mark.parametrize(("tokens", "hidden", "k"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_permute_gathers_rows(device, tokens, hidden, k, dtype, index):
    states = torch.randn(tokens, hidden, device=device).to(dtype)
    chosen = torch.randint(0, max(tokens, 1), [tokens * k], device=device, dtype=index)
    assert torch.equal(permute(states, chosen), states[chosen.long()])


@pytest.mark.parametrize(("tokens", "hidden", "k"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_unpermute_sums_in_fp32(device, assert_close, tokens, hidden, k, dtype):
    rows = torch.randn(tokens * k, hidden, device=device).to(dtype)
    places = torch.randperm(tokens * k, device=device).view(tokens, k).to(torch.int32)
    weights = torch.rand(tokens, k, device=device)
    expected = (rows.double()[places.long()] * weights.double()[..., None]).sum(1)
    result = unpermute(rows, places, weights)
    assert result.dtype == dtype
    assert_close(result, expected)


def test_a_negative_place_counts_nothing(device):
    nothing = [float("nan")] * 2
    rows = torch.tensor([nothing, [1.0, 2.0], nothing, [3.0, 5.0]], device=device)[1:]  # NaN where -1 would lead
    places = torch.tensor([[0, 2], [-1, 2], [-1, -1]], device=device)
    weights = torch.tensor([[1.0, 2.0], [float("nan"), 1.0], [7.0, 7.0]], device=device)
    assert unpermute(rows, places, weights).tolist() == [[7, 12], [3, 5], [0, 0]]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_there_and_back(device, k):
    states = torch.randn(37, 130, device=device).bfloat16()
    tokens, places = route(torch.randint(0, 9, [37, k], device=device))
    assert torch.equal(unpermute(permute(states, tokens), places, torch.full([37, k], 1 / k, device=device)), states)


@given(
    experts=st.integers(0, 5).flatmap(
        lambda k: st.lists(st.lists(st.integers(0, 6), min_size=k, max_size=k), min_size=1, max_size=20)
    )
)
def test_routed_rows_are_in_expert_order_and_found_again(experts):
    experts = torch.tensor(experts, dtype=torch.int64).view(len(experts), -1)
    tokens, places = route(experts)
    of_rows = torch.empty_like(tokens)
    of_rows[places.long().flatten()] = experts.flatten().int()
    assert torch.equal(of_rows, of_rows.sort().values)
    assert torch.equal(tokens[places.long()], torch.arange(len(experts), dtype=torch.int32)[:, None].expand_as(experts))
    for expert in of_rows.unique():
        assert (tokens[of_rows == expert].diff() >= 0).all()


def test_offsets_beyond_32_bits(device, assert_close, monkeypatch):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # 4 GiB that nobody touches
    states = torch.empty(300_000, 7168, dtype=torch.bfloat16, device=device)
    states[-1] = torch.randn(7168)
    states[1] = torch.randn(7168)
    assert states.numel() > 2**31
    chosen = torch.tensor([299_999, 1], dtype=torch.int32, device=device)
    assert torch.equal(permute(states, chosen), states[chosen.long()])
    both = unpermute(states, chosen[None], torch.ones(1, 2, device=device))
    assert_close(both[0], states[-1].double() + states[1].double())
