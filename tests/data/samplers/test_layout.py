"""Tests of the way from counts to batches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keras_dml.data.samplers.layout import (
    Groups,
    draw_images,
    occurrences,
    spread,
)


def test_groups() -> None:
    labels = np.array([7, 3, 7, 5, 3, 7])
    groups = Groups.of(labels, np.arange(6), at_least=2)
    assert groups.labels.tolist() == [3, 7]
    assert groups.sizes.tolist() == [2, 3]
    assert groups.rows.tolist() == [1, 4, 0, 2, 5]
    assert groups.starts.tolist() == [0, 2]
    some = Groups.of(labels, np.array([5, 3, 0]))
    assert some.rows.tolist() == [3, 5, 0]
    assert len(some) == 2


@st.composite
def counts_of_steps(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    steps = draw(st.integers(1, 12))
    some = draw(st.lists(st.integers(0, steps), min_size=1, max_size=20))
    rest = -sum(some) % steps
    return np.array([*some, rest]), steps


@given(counts_of_steps(), st.integers(0, 99))
def test_spread_gives_each_item_its_count_once_a_step(
    case: tuple[np.ndarray, int], seed: int
) -> None:
    counts, steps = case
    dealt = spread(counts, steps, np.random.default_rng(seed))
    assert dealt.shape == (steps, counts.sum() // steps)
    found = np.bincount(dealt.ravel(), minlength=len(counts))
    np.testing.assert_array_equal(found, counts)
    assert all(len(set(step)) == len(step) for step in dealt.tolist())


def test_spread_mixes_items() -> None:
    """Any two of eight items meet about as often as any other two."""
    together = np.zeros((8, 8))
    for seed in range(300):
        dealt = spread(np.full(8, 6), 12, np.random.default_rng(seed))
        for step in dealt:
            together[np.ix_(step, step)] += 1
    pairs = together[np.triu_indices(8, 1)]
    # 12 steps of 4 × 3 / 2 pairs, over 28 pairs.
    np.testing.assert_allclose(pairs / 300, 72 / 28, rtol=0.15)


def test_occurrences_against_a_loop() -> None:
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
    occurrence = np.arange(60).reshape(30, 2) // 2
    drawn = np.tile([0, 1], (30, 1))
    rows = draw_images(groups, drawn, occurrence, np.array([2, 2]), (0,))
    rounds = rows[:, :2].reshape(10, 6)
    assert all(len(set(x)) == 6 for x in rounds.tolist())
    assert len({tuple(x) for x in rounds.tolist()}) == 10
    assert np.bincount(rounds.ravel()).min() > 4
    assert set(rows[:, 2:].ravel()) == {7, 8, 9}
