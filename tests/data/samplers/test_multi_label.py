"""Tests of MultiLabelBalanced: its guarantees, as properties."""

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_dml import data


@settings(max_examples=40)
@given(
    examples=st.integers(2, 40),
    labels=st.integers(2, 8),
    share=st.floats(0.1, 0.9),
    images=st.integers(1, 5),
    seed=st.integers(0, 2**20),
)
def test_batches_have_distinct_examples_and_labels_come_equally_often(
    examples, labels, share, images, seed
) -> None:
    rng = np.random.default_rng(seed)
    table = rng.random((examples, labels)) < share
    drawable = np.flatnonzero(table.sum(axis=0) >= min(2, images))
    if not len(drawable):
        return
    classes = rng.integers(1, len(drawable) + 1)
    sampler = data.MultiLabelBalanced(
        table, int(classes), images, seed=seed, steps_per_epoch=4
    )
    times, alone = np.zeros(labels, int), True
    for epoch in range(3):
        plan = sampler.plan(epoch)
        assert plan.shape == (4, classes * images)
        np.testing.assert_array_equal(plan, sampler.plan(epoch))
        alone &= bool((table[plan].sum(axis=-1) == 1).all())
        for rows in plan:
            drawn = check_batch(table, rows.reshape(classes, images))
            times[drawn] += 1
    # Which label was drawn is known only where examples share but one.
    if alone:
        assert np.ptp(times[drawable]) <= 1


def check_batch(table: np.ndarray, batch: np.ndarray) -> list[int]:
    """Each K share a label, a different one; repeats are as few as can be."""
    seen: set[int] = set()
    drawn: list[int] = []
    for rows in batch:
        shared = np.flatnonzero(table[rows].all(axis=0))
        assert len(shared)
        free = [
            len(set(np.flatnonzero(table[:, label])) - seen) for label in shared
        ]
        new = set(rows.tolist()) - seen
        assert len(new) in [min(len(rows), x) for x in free]
        seen |= new
        drawn.append(int(shared[0]))
    return drawn


def test_examples_of_a_label_repeat_only_after_all_were_drawn() -> None:
    table = np.zeros((30, 2), bool)
    table[:20, 0] = table[20:, 1] = True
    sampler = data.MultiLabelBalanced(table, 2, 5, steps_per_epoch=4)
    rows = sampler.plan(3)[:, :].ravel()
    shown, counts = np.unique(rows, return_counts=True)
    assert shown.tolist() == list(range(30))
    assert counts[:20].tolist() == [1] * 20
    assert counts[20:].tolist() == [2] * 10


def test_labels_of_one_example_are_not_drawn(caplog) -> None:
    table = np.eye(4, dtype=bool)
    table[:, 1] = table[:, 2] = True
    with caplog.at_level(logging.WARNING):
        sampler = data.MultiLabelBalanced(table, 2, 2)
    assert "does not draw labels that only one example has: 2" in caplog.text
    assert table[sampler.plan(0)][..., [1, 2]].any(axis=-1).all()


@pytest.mark.parametrize(("labels", "expected"), [(3, 3), (40, 32)])
def test_default_number_of_labels_is_at_most_32(labels, expected) -> None:
    table = np.eye(labels, dtype=bool)[np.arange(3 * labels) % labels]
    sampler = data.MultiLabelBalanced(table)
    assert sampler.classes_per_batch == expected
    assert sampler.plan(0).shape[1] == 4 * expected
