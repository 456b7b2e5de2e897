"""Exact nearest neighbors: float32 rules out, float64 decides.

A float32 product of vectors is rounded in a way that depends on the library,
its threads and the shape of the block. Therefore it only rules out images whose
scores cannot be among the nearest within its error; the scores of all others
are computed in float64, in an order of summation that depends only on the
dimensions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

SPARE_CANDIDATES = 8
"""Number of candidates beyond k, to verify that none was missed."""


def product_error(terms: int, dtype: Any = np.float32) -> float:
    """Bound on |fl(x·y) − x·y| / (|x||y|), for any order of summation.

    To first order it is γ_n = n u (Higham, "Accuracy and Stability of
    Numerical Algorithms", 2nd ed., eq. 3.5), where n terms are summed or
    rounded otherwise, and u is the unit roundoff of the type.
    """
    return terms * float(np.finfo(dtype).eps) / 2


def products(x: FloatArray, y: FloatArray) -> FloatArray:
    """Dot products along the last axis, in float64."""
    result: FloatArray = np.multiply(x, y, dtype=np.float64).sum(axis=-1)
    return result


def score_pairs(
    compare: Callable[[FloatArray, FloatArray], FloatArray],
    queries: FloatArray,
    gallery: FloatArray,
    images: Rows,
) -> FloatArray:
    """Scores, (Q, m) float64, of each query with its own images, (Q, m) rows.

    `compare` is a function from vectors, (n, m, D) and (n, 1, D), to scores,
    (n, m), such as `products`.
    """
    result = np.empty(images.shape)
    # Products of a block, in float64, take 32 MiB.
    size = max(1, 2**22 // (images.shape[1] * gallery.shape[1]))
    for block in blocks(len(queries), size):
        result[block] = compare(gallery[images[block]], queries[block, None])
    return result


def nearest(
    candidates: Callable[[Rows, int], tuple[FloatArray, Rows]],
    exact: Callable[[Rows, Rows], FloatArray],
    tolerance: FloatArray,
    k: int,
    limit: int,
) -> tuple[FloatArray, Rows]:
    """The k nearest images of each query; ties keep their order.

    `candidates` is a function from queries, (n,), and a count m to the float32
    scores of the m images that score highest, and these images, (n, m) each;
    `exact` one from queries, (n,), and images, (n, m), to scores, (n, m)
    float64. `tolerance` is the maximum error of the float32 scores, (Q,), and
    `limit` the number of images. Returns exact scores, (Q, min(k, limit))
    float64, descending, and images.
    """
    k, count = min(k, limit), len(tolerance)
    scores, images = np.empty((count, k)), np.empty((count, k), np.int64)
    fetch, open_queries = min(k + SPARE_CANDIDATES, limit), np.arange(count)
    while len(open_queries):
        rough, hits = candidates(open_queries, fetch)
        values, hits = sort_by_score(exact(open_queries, hits), hits)
        scores[open_queries] = values[:, :k]
        images[open_queries] = hits[:, :k]
        if fetch == limit:
            break
        # No image that was not fetched scores more than this.
        bound = rough.min(axis=1) + tolerance[open_queries]
        open_queries = open_queries[bound >= values[:, k - 1]]
        fetch = min(4 * fetch, limit)
    return scores, images


def sort_by_score(scores: FloatArray, images: Rows) -> tuple[FloatArray, Rows]:
    """Results, (Q, k), sorted by score, and by image for equal scores."""
    if (scores[:, :-1] > scores[:, 1:]).all():
        return scores, images
    order = np.lexsort((images, -scores), axis=-1)
    return (
        np.take_along_axis(scores, order, axis=-1),
        np.take_along_axis(images, order, axis=-1),
    )
