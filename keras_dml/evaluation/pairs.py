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
    if not pairs.sum():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if pairs.sum() > ENUMERABLE:
        drawn = rng.choice(len(counts), most, p=pairs / pairs.sum())
        i = rng.integers(counts[drawn])
        j = (i + 1 + rng.integers(counts[drawn] - 1)) % counts[drawn]
        return order[starts[drawn] + i], order[starts[drawn] + j]
    listed = [
        start + np.stack(np.triu_indices(count, k=1))
        for start, count in zip(starts, counts, strict=True)
    ]
    first, second = order[np.concatenate(listed, axis=1)]
    return _some(first, second, most, rng)


def negative_pairs(
    labels: Rows, most: int = 100_000, seed: int = 0
) -> tuple[Rows, Rows]:
    """Pairs of images of different classes; see `positive_pairs`."""
    rng = np.random.default_rng(seed)
    count = len(labels)
    if count * (count - 1) // 2 <= ENUMERABLE:
        first, second = (x.astype(np.int64) for x in np.triu_indices(count, 1))
        differ = labels[first] != labels[second]
        return _some(first[differ], second[differ], most, rng)
    first = np.empty(0, np.int64)
    second = np.empty(0, np.int64)
    if len(np.unique(labels)) < 2:
        return first, second
    while len(first) < most:
        i, j = rng.integers(count, size=(2, most))
        differ = labels[i] != labels[j]
        first = np.concatenate([first, i[differ]])
        second = np.concatenate([second, j[differ]])
    return first[:most], second[:most]


def _some(
    first: Rows, second: Rows, most: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    if len(first) <= most:
        return first, second
    picked = np.sort(rng.choice(len(first), most, replace=False))
    return first[picked], second[picked]
