"""The bucket rule and how tensors fill buckets, against the source's words."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.systems.weight_update.lower import (
    BucketSize,
    bucket_size,
    fill_buckets,
    make_plan,
    split_by_count,
)

from ..examples import examples

MB = 2**20


def test_three_buffers_share_what_is_free():
    assert bucket_size(30_000, 256, mem_fraction=1) == BucketSize(9984, 3)  # 39 * 256 <= 10 000


def test_ninety_percent_of_the_free_memory_is_used():
    assert bucket_size(30 * MB, 1) == BucketSize(9 * MB, 3)


def test_the_limit_bounds_the_bucket():
    assert bucket_size(60 * MB, 256, limit_bytes=2 * MB) == BucketSize(2 * MB, 3)


def test_the_default_limit_is_8_gib():
    assert bucket_size(90e9, 1) == BucketSize(8 * 2**30, 3)


def test_a_tensor_above_the_limit_raises_it():
    assert bucket_size(60 * MB, 5 * MB, limit_bytes=2 * MB) == BucketSize(5 * MB, 3)


def test_a_tensor_too_large_for_a_third_gives_up_the_h2d_buffer():
    assert bucket_size(30 * MB, 10 * MB + 1, limit_bytes=MB, mem_fraction=1) == BucketSize(10 * MB + 1, 2)


def test_without_an_h2d_buffer_two_share_what_is_free():
    assert bucket_size(30 * MB, 1, mem_fraction=1, h2d_buffer=False) == BucketSize(15 * MB, 2)


def test_a_tensor_too_large_for_a_half_is_an_error_with_both_numbers():
    with pytest.raises(ValueError, match=f"{15 * MB + 1:,} bytes, a buffer can have {15 * MB:,} at most"):
        bucket_size(30 * MB, 15 * MB + 1, mem_fraction=1)


@examples(200)
@given(st.integers(2048, 2**38), st.integers(1, 2**36), st.integers(256, 2**34), st.booleans())
def test_bucket_rule(free, largest, limit, h2d_buffer):
    """b = min(max(limit, largest), available), three buffers if the largest tensor fits in an aligned third."""
    third, half = ((free // n) // 256 * 256 for n in (3, 2))
    three = largest <= third and h2d_buffer
    if not three and largest > half:
        with pytest.raises(ValueError, match="largest tensor"):
            bucket_size(free, largest, limit_bytes=limit, mem_fraction=1, h2d_buffer=h2d_buffer)
        return
    expected = BucketSize(min(max(limit, largest), third if three else half), 3 if three else 2)
    assert bucket_size(free, largest, limit_bytes=limit, mem_fraction=1, h2d_buffer=h2d_buffer) == expected


# -- Split and fill ---------------------------------------------------------------------------------------------------


def test_split_gives_consecutive_equal_counts_and_the_last_ranks_less():
    assert split_by_count(10, 4).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_split_may_leave_the_last_ranks_without_a_tensor():
    assert split_by_count(5, 4).tolist() == [0, 0, 1, 1, 2]


def test_fill_opens_a_bucket_when_the_next_tensor_would_not_fit():
    buckets = fill_buckets(256 * np.array([1, 2, 3, 1, 4, 1, 1]), np.array([0, 0, 0, 0, 1, 1, 1]), 1024)
    rows = zip(buckets.owner, buckets.round, buckets.first_tensor, buckets.tensors, buckets.bytes // 256, strict=True)
    assert [tuple(map(int, row)) for row in rows] == [
        (0, 0, 0, 2, 3),
        (1, 0, 4, 1, 4),
        (0, 1, 2, 2, 4),
        (1, 1, 5, 2, 2),
    ]


def test_fill_refuses_a_tensor_larger_than_the_bucket():
    with pytest.raises(ValueError, match="largest tensor has 512 bytes, but a bucket has 256"):
        fill_buckets(np.array([256, 512]), np.array([0, 0]), 256)


SIZES = st.lists(st.integers(0, 9).map(lambda n: 256 * n), min_size=1, max_size=60)


@examples(150)
@given(SIZES, st.integers(1, 8), st.integers(9, 20).map(lambda n: 256 * n))
def test_every_tensor_goes_out_once_whole_and_in_order(sizes, ranks, limit):
    owner = split_by_count(len(sizes), ranks)
    buckets = fill_buckets(np.array(sizes), owner, limit)
    tensors = [list(range(f, f + n)) for f, n in zip(buckets.first_tensor, buckets.tensors, strict=True)]
    own = [sorted((int(buckets.round[g]), g) for g in np.flatnonzero(buckets.owner == rank)) for rank in range(ranks)]
    walked = [i for rounds in own for _, g in rounds for i in tensors[g]]
    assert walked == list(range(len(sizes)))
    assert all(owner[i] == buckets.owner[g] for g, mine in enumerate(tensors) for i in mine)
    assert buckets.bytes.tolist() == [sum(sizes[i] for i in mine) for mine in tensors]
    assert buckets.bytes.max() <= limit


@examples(150)
@given(SIZES, st.integers(1, 8), st.integers(9, 20).map(lambda n: 256 * n))
def test_no_bucket_closes_early_and_owners_alternate(sizes, ranks, limit):
    buckets = fill_buckets(np.array(sizes), split_by_count(len(sizes), ranks), limit)
    order = list(zip(buckets.round.tolist(), buckets.owner.tolist(), strict=True))
    assert order == sorted(set(order))
    for rank in set(buckets.owner.tolist()):
        mine = np.flatnonzero(buckets.owner == rank)
        assert buckets.round[mine].tolist() == list(range(len(mine)))
        assert all(buckets.bytes[a] + sizes[buckets.first_tensor[b]] > limit for a, b in pairwise(mine))
        assert buckets.offset_bytes[mine].tolist() == [0, *np.cumsum(buckets.bytes[mine])[:-1]]


@examples(60)
@given(SIZES, st.integers(1, 8))
def test_a_plan_conserves_bytes(sizes, ranks):
    plan = make_plan(np.array(sizes), ranks, BucketSize(256 * 12, 3))
    assert (plan.total_bytes, plan.buckets.owned_bytes(ranks).sum()) == (sum(sizes), sum(sizes))
