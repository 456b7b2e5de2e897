"""Tests of PairSampler."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keras_dml.data import PairSampler


@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=20),
    half=st.integers(1, 10),
    seed=st.integers(0, 99),
)
def test_pairs_share_a_class_and_anchors_come_equally_often(
    sizes: list[int], half: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(
        np.repeat(np.arange(len(sizes)), sizes)
    )
    paired = np.flatnonzero(np.array(sizes)[labels] >= 2)
    if len(paired) < 2:
        return
    pairs = 2 * min(half, len(paired) // 2)
    sampler = PairSampler(labels, num_pairs=pairs, seed=seed)
    shown = np.zeros(len(labels), int)
    for epoch in range(3):
        plan = sampler.plan(epoch)
        assert plan.shape == (sampler.steps, 2 * pairs)
        anchors, partners = plan[:, :pairs], plan[:, pairs:]
        positive, negative = slice(None, pairs // 2), slice(pairs // 2, None)
        same = labels[anchors] == labels[partners]
        assert same[:, positive].all()
        assert not same[:, negative].any()
        assert not (anchors == partners).any()
        assert all(len(set(step)) == pairs for step in anchors.tolist())
        shown += np.bincount(anchors.ravel(), minlength=len(labels))
        assert np.ptp(shown[paired]) <= 1
        assert shown.sum() == shown[paired].sum()


def test_partners_are_drawn_evenly() -> None:
    labels = np.repeat([0, 1, 2], [3, 1, 4])
    sampler = PairSampler(labels, num_pairs=2, steps_per_epoch=20_000)
    positive = np.zeros((8, 8))
    negative = np.zeros((8, 8))
    first, second, first_partner, second_partner = sampler.plan(0).T
    np.add.at(positive, (first, first_partner), 1)
    np.add.at(negative, (second, second_partner), 1)
    same = (labels[:, None] == labels) & ~np.eye(8, dtype=bool)
    for counts, allowed in (
        (positive, same),
        (negative, labels[:, None] != labels),
    ):
        anchors = labels != 1
        share = counts[anchors] / counts[anchors].sum(1, keepdims=True)
        even = allowed[anchors] / allowed[anchors].sum(1, keepdims=True)
        np.testing.assert_allclose(share, even, atol=0.05)


def test_default_batch_is_that_of_the_paper() -> None:
    labels = np.repeat(np.arange(50), 10)
    sampler = PairSampler(labels, seed=3)
    assert sampler.batch_size == 64
    assert sampler.steps == 500 // 64
    np.testing.assert_array_equal(
        sampler.plan(2), PairSampler(labels, seed=3).plan(2)
    )
    assert not np.array_equal(sampler.plan(2), sampler.plan(3))
    assert sampler.targets(0) == {}
