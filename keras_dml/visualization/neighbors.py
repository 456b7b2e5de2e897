"""The nearest images of some queries, ranked as the evaluation ranks."""

import numpy as np

from keras_dml.evaluation.ranks import exact
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks


def nearest(
    embeddings: FloatArray,
    queries: Rows,
    num_neighbors: int = 8,
    *,
    gallery: Rows | None = None,
    labels: Rows | None = None,
    groups: Rows | None = None,
) -> tuple[Rows, FloatArray]:
    """The images that are nearest to some of the images, by their cosine.

    The ranking is that of `keras_dml.evaluation.evaluate`: a query does
    not find itself, equal scores rank in the order of the gallery, and
    what float32 cannot decide is decided in float64.

    Args:
        embeddings: (N, D).
        queries: (Q,) rows.
        num_neighbors: Neighbors of each query; fewer where the gallery
            has fewer.
        gallery: (G,) rows to search among; all by default.
        labels: Class of every row, (N,), where there are `groups`.
        groups: Group of every row, (N,): a query ignores the images of its
            class in its group, as with `exclude` of `evaluate`.

    Returns:
        Rows of the neighbors, the nearest first, (Q, num_neighbors), −1 where
        there is none; and their cosines, (Q, num_neighbors) float64, NaN there.

    Raises:
        ValueError: If `num_neighbors` is not a positive integer.
    """
    check_count("nearest", "num_neighbors", num_neighbors)
    rows = np.arange(len(embeddings)) if gallery is None else gallery
    scores = Scores(embeddings[queries], embeddings[rows], "cosine")
    right = scores.right(slice(None))
    found = np.full((len(queries), min(num_neighbors, len(rows))), -1, np.int64)
    for block in blocks(len(queries), 64):
        left = scores.left(block)
        rough = left @ right.T
        for i, query in enumerate(queries[block]):
            ignored = rows == query
            if groups is not None and labels is not None:
                ignored = ignored | (
                    (labels[rows] == labels[query])
                    & (groups[rows] == groups[query])
                )
            rough[i, ignored] = -np.inf
        best, places = _best(scores, block, rough, left, num_neighbors)
        found[block] = np.where(np.isneginf(best), -1, rows[places])
    cosines = _cosines(embeddings[queries][:, None], embeddings[found])
    return found, np.where(found < 0, np.nan, cosines)


def _cosines(x: FloatArray, y: FloatArray) -> FloatArray:
    x, y = x.astype(np.float64), y.astype(np.float64)
    norms = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
    cosines: FloatArray = (x * y).sum(axis=-1) / np.where(norms > 0, norms, 1)
    return cosines


def _best(
    scores: Scores,
    block: slice,
    rough: FloatArray,
    left: FloatArray,
    num_neighbors: int,
) -> tuple[FloatArray, Rows]:
    """Scores and places in the gallery of the best for a block of queries."""

    def candidates(some: Rows, size: int) -> tuple[FloatArray, Rows]:
        places = np.argpartition(rough[some], -size, axis=1)[:, -size:]
        return np.take_along_axis(rough[some], places, axis=1), places

    def decided(some: Rows, places: Rows) -> FloatArray:
        pairs = np.broadcast_to(some[:, None], places.shape).ravel()
        found = scores.exact(pairs + block.start, places.ravel())
        is_ignored = np.isneginf(rough[pairs, places.ravel()])
        return np.where(is_ignored, -np.inf, found).reshape(places.shape)

    return exact.nearest(
        candidates,
        decided,
        scores.tolerance(left),
        num_neighbors,
        rough.shape[1],
    )
