"""What predictions share: few values, and small ones in all."""

import pytest
from runcast.simulator.base.memo import Kept, Memo


def made_of(kept, keys, ops_of=lambda value: 0):
    """Which of the keys have to be made when they are asked for one after the other."""
    made = []
    for key in keys:
        kept.get(key, lambda key=key: made.append(key) or key, ops_of)
    return made


def test_the_values_asked_for_last_are_kept():
    assert made_of(Kept(2, 1), [1, 2, 1, 3, 1, 2]) == [1, 2, 3, 2]


@pytest.mark.parametrize(
    ("keys", "made"),
    [
        ([10, 20, 30, 10, 20, 30], [10, 20, 30]),
        ([10, 20, 40, 10], [10, 20, 40, 10]),
        ([70, 70, 10, 70], [70, 10, 70]),
    ],
)
def test_values_have_so_many_ops_in_all_and_the_newest_is_kept_in_any_case(keys, made):
    assert made_of(Kept(64, 60), keys, lambda ops: ops) == made


def test_what_raises_is_asked_for_again():
    kept = Kept(2, 1)
    with pytest.raises(ZeroDivisionError):
        kept.get("key", lambda: 1 // 0)

    assert kept.get("key", lambda: 1) == 1


def test_kinds_do_not_know_of_each_other():
    memo = Memo()

    assert (memo.get("a", 1, lambda: "a"), memo.get("b", 1, lambda: "b"), memo.get("a", 1, lambda: "c")) == (
        "a", "b", "a",
    )  # fmt: skip
