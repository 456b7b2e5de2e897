"""Scores of queries against a gallery: fast to filter, exact to decide.

The rank of an image depends on comparisons of scores. As in `exact`, a float32
product only decides those whose outcome its rounding error cannot change; the
others are decided by `Scores.exact`, in float64.
"""

from typing import Any, Literal, get_args

import numpy as np

from keras_dml.evaluation.ranks.exact import nearest, product_error, products
from keras_dml.utils.lazy_rows import EmbeddingRows, LazyRows, Selection
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import Vectors, blocks, row_norms, squares, within

DistanceName = Literal["cosine", "euclidean", "dot"]

DISTANCES = get_args(DistanceName)


class Scores:
    """Scores of pairs (query, gallery image); higher is nearer.

    Up to a constant factor that is a power of two, they are

    - dot: x·y;
    - euclidean: −|x − y|²/2;
    - cosine: x·y/(|x| |y|) − 1, or −1 if either is zero, computed as the
      euclidean score of the unit vectors, which distinguishes near ones whose
      cosines all round to 1.

    `lhs @ rhs.T` gives the scores of a block, minus `offset`, with an error
    of at most `tolerance`. Both factors are centered, because the error of a
    product grows with the size of its factors: collapsed embeddings (all
    cosines above 0.999) are resolved as finely as spread ones. To this end,
    with μ the mean and x' = x − μ, scores are written as x'·y' + b(x) + b(y),
    with the last two terms as two more dimensions, where b = −|x'|²/2, or μ·x'
    for dot.

    Args:
        queries: (Q, D), finite.
        gallery: (G, D), finite; may be the same array.
        distance: "cosine", "euclidean" or "dot".
    """

    def __init__(
        self, queries: EmbeddingRows, gallery: EmbeddingRows, distance: str
    ) -> None:
        norms = row_norms(queries)
        same = self._is_same = gallery is queries
        gallery_norms = norms if same else row_norms(gallery)
        scale = _scale(max(norms.max(), gallery_norms.max()), 1000)
        if distance == "cosine":
            self.queries = Vectors.unit(queries, norms)
            self.gallery = Vectors.unit(gallery, gallery_norms)
        else:
            self.queries = Vectors(queries, scale)
            self.gallery = Vectors(gallery, scale)
        self.distance = distance
        self._is_stored = isinstance(gallery, LazyRows)
        self.factor_size = gallery.shape[1] + 2
        self._mean = self.gallery.mean()
        self._largest = self._largest_sizes(self.gallery)
        norm, bias = self._largest
        if not same:
            norm, bias = self._largest_sizes(self.queries)
        # Scaled down, factors do not overflow float32.
        self._unit = _scale(
            norm * self._largest[0] + bias + self._largest[1], 100
        )
        self.offset = 0.0
        if distance == "dot":
            self.offset = float(self._mean @ self._mean) * self._unit

    def lhs(self, rows: Selection, dtype: Any = np.float32) -> FloatArray:
        """Left factor of the queries in `rows`, (n, D + 2)."""
        centered, bias = self._center(self.queries, rows)
        return _augment(centered, bias, 1.0, self._unit, dtype)

    def rhs(self, rows: slice, dtype: Any = np.float32) -> FloatArray:
        """Right factor of the gallery images in `rows`, (n, D + 2)."""
        size = rows.stop - rows.start
        factor = np.empty((size, self.factor_size), dtype)
        for part in self.gallery.blocks(rows):
            centered, bias = self._center(self.gallery, within(rows, part))
            factor[part] = _augment(centered, 1.0, bias, 1.0, dtype)
        return factor

    def tolerance(self, lhs: FloatArray) -> FloatArray:
        """Bound on the error of `lhs @ rhs.T` for each query, (n,).

        It is that of `product_error`, with room for the rounding of the factors
        and of the exact scores, and for underflow.
        """
        wide = lhs.astype(np.float64)
        norms = np.sqrt(squares(wide[:, :-2]))
        norm, bias = self._largest
        size = norms * norm + np.abs(wide[:, -2]) + wide[:, -1] * bias
        terms = lhs.shape[1] + 16
        rounding = product_error(terms, lhs.dtype)
        # Exact scores err by their size; those of dot, not being centered,
        # by the size of the embeddings, which is at most 1.
        exact_size = 4 * self._unit if self.distance == "dot" else size
        underflow = terms * 2.0**-126 * (1 + norms + norm)
        tolerance: FloatArray = (
            rounding * size + terms * 2.0**-53 * exact_size + underflow
        )
        return tolerance

    def exact(self, query_rows: Rows, gallery_rows: Rows) -> FloatArray:
        """Scores of pairs, (n,) rows each, computed in float64 one at a time.

        A score depends on the two vectors alone: pairs of equal vectors have
        equal scores, whatever their positions.
        """
        if self._is_stored:
            # Files are read several times faster in their order.
            order = np.argsort(gallery_rows)
            result = np.empty(len(order), np.float64)
            result[order] = self._exact(query_rows[order], gallery_rows[order])
            return result
        if self._is_same:
            # Both orders of two images have the same bits: one is computed.
            size = len(self.gallery)
            first = np.minimum(query_rows, gallery_rows)
            other = np.maximum(query_rows, gallery_rows)
            pairs, index = np.unique(first * size + other, return_inverse=True)
            return self._exact(*np.divmod(pairs, size))[index]
        return self._exact(query_rows, gallery_rows)

    def _exact(self, query_rows: Rows, gallery_rows: Rows) -> FloatArray:
        result = np.empty(len(query_rows), np.float64)
        # A chunk fits into the cache.
        chunk = max(1, 2**16 // self.factor_size)
        for pairs in blocks(len(query_rows), chunk):
            x = self.queries.rows(query_rows[pairs])
            y = self.gallery.rows(gallery_rows[pairs])
            if self.distance == "dot":
                result[pairs] = products(x, y)
            else:
                result[pairs] = -0.5 * squares(np.subtract(x, y, out=x))
        if self.distance == "cosine":
            either = self.queries.is_zero[query_rows]
            result[either | self.gallery.is_zero[gallery_rows]] = -1.0
        return result * self._unit

    def _center(
        self, vectors: Vectors, rows: Selection
    ) -> tuple[FloatArray, FloatArray]:
        """Vectors minus the mean, (n, D), and their bias, (n,)."""
        centered = vectors.rows(rows) - self._mean
        if self.distance == "dot":
            return centered, (centered * self._mean).sum(axis=1)
        bias = -0.5 * squares(centered)
        if self.distance == "cosine":
            bias -= vectors.is_zero[rows] * 0.5
        return centered, bias

    def _largest_sizes(self, vectors: Vectors) -> tuple[float, float]:
        """Largest norm and largest absolute bias."""
        norm = bias = 0.0
        for rows in vectors.blocks():
            centered, biases = self._center(vectors, rows)
            norm = max(norm, float(squares(centered).max()) ** 0.5)
            bias = max(bias, float(np.abs(biases).max()))
        return norm, bias


def nearest_allowed(
    scores: Scores, rows: slice, rhs: FloatArray, ignored: Any, k: int
) -> tuple[FloatArray, Rows]:
    """The k nearest images that each query may find, exactly.

    `rhs` is the right factor of the whole gallery, (G, D + 2), and `ignored`
    indexes the pairs, of (n, G), that must not be found. Returns exact scores,
    (n, min(k, G)) float64, descending, which are -inf where nothing is left to
    find; and images. Ties are in the order of the gallery.
    """
    lhs = scores.lhs(rows)
    rough = lhs @ rhs.T
    rough[ignored] = -np.inf

    def candidates(queries: Rows, size: int) -> tuple[FloatArray, Rows]:
        values = rough[queries]
        images = np.argpartition(values, -size, axis=1)[:, -size:]
        return np.take_along_axis(values, images, axis=1), images

    def exact(queries: Rows, images: Rows) -> FloatArray:
        pairs = np.repeat(queries, images.shape[1]), images.ravel()
        values = scores.exact(pairs[0] + rows.start, pairs[1]) - scores.offset
        is_ignored = np.isneginf(rough[pairs])
        return np.where(is_ignored, -np.inf, values).reshape(images.shape)

    return nearest(candidates, exact, scores.tolerance(lhs), k, len(rhs))


def _scale(largest: float, bound: int) -> float:
    """The power of two, within 2**±bound, that scales `largest` to 1."""
    if not largest:
        return 1.0
    return float(2.0 ** -np.clip(np.ceil(np.log2(largest)), -bound, bound))


def _augment(
    x: FloatArray, second_last: Any, last: Any, factor: float, dtype: Any
) -> FloatArray:
    result = np.empty((len(x), x.shape[1] + 2), dtype)
    result[:, :-2] = x * factor
    result[:, -2] = second_last * factor
    result[:, -1] = last * factor
    return result
