"""Pairs of images of one class, and of two."""

import numpy as np

from keras_dml.utils.types import Rows

ENUMERABLE = 2_000_000
"""So many pairs are listed; of more, some are drawn."""


def positive_pairs(
    labels: Rows, most: int = 100_000, seed: int = 0
) -> tuple[Rows, Rows]:
    """Pairs of different images of one class.

    Args:
        labels: Class of every image, (N,).
        most: How many to return, at most.
        seed: Seed of the draw, where there are more.

    Returns:
        First and second rows, (n,) each. All pairs, the first row below
        the second, if there are no more than `most`; else a random
        selection without repetition, or, of more than `ENUMERABLE` pairs,
        with repetition.
    """
    rng = np.random.default_rng(seed)
    _, inverse, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    order = np.argsort(inverse, kind="stable").astype(np.int64)
    starts = np.cumsum(counts) - counts
    pairs = counts * (counts - 1) // 2
    if pairs.sum() > ENUMERABLE:
        drawn = rng.choice(len(counts), most, p=pairs / pairs.sum())
        i = rng.integers(counts[drawn])
        j = (i + 1 + rng.integers(counts[drawn] - 1)) % counts[drawn]
        return order[starts[drawn] + i], order[starts[drawn] + j]
    listed = [np.empty((2, 0), np.int64)]
    for start, count in zip(starts, counts, strict=True):
        listed.append(start + np.stack(np.triu_indices(count, k=1)))
    return _some(order[np.concatenate(listed, axis=1)], most, rng)


def negative_pairs(
    labels: Rows, most: int = 100_000, seed: int = 0
) -> tuple[Rows, Rows]:
    """Pairs of images of different classes; see `positive_pairs`."""
    rng = np.random.default_rng(seed)
    count = len(labels)
    if count * (count - 1) // 2 <= ENUMERABLE:
        pairs = np.stack(np.triu_indices(count, k=1))
        return _some(_that_differ(pairs, labels), most, rng)
    found = np.empty((2, 0), np.int64)
    while found.shape[1] < most and len(np.unique(labels)) > 1:
        drawn = _that_differ(rng.integers(count, size=(2, most)), labels)
        found = np.concatenate([found, drawn], axis=1)
    return found[0, :most], found[1, :most]


def _that_differ(pairs: Rows, labels: Rows) -> Rows:
    return pairs[:, labels[pairs[0]] != labels[pairs[1]]]


def _some(
    pairs: Rows, most: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    if pairs.shape[1] > most:
        chosen = rng.choice(pairs.shape[1], most, replace=False)
        pairs = pairs[:, np.sort(chosen)]
    return pairs[0], pairs[1]
