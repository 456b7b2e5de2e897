"""HardClassBalanced puts near classes together and stays balanced."""

import time
import tracemalloc

import numpy as np
import pytest

from keras_dml.data import ClassBalanced, HardClassBalanced
from keras_dml.data.samplers import hard_classes
from keras_dml.data.samplers.hard_classes import nearest_classes

CLASSES = 30
LABELS = np.repeat(np.arange(CLASSES) * 3, [4 + i % 3 for i in range(CLASSES)])


def on_a_circle(noise=0.0):
    """Embeddings on a circle: the nearest classes have the next numbers."""
    angle = 2 * np.pi * LABELS / (3 * CLASSES)
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return x + noise * np.random.default_rng(0).normal(size=x.shape)


def sampler(**arguments):
    arguments = {"classes_per_batch": 8, "num_neighbors": 3, **arguments}
    hard_sampler = HardClassBalanced(LABELS, images_per_class=4, **arguments)
    hard_sampler.set_embeddings(on_a_circle(0.01))
    return hard_sampler


@pytest.mark.parametrize(
    ("steps", "classes"), [(None, 8), (1, 30), (3, 2), (15, 8)]
)
def test_classes_come_as_often_as_without_neighbors(steps, classes) -> None:
    hard = sampler(classes_per_batch=classes, steps_per_epoch=steps)
    plain = ClassBalanced(LABELS, classes, 4, steps_per_epoch=steps)
    total = np.zeros(CLASSES, int)
    for epoch in range(4):
        plan = hard.plan(epoch)
        assert plan.shape == (plain.steps, classes * 4)
        for rows in plan:
            drawn_classes, counts = np.unique(LABELS[rows], return_counts=True)
            assert len(drawn_classes) == classes
            assert set(counts) == {4}
            assert len(set(rows)) == len(rows)
        drawn = np.bincount(LABELS[plan].ravel() // 3, minlength=CLASSES) // 4
        expected = plain.plan(epoch)
        np.testing.assert_array_equal(
            drawn,
            np.bincount(LABELS[expected].ravel() // 3, minlength=CLASSES) // 4,
        )
        total += drawn
        assert np.ptp(total) <= 1


def test_weighted_classes_come_as_often_as_without_neighbors() -> None:
    hard = sampler(weighting="proportional", steps_per_epoch=20)
    plain = ClassBalanced(
        LABELS, 8, 4, weighting="proportional", steps_per_epoch=20
    )
    for epoch in range(2):
        for a, b in zip(
            np.unique(LABELS[hard.plan(epoch)], return_counts=True),
            np.unique(LABELS[plain.plan(epoch)], return_counts=True),
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)


def near_pairs(batch_sampler):
    """Share of the pairs of classes of a batch that are neighbors."""
    shares = []
    for epoch in range(6):
        for rows in batch_sampler.plan(epoch):
            classes = np.unique(LABELS[rows]) // 3
            apart = np.abs(classes[:, None] - classes[None])
            apart = np.minimum(apart, CLASSES - apart)
            shares.append(np.mean(apart[apart > 0] <= 3))
    return np.mean(shares)


def test_near_classes_share_batches() -> None:
    plain = near_pairs(ClassBalanced(LABELS, 8, 4))
    assert near_pairs(sampler()) > 1.5 * plain


def test_plan_depends_on_seed_epoch_and_neighbors() -> None:
    first, second, other = sampler(), sampler(), sampler(seed=1)
    first.plan(0)
    np.testing.assert_array_equal(first.plan(3), second.plan(3))
    assert not np.array_equal(first.plan(3), other.plan(3))
    second.set_neighbors(second.neighbors[:, ::-1])
    assert not np.array_equal(first.plan(3), second.plan(3))


def test_plan_without_neighbors_is_class_balanced() -> None:
    plain = ClassBalanced(LABELS, 8, 4)
    none, zero = sampler(), sampler(num_neighbors=0)
    none.set_neighbors(None)
    for hard_sampler in (none, zero):
        np.testing.assert_array_equal(hard_sampler.plan(2), plain.plan(2))


def test_nearest_classes_match_a_loop() -> None:
    x = np.random.default_rng(0).normal(size=(12, 5))
    x[7] = x[3]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    expected = [
        sorted(set(range(12)) - {i}, key=lambda j, i=i: (-(x[i] @ x[j]), j))[:4]
        for i in range(12)
    ]
    np.testing.assert_array_equal(nearest_classes(x, 4), expected)
    assert nearest_classes(x, 99).shape == (12, 11)


def sorted_whole(means, count):
    """The nearest classes, by sorting all cosines."""
    cosines = means @ means.T
    np.fill_diagonal(cosines, -np.inf)
    count = min(count, len(means) - 1)
    return np.argsort(-cosines, axis=1, kind="stable")[:, :count]


MEANS = {
    "random": lambda rng, x: x,
    "alike": lambda rng, x: 1 + 1e-3 * x,
    "copies": lambda rng, x: x[rng.integers(0, len(x) // 3, len(x))],
    "equal": lambda rng, x: np.ones_like(x),
    "zeros": lambda rng, x: x * (np.arange(len(x)) % 3 > 0)[:, None],
    "axes": lambda rng, x: np.eye(x.shape[1])[rng.integers(0, 3, len(x))],
    "opposite": lambda rng, x: np.concatenate([x[::2], -x[::2]]),
}


@pytest.mark.parametrize("kind", MEANS)
@pytest.mark.parametrize("seed", range(3))
def test_nearest_of_many_classes_match_a_full_sort(
    kind, seed, monkeypatch
) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(hard_classes, "_MAX_SORTED_CLASSES", 0)
    for classes, dim in ((400, 8), (30, 4), (52, 3)):
        means = MEANS[kind](rng, rng.normal(size=(classes, dim)))
        norms = np.linalg.norm(means, axis=1, keepdims=True)
        means = means / np.where(norms == 0, 1, norms)
        for count in (1, 35):
            np.testing.assert_array_equal(
                nearest_classes(means, count), sorted_whole(means, count)
            )


@pytest.mark.parametrize("seed", range(3))
def test_batches_match_a_full_sort(seed, monkeypatch) -> None:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(500), rng.integers(1, 6, 500))
    embeddings = rng.normal(size=(len(labels), 6)).astype("float32")
    kept = np.flatnonzero(np.bincount(labels) >= 2)
    sums = np.stack([embeddings[labels == c].sum(0, float) for c in kept])
    expected = HardClassBalanced(labels, 16, 2, seed=seed)
    means = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    expected.set_neighbors(sorted_whole(means, 35))
    for few in (0, 4096):
        monkeypatch.setattr(hard_classes, "_MAX_SORTED_CLASSES", few)
        hard_sampler = HardClassBalanced(labels, 16, 2, seed=seed)
        hard_sampler.set_embeddings(embeddings)
        for epoch in range(2):
            np.testing.assert_array_equal(
                hard_sampler.plan(epoch), expected.plan(epoch)
            )


def test_nearest_of_20000_classes_need_no_full_sort() -> None:
    means = np.random.default_rng(0).normal(size=(20_000, 32))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    tracemalloc.start()
    began = time.process_time()
    neighbors = nearest_classes(means, 35)
    seconds = time.process_time() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    cosines = means[:50] @ means.T
    np.fill_diagonal(cosines, -np.inf)
    expected = np.argsort(-cosines, axis=1, kind="stable")[:, :35]
    np.testing.assert_array_equal(neighbors[:50], expected)
    assert peak < 2**28 and seconds < 15  # A sort takes 50.
