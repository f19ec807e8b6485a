"""What published pairs of rows show, predictions show: ratios of rows that differ in one thing."""

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows(update_ledger):
    return update_ledger.table.set_index("line")


def ratio(rows, a, b, column):
    return rows.loc[a, column] / rows.loc[b, column]


def both(rows, a, b):
    """The ratio of two rows, predicted and published."""
    return ratio(rows, a, b, "predicted_s"), ratio(rows, a, b, "seconds")


@pytest.mark.parametrize(("p2p", "broadcast"), [(4, 3), (10, 9), (16, 15), (22, 21), (87, 86), (90, 89)])
def test_p2p_over_broadcast(rows, p2p, broadcast):
    predicted, published = both(rows, p2p, broadcast)

    assert (predicted > 1, predicted == pytest.approx(published, rel=0.16)) == (True, True)


@pytest.mark.parametrize(("old", "new"), [(6, 3), (12, 9), (18, 15), (24, 21)])
def test_old_bucket_and_software_against_new(rows, old, new):
    predicted, published = both(rows, old, new)

    assert (predicted > 1, predicted == pytest.approx(published, rel=0.1)) == (True, True)


@pytest.mark.parametrize(("one", "assigned"), [(7, 4), (13, 10), (19, 16), (25, 22)])
def test_one_reader_against_a_receiver_per_nic(rows, one, assigned):
    predicted, published = both(rows, one, assigned)

    assert predicted == pytest.approx(published, rel=0.1)


def test_rdma_overtakes_nccl_as_experts_and_nodes_grow(rows):
    """GLM-Z1-9B: about equal; Flash on one node: slower; four and eight nodes: faster, the more the larger."""
    dense, flash, air, qwen = (ratio(rows, line, line - 1, "predicted_s") for line in (27, 29, 31, 33))

    assert dense == pytest.approx(ratio(rows, 27, 26, "seconds"), rel=0.15)
    assert flash > 1.4
    assert 0.7 > air > qwen


def test_relays_against_one_sender(rows):
    predicted, published = both(rows, 45, 46)

    assert predicted == pytest.approx(published, rel=0.15)  # 3.6, and four NICs


def test_a_flattened_bucket_against_handles(rows):
    predicted, published = both(rows, 62, 63)

    assert predicted == pytest.approx(published, rel=0.2)  # 4.25
