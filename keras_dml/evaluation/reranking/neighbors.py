"""Exact nearest neighbors within bounded memory."""

import numpy as np

from keras_dml.evaluation.ranks.exact import nearest
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, in_threads

MEMORY = 2**26
"""Bytes of the scores that a thread processes together."""


def nearest_others(scores: Scores, itself: Rows, k: int) -> Rows:
    """The k nearest images of the gallery, excluding the query itself.

    Float32 products find candidates, float64 decides; ties are in the order of
    the gallery.

    Args:
        scores: Scores of queries against a gallery.
        itself: Position of each query in the gallery, or −1, (Q,).
        k: Number of neighbors.

    Returns:
        Positions in the gallery, (Q, k); fewer columns if there are fewer than
        k others.
    """
    count, size = len(scores.queries), len(scores.gallery)
    k = min(k, size - int((itself >= 0).any()))
    found = np.empty((count, k), np.int64)
    if not k:
        return found
    right = np.concatenate([scores.right(x) for x in blocks(size, 4096)])

    def find(rows: slice) -> None:
        left = scores.left(rows)

        def candidates(some: Rows, fetch: int) -> tuple[FloatArray, Rows]:
            values = left[some] @ right.T
            if fetch >= size:
                images = np.tile(np.arange(size), (len(some), 1))
                return values, images
            images = np.argpartition(values, size - fetch, axis=1)
            images = images[:, size - fetch :]
            return np.take_along_axis(values, images, axis=1), images

        def exact(some: Rows, images: Rows) -> FloatArray:
            queries = np.repeat(some + rows.start, images.shape[1])
            decided = scores.exact(queries, images.ravel()) - scores.offset
            return decided.reshape(images.shape)

        tolerance = scores.tolerance(left)
        _, images = nearest(candidates, exact, tolerance, k + 1, size)
        found[rows] = _without(images, itself[rows], k)

    # A query is left with all of the gallery where all scores are equal.
    in_threads(find, blocks(count, max(1, MEMORY // (64 * size))))
    return found


def _without(images: Rows, itself: Rows, k: int) -> Rows:
    """The first k of each row that are not the query itself."""
    is_other = images != itself[:, None]
    # Stable: others keep their order, itself goes last.
    order = np.argsort(~is_other, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(images, order, axis=1)
