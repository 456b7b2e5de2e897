"""Embeddings, and the scores of all their pairs by a loop."""

import numpy as np


def embeddings(
    classes: int = 12, images: int = 5, dim: int = 6, signal: float = 1.5
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(classes) * 7, images)
    centers = rng.normal(size=(classes, dim))
    x = signal * np.repeat(centers, images, axis=0)
    x += rng.normal(size=x.shape)
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    return x, labels


def pairs(x, labels) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the pairs of one class and of two, one at a time."""
    same, other = [], []
    for i in range(len(x)):
        for j in range(i):
            score = float(x[i].astype(float) @ x[j].astype(float))
            (same if labels[i] == labels[j] else other).append(score)
    return np.array(same), np.array(other)
