"""Re-ranking with k-reciprocal neighbors.

The steps are those of the paper and of its released code, on sparse matrices:
row i of V states how much each point is a neighbor of point i. A matrix of all
pairs is never stored.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.evaluation.ranks.search import Distances
from keras_dml.evaluation.reranking import (
    RERANKING,
    Reranking,
    nearest_others,
)
from keras_dml.utils.types import Count, FloatArray, Rows, Share
from keras_dml.utils.vectors import blocks

_BLOCK_POINTS = 2048
"""Number of points whose neighbors are compared together."""

_BLOCK_OVERLAPS = 2**22
"""Number of pairs of entries of V that are compared together."""

_DISTANCE_DECIMALS = 12
"""Decimals of distances, so that rounding errors do not decide."""


@RERANKING.register("k_reciprocal")
class KReciprocal(Reranking):
    """Re-ranking by neighbors that are neighbors of each other.

    The distance is (1 − λ) d_J + λ d. d is the squared Euclidean distance
    divided by the largest from the query (of unit vectors for "cosine"), and
    d_J is the Jaccard distance between the neighborhoods of the query and of
    the image: their k1 reciprocal neighbors, expanded by those of their
    neighbors' k1/2, weighted by e^(−d) and averaged over k2 neighbors.

    All queries and the gallery are processed together, as in the released
    code, so the ranking of a query depends on the other queries. The method is
    transductive, and results with it must not be compared with results without
    it.

    Deviations:
        Every point is its own first neighbor, and equal distances are in the
        order of queries, then gallery; the released code leaves both to a sort
        that is not stable. Distances are rounded to 12 digits.

    Args:
        k1: Number of neighbors that are considered.
        k2: Number of neighbors that a point is averaged over, including
            itself; 1 turns averaging off.
        lambda_value: λ, the share of the original distance.

    Raises:
        ValueError: If `k1` or `k2` is not a positive integer, or λ is not
            between 0 and 1.

    Reference:
        Zhong et al., "Re-ranking Person Re-identification with k-reciprocal
        Encoding", CVPR 2017, https://arxiv.org/abs/1701.08398
    """

    supported = ("cosine", "euclidean")

    def __init__(
        self, k1: Count = 20, k2: Count = 6, lambda_value: Share = 0.3
    ) -> None:
        self.k1, self.k2 = k1, k2
        self.lambda_value = float(lambda_value)

    def distances(
        self,
        queries: FloatArray,
        gallery: FloatArray,
        itself: Rows,
        distance: str,
    ) -> Distances:
        outside = itself < 0
        added = int(outside.sum())
        points = gallery
        if added:
            points = np.concatenate([queries[outside], gallery])
        # Queries outside the gallery are points in front of it.
        point_of_query = itself + added
        point_of_query[outside] = np.arange(added)
        scores = Scores(points, points, distance)
        rhs = scores.rhs(slice(0, len(points)), np.float64)
        inverse = _inverse(scores, rhs)
        encoding = self._encoding(scores, inverse)
        factor = self.lambda_value * inverse
        columns = encoding.tocsc()
        rhs = rhs[added:]

        def of(rows: slice) -> FloatArray:
            at = point_of_query[rows]
            mixed = scores.lhs(at, np.float64) @ rhs.T
            mixed *= factor[at, None]
            overlap = _overlaps(encoding[at], columns)[:, added:]
            # (1 − λ) d_J is computed in place: no arrays are larger.
            np.divide(overlap, 2 - overlap, overlap)
            overlap -= 1
            overlap *= self.lambda_value - 1
            mixed += overlap
            return mixed.round(_DISTANCE_DECIMALS, out=mixed)

        return of

    def _encoding(self, scores: Scores, inverse: FloatArray) -> Any:
        """V, sparse (N, N): how much each point is a neighbor of each
        other."""
        from scipy.sparse import csr_array

        count = len(scores.gallery)
        every = np.arange(count)
        neighbors = nearest_others(scores, every, max(self.k1, self.k2 - 1))
        near = np.hstack([every[:, None], neighbors])  # (N, 1 + k)
        rows, columns = _expanded_pairs(near, self.k1)
        weights = np.exp(-scores.exact(rows, columns) * inverse[rows])
        weights /= np.bincount(rows, weights, count)[rows]
        shape = count, count
        encoding = csr_array((weights, (rows, columns)), shape)
        if self.k2 == 1:
            return encoding
        averaged = near[:, : self.k2]
        values = np.full(averaged.size, 1 / averaged.shape[1])
        starts = np.arange(0, averaged.size + 1, averaged.shape[1])
        average = csr_array((values, averaged.ravel(), starts), shape)
        return (average @ encoding).tocsr()


def _inverse(scores: Scores, rhs: FloatArray) -> FloatArray:
    """1 over the score of the farthest point from each; 0 if all are equal.

    Scores are squared distances, times a negative number.
    """
    count = len(rhs)
    lowest = np.empty(count)
    for rows in blocks(count, max(1, 2**23 // count)):
        lowest[rows] = (scores.lhs(rows, np.float64) @ rhs.T).min(axis=1)
    return np.divide(1, lowest, np.zeros(count), where=lowest < 0)


def _expanded_pairs(near: Rows, k1: int) -> tuple[Rows, Rows]:
    """Points and their expanded k-reciprocal neighbors, by point.

    The nearest of each point are given with itself first, (N, 1 + k).
    """
    count = len(near)
    # The released code rounds k1/2 like this.
    wide, half = near[:, : k1 + 1], near[:, : int(np.around(k1 / 2)) + 1]
    every = blocks(count, _BLOCK_POINTS)
    mutual = np.concatenate([_reciprocal(half, rows) for rows in every])
    parts = []
    for rows in every:
        neighbors = wide[rows]
        is_mutual = _reciprocal(wide, rows)
        # Neighbors of neighbors, (n, 1 + k1, 1 + k1/2), and whether they count.
        members = half[neighbors]
        counts = mutual[neighbors] & is_mutual[:, :, None]
        is_direct = np.zeros(members.shape, bool)
        for column in range(neighbors.shape[1]):
            same = members == neighbors[:, column, None, None]
            is_direct |= same & is_mutual[:, column, None, None]
        shared = (is_direct & counts).sum(axis=2)
        enough = shared > 2 / 3 * counts.sum(axis=2)
        counts &= enough[:, :, None]
        first = np.arange(rows.start, rows.stop) * count
        direct = (first[:, None] + neighbors)[is_mutual]
        added = (first[:, None, None] + members)[counts]
        parts.append(np.unique(np.concatenate([direct, added])))
    keys = np.concatenate(parts)
    return keys // count, keys % count


def _reciprocal(near: Rows, rows: slice) -> NDArray[np.bool_]:
    """Which neighbors of some points are reciprocal, (n, 1 + k)."""
    point = np.arange(rows.start, rows.stop)[:, None, None]
    is_reciprocal: NDArray[np.bool_] = (near[near[rows]] == point).any(axis=2)
    return is_reciprocal


def _overlaps(rows: Any, columns: Any) -> FloatArray:
    """Σ_c min(V_ac, V_bc) of some rows a of V with all rows b, (n, N).

    The rows, (n, N), are sparse by row, and all of V, (N, N), by column.
    """
    count = columns.shape[0]
    result = np.empty((rows.shape[0], count))
    lengths = np.diff(columns.indptr)[rows.indices].astype(np.int64)
    totals = np.concatenate([[0], np.cumsum(lengths)])[rows.indptr]
    start = 0
    while start < len(result):
        max_total = totals[start] + _BLOCK_OVERLAPS
        stop = int(np.searchsorted(totals, max_total, side="right")) - 1
        stop = min(max(stop, start + 1), len(result))
        entries = slice(rows.indptr[start], rows.indptr[stop])
        owner = np.repeat(
            np.arange(stop - start), np.diff(rows.indptr[start : stop + 1])
        )
        long = lengths[entries]
        ends = np.cumsum(long)
        # Positions of all entries of the same columns.
        at = np.arange(long.sum()) + np.repeat(
            columns.indptr[rows.indices[entries]] - (ends - long), long
        )
        smaller = np.minimum(
            np.repeat(rows.data[entries], long), columns.data[at]
        )
        key = np.repeat(owner, long) * count + columns.indices[at]
        size = (stop - start) * count
        result[start:stop] = np.bincount(key, smaller, size).reshape(-1, count)
        start = stop
    return result
