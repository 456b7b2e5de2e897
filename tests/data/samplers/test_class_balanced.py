"""Tests of ClassBalanced and SurrogateSampler: guarantees, as properties."""

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_dml.data import ClassBalanced, SurrogateSampler

SIZES = st.lists(st.integers(1, 9), min_size=2, max_size=25)


def labels_of(sizes: list[int], seed: int = 0) -> np.ndarray:
    """Shuffled labels 0, 10, 20, …, in the given numbers."""
    labels = 10 * np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(seed).permutation(labels)


def drawable(sizes: list[int], images: int) -> np.ndarray:
    """Labels of the classes with enough images for a pair."""
    least = min(2, images)
    return 10 * np.flatnonzero(np.array(sizes) >= least)


def check_batch(rows, labels, classes, images) -> None:
    """Exactly P classes; K distinct images, or repeats as few as can be."""
    drawn_classes, counts = np.unique(labels[rows], return_counts=True)
    assert len(drawn_classes) == classes
    assert counts.min() >= images
    assert np.ptp(counts) <= 1
    for label, count in zip(drawn_classes, counts, strict=True):
        chosen, repeats = np.unique(
            rows[labels[rows] == label], return_counts=True
        )
        assert len(chosen) == min(count, np.sum(labels == label))
        assert np.ptp(repeats) <= 1


@given(
    sizes=SIZES,
    classes=st.integers(1, 25),
    images=st.integers(1, 6),
    weighting=st.sampled_from(["balanced", "proportional", "sqrt"]),
    steps=st.one_of(st.none(), st.integers(1, 30)),
    seed=st.integers(0, 2**40),
)
def test_batches_have_distinct_images_and_classes_come_equally_often(
    sizes, classes, images, weighting, steps, seed
) -> None:
    labels = labels_of(sizes)
    available = drawable(sizes, images)
    if len(available) == 0:
        return
    classes = min(classes, len(available))
    sampler = ClassBalanced(
        labels, classes, images, weighting, seed=seed, steps_per_epoch=steps
    )
    assert sampler.steps == steps or max(1, len(labels) // sampler.batch_size)
    total = np.zeros(10 * len(sizes), int)
    for epoch in range(4):
        plan = sampler.plan(epoch)
        assert plan.dtype == np.int64
        assert plan.shape == (sampler.steps, classes * images)
        for rows in plan:
            check_batch(rows, labels, classes, images)
        drawn = labels[plan.reshape(-1, images)]
        assert np.all(drawn == drawn[:, :1])
        counts = np.bincount(drawn[:, 0], minlength=len(total))
        total += counts
        if sampler.steps * classes >= len(available):
            assert counts[available].min() >= 1
        if weighting == "balanced":
            assert np.ptp(counts[available]) <= 1
            assert np.ptp(total[available]) <= 1


@given(sizes=SIZES, batch=st.integers(2, 40), images=st.integers(1, 6))
def test_batch_size_is_filled(sizes, batch, images) -> None:
    labels = labels_of(sizes)
    available = drawable(sizes, images)
    if len(available) == 0 or batch < images:
        return
    sampler = ClassBalanced(labels, batch_size=batch, images_per_class=images)
    for rows in sampler.plan(0):
        assert len(rows) == batch
        check_batch(rows, labels, min(batch // images, len(available)), images)


@given(
    sizes=st.lists(st.integers(2, 11), min_size=3, max_size=12),
    images=st.integers(1, 4),
    steps=st.integers(1, 9),
)
def test_images_of_a_class_repeat_only_after_all_were_drawn(
    sizes, images, steps
) -> None:
    labels = labels_of(sizes)
    sampler = ClassBalanced(
        labels,
        classes_per_batch=3,
        images_per_class=images,
        steps_per_epoch=steps,
    )
    draws: dict[int, list[np.ndarray]] = {}
    for epoch in range(8):
        for rows in sampler.plan(epoch).reshape(-1, images):
            draws.setdefault(int(labels[rows[0]]), []).append(rows)
    for label, rows in draws.items():
        size = sizes[label // 10]
        in_a_round = max(1, size // images)
        for start in range(0, len(rows), in_a_round):
            shown = np.concatenate(rows[start : start + in_a_round])
            assert len(set(shown.tolist())) == min(len(shown), size)


def test_plan_depends_on_seed_and_epoch() -> None:
    labels = labels_of([6] * 20)
    plans = [
        ClassBalanced(labels, classes_per_batch=5, seed=seed).plan(epoch)
        for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))
    ]
    np.testing.assert_array_equal(plans[0], plans[1])
    assert not np.array_equal(plans[0], plans[2])
    assert not np.array_equal(plans[0], plans[3])


def test_batches_mix_classes_anew() -> None:
    """Every class shares a batch with every other within a few epochs."""
    labels = labels_of([4] * 30)
    sampler = ClassBalanced(labels, classes_per_batch=6, images_per_class=2)
    met = {
        int(other)
        for epoch in range(12)
        for rows in labels[sampler.plan(epoch)]
        if 0 in rows
        for other in rows
    }
    assert len(met) == 30


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [("proportional", [2, 8, 18]), ("sqrt", [14 / 3, 28 / 3, 14])],
)
def test_weighting_sets_how_often_classes_come(
    weighting: str, expected: list[float]
) -> None:
    labels = labels_of([10, 40, 90])
    sampler = ClassBalanced(
        labels,
        classes_per_batch=1,
        images_per_class=1,
        weighting=weighting,
        steps_per_epoch=28,
    )
    counts = [
        np.bincount(labels[sampler.plan(epoch)].ravel(), minlength=30)[::10]
        for epoch in range(20)
    ]
    assert np.abs(np.array(counts) - expected).max() < 1
    np.testing.assert_allclose(np.mean(counts, axis=0), expected, atol=0.35)


def test_single_images_are_left_out_and_logged_once(caplog) -> None:
    labels = labels_of([1, 4, 4, 1])
    with caplog.at_level(logging.WARNING):
        sampler = ClassBalanced(labels, classes_per_batch=2, images_per_class=2)
        shown = {
            *labels[sampler.plan(0)].ravel(),
            *labels[sampler.plan(1)].ravel(),
        }
    assert shown == {10, 20}
    assert len(caplog.records) == 1
    assert "classes with a single image: 2" in caplog.text
    alone = ClassBalanced(labels, classes_per_batch=4, images_per_class=1)
    assert set(labels[alone.plan(0)].ravel()) == {0, 10, 20, 30}


def test_large_labels_and_seeds_are_supported() -> None:
    labels = np.repeat([-(2**62), 2**24, 2**24 + 1, 2**62], 3)
    sampler = ClassBalanced(
        labels, classes_per_batch=4, images_per_class=3, seed=2**63
    )
    for rows in sampler.plan(10**6):
        assert sorted(rows.tolist()) == list(range(12))


@pytest.mark.parametrize(("classes", "expected"), [(3, 3), (32, 32), (40, 32)])
def test_default_number_of_classes_is_at_most_32(
    classes, expected, caplog
) -> None:
    caplog.set_level(logging.INFO)
    sampler = ClassBalanced(labels_of([3] * classes + [1]))
    assert sampler.classes_per_batch == expected
    assert sampler.plan(0).shape[1] == 4 * expected
    assert ("all 3 classes" in caplog.text) == (classes == 3)
    with pytest.raises(ValueError, match="not exceed"):
        ClassBalanced(labels_of([3] * classes), classes + 1)


SURROGATE_LABELS = np.repeat(np.arange(6), 8)
SURROGATES = np.arange(48) * 5 % 7


def surrogate_sampler(**kwargs) -> SurrogateSampler:
    return SurrogateSampler(SURROGATE_LABELS, 3, images_per_class=4, **kwargs)


def test_surrogate_batches_are_class_balanced() -> None:
    sampler = surrogate_sampler(seed=2)
    sampler.set_assignments(SURROGATES)
    plain = ClassBalanced(SURROGATE_LABELS, 3, images_per_class=4, seed=2)
    for epoch in (0, 3):
        rows = sampler.plan(epoch)
        np.testing.assert_array_equal(rows, plain.plan(epoch))
        surrogates = sampler.targets(epoch)["surrogate"]
        np.testing.assert_array_equal(surrogates, SURROGATES[rows])


def test_state_of_a_sampler_holds_its_surrogates() -> None:
    sampler, again = surrogate_sampler(), surrogate_sampler()
    again.set_state(sampler.get_state())
    assert again.assignments is None
    sampler.set_assignments(SURROGATES)
    again.set_state(sampler.get_state())
    np.testing.assert_array_equal(again.assignments, SURROGATES)
