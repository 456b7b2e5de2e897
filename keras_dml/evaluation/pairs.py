"""Pairs of images of the same class, and of different classes."""

import numpy as np
from numpy.typing import NDArray

from keras_dml.utils.types import Labels, Rows

ENUMERABLE = 2_000_000
"""Maximum number of pairs that are listed; of more, some are drawn."""

_ROUNDS = 1000
"""Number of draws after which there are too few pairs of a kind."""


def positive_pairs(
    labels: Labels, most: int = 100_000, seed: int = 0
) -> tuple[Rows, Rows]:
    """Pairs of different images that have the same class, or share a label.

    `labels` are classes, (N,), or which labels an image has, (N, C) booleans.
    Returns first and second rows, (n,) each: all pairs, the first row below the
    second, if there are no more than `most`; otherwise a random selection
    without repetition or, for more than `ENUMERABLE` pairs, with repetition.
    """
    rng = np.random.default_rng(seed)
    if labels.ndim == 2:
        return _that_share(labels, most, rng)
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
    labels: Labels, most: int = 100_000, seed: int = 0
) -> tuple[Rows, Rows]:
    """Pairs of images of different classes; see `positive_pairs`."""
    rng = np.random.default_rng(seed)
    count = len(labels)
    if count * (count - 1) // 2 <= ENUMERABLE:
        pairs = np.stack(np.triu_indices(count, k=1))
        return _some(pairs[:, ~_are_alike(pairs, labels)], most, rng)
    found = np.empty((2, 0), np.int64)
    # Of label sets, all may share one.
    for _ in range(_ROUNDS):
        if found.shape[1] >= most or not len(np.unique(labels)) > 1:
            break
        drawn = rng.integers(count, size=(2, most))
        drawn = drawn[:, ~_are_alike(drawn, labels) & (drawn[0] != drawn[1])]
        found = np.concatenate([found, drawn], axis=1)
    return found[0, :most], found[1, :most]


def _are_alike(pairs: Rows, labels: Labels) -> NDArray[np.bool_]:
    """Whether pairs have the same class or share a label, (n,)."""
    first, second = labels[pairs[0]], labels[pairs[1]]
    if labels.ndim == 2:
        return (first & second).any(axis=1)
    return first == second


def _that_share(
    labels: Labels, most: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Pairs that share a label, of (N, C) booleans."""
    count = len(labels)
    if count * (count - 1) // 2 <= ENUMERABLE:
        pairs = np.stack(np.triu_indices(count, k=1))
        return _some(pairs[:, _are_alike(pairs, labels)], most, rng)
    columns = [np.flatnonzero(column) for column in labels.T]
    members = [rows for rows in columns if len(rows) > 1]
    weights = np.array([len(rows) * (len(rows) - 1.0) for rows in members])
    found = np.empty((2, 0), np.int64)
    while members and found.shape[1] < most:
        drawn = []
        times = rng.multinomial(most, weights / weights.sum())
        for rows, n in zip(members, times, strict=True):
            i = rng.integers(len(rows), size=n)
            j = (i + rng.integers(1, len(rows), size=n)) % len(rows)
            drawn.append(rows[np.stack([i, j])])
        pairs = np.concatenate(drawn, axis=1)[:, rng.permutation(most)]
        # Each label that a pair shares brings it once more.
        shared = (labels[pairs[0]] & labels[pairs[1]]).sum(axis=1)
        keep = rng.random(most) * shared < 1
        found = np.concatenate([found, pairs[:, keep]], axis=1)
    return found[0, :most], found[1, :most]


def _some(
    pairs: Rows, most: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    if pairs.shape[1] > most:
        chosen = rng.choice(pairs.shape[1], most, replace=False)
        pairs = pairs[:, np.sort(chosen)]
    return pairs[0], pairs[1]
