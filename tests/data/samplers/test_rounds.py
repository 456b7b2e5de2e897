"""Tests of how often items are drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_dml.data.samplers.rounds import (
    balanced_counts,
    proportional_shares,
    put_first,
    random_counts,
)


@given(
    items=st.integers(1, 40), slots=st.integers(1, 100), seed=st.integers(0, 99)
)
def test_balanced_in_every_epoch_and_over_all(
    items: int, slots: int, seed: int
) -> None:
    total = np.zeros(items, np.int64)
    for epoch in range(12):
        counts, before = balanced_counts(items, slots, epoch, (seed,))
        np.testing.assert_array_equal(before, total)
        assert counts.sum() == slots
        assert np.ptp(counts) <= 1
        total += counts
        assert np.ptp(total) <= 1


def test_short_epochs_are_not_the_same_groups_again() -> None:
    drawn = {
        tuple(np.flatnonzero(balanced_counts(12, 3, epoch, (0,))[0]))
        for epoch in range(40)
    }
    assert len(drawn) > 30


def test_every_item_is_as_likely_to_be_extra() -> None:
    total = np.zeros(7)
    for seed in range(700):
        total += balanced_counts(7, 3, 2, (seed,))[0]
    # Binomial with mean 300 and deviation 13.
    assert np.abs(total - 300).max() < 65


def test_put_first() -> None:
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
def test_random_counts(
    weights: list[int], steps: int, classes: int, seed: int
) -> None:
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


def test_random_counts_are_unbiased_enough() -> None:
    shares = np.array([0.2, 0.5, 0.8, 1.5, 2.0])
    rng = np.random.default_rng(0)
    mean = np.mean([random_counts(shares, 5, rng) for _ in range(2000)], axis=0)
    np.testing.assert_allclose(mean, shares, atol=0.15)
    assert mean[4] == 2
