"""Pairs of images of the same class, and of different classes."""

import numpy as np
from numpy.typing import NDArray

from keras_dml.utils.types import Labels, Rows

MAX_LISTED_PAIRS = 2_000_000
"""Number of pairs above which they are drawn instead of listed."""

_MAX_ROUNDS = 1000
"""Number of draws after which the search for negative pairs ends."""


def positive_pairs(
    labels: Labels, max_pairs: int = 100_000, seed: int = 0
) -> tuple[Rows, Rows]:
    """Pairs of different images that have the same class, or share a label.

    `labels` are classes, (N,), or which labels an image has, (N, C) booleans.
    Returns first and second rows, (n,) each: all pairs, the first row below the
    second, if there are no more than `max_pairs`; otherwise a random selection,
    without repetition up to `MAX_LISTED_PAIRS` pairs in all, with it beyond.
    """
    rng = np.random.default_rng(seed)
    if labels.ndim == 2:
        return _sharing_pairs(labels, max_pairs, rng)
    _, inverse, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    order = np.argsort(inverse, kind="stable").astype(np.int64)
    starts = np.cumsum(counts) - counts
    pairs = counts * (counts - 1) // 2
    if pairs.sum() > MAX_LISTED_PAIRS:
        classes = rng.choice(len(counts), max_pairs, p=pairs / pairs.sum())
        i = rng.integers(counts[classes])
        j = (i + 1 + rng.integers(counts[classes] - 1)) % counts[classes]
        return order[starts[classes] + i], order[starts[classes] + j]
    listed = [np.empty((2, 0), np.int64)]
    for start, count in zip(starts, counts, strict=True):
        listed.append(start + np.stack(np.triu_indices(count, k=1)))
    return _subsample(order[np.concatenate(listed, axis=1)], max_pairs, rng)


def negative_pairs(
    labels: Labels, max_pairs: int = 100_000, seed: int = 0
) -> tuple[Rows, Rows]:
    """Pairs of images of different classes; see `positive_pairs`."""
    rng = np.random.default_rng(seed)
    count = len(labels)
    if count * (count - 1) // 2 <= MAX_LISTED_PAIRS:
        pairs = np.stack(np.triu_indices(count, k=1))
        return _subsample(pairs[:, ~_are_alike(pairs, labels)], max_pairs, rng)
    pairs = np.empty((2, 0), np.int64)
    # All label sets may share a label, so the number of draws is limited.
    for _ in range(_MAX_ROUNDS):
        if pairs.shape[1] >= max_pairs or not len(np.unique(labels)) > 1:
            break
        draw = rng.integers(count, size=(2, max_pairs))
        draw = draw[:, ~_are_alike(draw, labels) & (draw[0] != draw[1])]
        pairs = np.concatenate([pairs, draw], axis=1)
    return pairs[0, :max_pairs], pairs[1, :max_pairs]


def _are_alike(pairs: Rows, labels: Labels) -> NDArray[np.bool_]:
    """Whether pairs have the same class or share a label, (n,)."""
    first, second = labels[pairs[0]], labels[pairs[1]]
    if labels.ndim == 2:
        return (first & second).any(axis=1)
    return first == second


def _sharing_pairs(
    labels: Labels, max_pairs: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Pairs that share a label, of (N, C) booleans."""
    count = len(labels)
    if count * (count - 1) // 2 <= MAX_LISTED_PAIRS:
        pairs = np.stack(np.triu_indices(count, k=1))
        return _subsample(pairs[:, _are_alike(pairs, labels)], max_pairs, rng)
    columns = [np.flatnonzero(column) for column in labels.T]
    members = [rows for rows in columns if len(rows) > 1]
    weights = np.array([len(rows) * (len(rows) - 1.0) for rows in members])
    result = np.empty((2, 0), np.int64)
    while members and result.shape[1] < max_pairs:
        draws = []
        times = rng.multinomial(max_pairs, weights / weights.sum())
        for rows, n in zip(members, times, strict=True):
            i = rng.integers(len(rows), size=n)
            j = (i + rng.integers(1, len(rows), size=n)) % len(rows)
            draws.append(rows[np.stack([i, j])])
        pairs = np.concatenate(draws, axis=1)[:, rng.permutation(max_pairs)]
        # A pair is drawn once for each label that it shares.
        shared = (labels[pairs[0]] & labels[pairs[1]]).sum(axis=1)
        keep = rng.random(max_pairs) * shared < 1
        result = np.concatenate([result, pairs[:, keep]], axis=1)
    return result[0, :max_pairs], result[1, :max_pairs]


def _subsample(
    pairs: Rows, max_pairs: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    if pairs.shape[1] > max_pairs:
        rows = rng.choice(pairs.shape[1], max_pairs, replace=False)
        pairs = pairs[:, np.sort(rows)]
    return pairs[0], pairs[1]
