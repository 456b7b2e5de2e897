"""Draw counts, and how batches are assembled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_dml.data.samplers.planning import (
    Groups,
    draw_images,
    occurrences,
    proportional_shares,
    put_first,
    random_counts,
)


def test_groups_hold_rows_by_label() -> None:
    labels = np.array([7, 3, 7, 5, 3, 7])
    groups = Groups.of(labels, np.arange(6), at_least=2)
    assert groups.labels.tolist() == [3, 7]
    assert groups.sizes.tolist() == [2, 3]
    assert groups.rows.tolist() == [1, 4, 0, 2, 5]
    assert groups.starts.tolist() == [0, 2]
    subset = Groups.of(labels, np.array([5, 3, 0]))
    assert subset.rows.tolist() == [3, 5, 0]
    assert len(subset) == 2


def test_put_first_moves_banned_items_back() -> None:
    order = np.array([4, 1, 3, 0, 2])
    first = put_first(order, 2, banned=np.array([4, 3]))
    assert first.tolist() == [1, 0, 4, 3, 2]
    assert put_first(order, 0, order[:0]).tolist() == order.tolist()


@given(
    weights=st.lists(st.integers(1, 1000), min_size=1, max_size=30),
    steps=st.integers(1, 50),
    classes=st.integers(1, 30),
    seed=st.integers(0, 99),
)
def test_random_counts_round_the_shares(weights, steps, classes, seed) -> None:
    slots = steps * min(classes, len(weights))
    values = np.array(weights, np.float64)
    shares = proportional_shares(values, slots, steps)
    counts = random_counts(shares, slots, np.random.default_rng(seed))
    assert shares.sum() == pytest.approx(slots)
    assert counts.sum() == slots
    assert np.abs(counts - shares).max() < 1 + 1e-6
    assert counts.max() <= steps
    assert counts.min() >= (slots >= len(weights))


def test_shares_are_proportional_between_the_bounds() -> None:
    weights = np.array([1.0, 10, 20, 40, 1000])
    shares = proportional_shares(weights, slots=20, steps=10)
    # 1000 is capped at one a step, 1 raised to one an epoch.
    np.testing.assert_allclose(shares, [1, 9 / 7, 18 / 7, 36 / 7, 10])


def test_occurrences_match_a_loop() -> None:
    rng = np.random.default_rng(0)
    items = rng.integers(0, 5, (20, 3))
    seen = rng.integers(0, 9, 5)
    expected = np.empty_like(items)
    counter = seen.copy()
    for place in np.ndindex(items.shape):
        expected[place] = counter[items[place]]
        counter[items[place]] += 1
    np.testing.assert_array_equal(occurrences(items, seen), expected)


def test_images_of_a_class_come_once_a_round_in_any_order() -> None:
    labels = np.repeat([0, 1], [7, 3])
    groups = Groups.of(labels, np.arange(10))
    drawn = np.tile([0, 1], (30, 1))
    before = np.zeros(2, np.int64)
    rows = draw_images(groups, drawn, before, np.array([2, 2]), (0,))
    rounds = rows[:, :2].reshape(10, 6)
    assert all(len(set(x)) == 6 for x in rounds.tolist())
    assert len({tuple(x) for x in rounds.tolist()}) == 10
    assert np.bincount(rounds.ravel()).min() > 4
    assert set(rows[:, 2:].ravel()) == {7, 8, 9}
