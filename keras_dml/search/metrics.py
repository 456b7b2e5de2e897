"""Similarities: scores as faiss computes them, and exactly in float64.

Inner scores, x·y or −|x − y|², are those of faiss; users get outer scores, x·y
or −|x − y|. Either way, higher is nearer.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.ranks import exact
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.arrays import Embeddings, UnitEmbeddings
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import row_norms

MetricName = Literal["cosine", "dot", "euclidean"]

COSINE: MetricName = "cosine"

_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Similarity:
    """How two embeddings are compared; "cosine" scales them to unit length."""

    name: MetricName = COSINE

    def __post_init__(self) -> None:
        check_choice("Index", "metric", self.name, get_args(MetricName))

    @property
    def is_distance(self) -> bool:
        return self.name == "euclidean"

    @property
    def faiss_type(self) -> int:
        name = "METRIC_L2" if self.is_distance else "METRIC_INNER_PRODUCT"
        return int(getattr(library(), name))

    def embeddings(
        self, x: Any, dim: int | None, name: str, owner: str
    ) -> Embeddings:
        """A user's embeddings, validated, as they are stored and compared."""
        kind = UnitEmbeddings if self.name == COSINE else Embeddings
        return kind(x, dim, name, owner)

    def inner(self, scores: Any) -> Any:
        """Converts faiss's scores to inner scores, or vice versa."""
        return -scores if self.is_distance else scores

    def outer(self, scores: FloatArray) -> FloatArray:
        """Outer scores, float32."""
        if self.is_distance:
            # The squared distance of a compressed vector may be negative.
            scores = -np.sqrt(np.maximum(-scores, 0))
        return scores.astype(np.float32)

    def bound(self, threshold: float) -> float:
        """The inner score of an outer threshold."""
        if not self.is_distance:
            return threshold
        return -(threshold**2) if threshold < 0 else 0.0

    def exact(
        self, queries: FloatArray, vectors: FloatArray, labels: Rows
    ) -> FloatArray:
        """Inner scores, (Q, m) float64, of queries, (Q, D), with vectors.

        `labels`, (Q, m), are the rows of the vectors, (N, D), of each query. A
        score depends only on its two vectors.
        """
        compare = _negative_squares if self.is_distance else exact.products
        return exact.score_pairs(compare, queries, vectors, labels)

    def pairs(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Outer scores of pairs, (N, D) each, in float32."""
        if not self.is_distance:
            return np.einsum("nd,nd->n", x, y)
        gap = x - y
        return self.outer(-np.einsum("nd,nd->n", gap, gap))

    def are_copies(
        self, queries: FloatArray, scores: FloatArray
    ) -> NDArray[np.bool_]:
        """Whether hits are copies of their query, (Q, k), by outer scores.

        Copies embedded in other batches may be rounded differently.
        """
        if self.is_distance:
            gap, allowed = -scores, 1e-5 * row_norms(queries)
        else:
            norms = row_norms(queries)
            best = norms**0 if self.name == COSINE else norms**2
            gap, allowed = np.abs(scores - best[:, None]), 1e-6 * best
        return np.asarray(gap <= allowed[:, None])

    def tolerance(self, queries: FloatArray, longest: float) -> FloatArray:
        """Bound on the error of faiss's inner scores, (Q,).

        It is doubled, because vectors, of norms up to `longest`, are rounded.
        """
        dim = queries.shape[1]
        if self.name == COSINE:  # Factors have norm 1.
            return np.full(len(queries), exact.product_error(2 * dim))
        norms = row_norms(queries)
        # For many queries, faiss computes |x|² + |y|² − 2x·y.
        sizes = (norms + longest) ** 2 if self.is_distance else norms * longest
        underflow = 4 * (dim + 2) * _SMALLEST_NORMAL
        tolerance: FloatArray = (
            exact.product_error(2 * dim + 8) * sizes + underflow
        )
        return tolerance


def _negative_squares(x: FloatArray, y: FloatArray) -> FloatArray:
    """−|x − y|² along the last axis, in float64."""
    difference = np.subtract(x, y, dtype=np.float64)
    result: FloatArray = -np.square(difference, out=difference).sum(axis=-1)
    return result


def library() -> Any:
    """The module faiss, untyped: its stubs lack parts of its Python layer."""
    import faiss

    return faiss
