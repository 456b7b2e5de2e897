"""Expansion of queries and of the gallery with their neighbors."""

import math
from typing import Annotated, TypeAlias

import numpy as np
from annotated_types import Ge, Lt

from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.evaluation.reranking.base import (
    RERANKING,
    Reranking,
    nearest_others,
)
from keras_dml.utils.types import Count, FloatArray, Rows
from keras_dml.utils.vectors import blocks, squares

Power: TypeAlias = Annotated[float, Ge(0), Lt(math.inf)]


@RERANKING.register("query_expansion")
class AlphaQueryExpansion(Reranking):
    """αQE: the query becomes a weighted mean of itself and its neighbors.

    x' = x + Σ_i (x·y_i)^α y_i over the k nearest images of the gallery,
    normalized; x itself has weight 1. With α = 0, it is average query
    expansion.

    Deviations:
        A neighbor with a negative cosine, whose power is undefined, has weight
        0. A query that is in the gallery is not its own neighbor.

    Args:
        k: Number of neighbors; in a smaller gallery, all other images.
        alpha: How much more weight near neighbors have than distant ones.

    Raises:
        ValueError: If `k` is not a positive integer or `alpha` is negative.

    Reference:
        Radenović et al., "Fine-tuning CNN Image Retrieval with No Human
        Annotation", TPAMI 2018, section 4.3, https://arxiv.org/abs/1711.02512
    """

    def __init__(self, k: Count = 10, alpha: Power = 3.0) -> None:
        self.k = k
        self.alpha = float(alpha)

    def embeddings(
        self, queries: FloatArray, gallery: FloatArray, itself: Rows
    ) -> tuple[FloatArray, FloatArray]:
        return _expanded(queries, gallery, itself, self.k, self.alpha), gallery


@RERANKING.register("database_augmentation")
class DatabaseAugmentation(Reranking):
    """DBA: gallery images become weighted means of their neighborhoods.

    y' = y + Σ_i w_i y_i over the k nearest other images of the gallery,
    normalized. By default w_i = (k + 1 − i) / (k + 1) for the i-th; with
    `alpha` it is (y·y_i)^α, as for queries. Queries are unchanged: put
    `AlphaQueryExpansion` after it to expand them with the new gallery.

    Deviations:
        None; the paper's k includes the image itself, this one does not.

    Args:
        k: Number of neighbors; in a smaller gallery, all other images.
        alpha: Uses weights by similarity instead of weights by rank.

    Raises:
        ValueError: If `k` is not a positive integer or `alpha` is negative.

    Reference:
        Gordo et al., "End-to-end Learning of Deep Visual Representations for
        Image Retrieval", IJCV 2017, section 5.4,
        https://arxiv.org/abs/1610.07940
    """

    def __init__(self, k: Count = 10, alpha: Power | None = None) -> None:
        self.k = k
        self.alpha = None if alpha is None else float(alpha)

    def embeddings(
        self, queries: FloatArray, gallery: FloatArray, itself: Rows
    ) -> tuple[FloatArray, FloatArray]:
        every = np.arange(len(gallery))
        return queries, _expanded(gallery, gallery, every, self.k, self.alpha)


def _expanded(
    queries: FloatArray,
    gallery: FloatArray,
    itself: Rows,
    k: int,
    alpha: float | None,
) -> FloatArray:
    """Normalized sums of queries and their neighbors, (Q, D)."""
    scores = Scores(queries, gallery, "cosine")
    found = nearest_others(scores, itself, k)
    result = np.empty_like(queries)
    by_rank = 1 - np.arange(1, found.shape[1] + 1) / (k + 1)
    size = max(1, 2**21 // (max(1, found.shape[1]) * queries.shape[1]))
    for rows in blocks(len(queries), size):
        x = scores.queries.rows(rows)
        near = scores.gallery.rows(found[rows].ravel())
        near = near.reshape(*found[rows].shape, -1)  # (n, k, D)
        if alpha is None:
            weights = np.broadcast_to(by_rank, found[rows].shape)
        else:
            weights = np.einsum("nd,nkd->nk", x, near).clip(0) ** alpha
        total = x + np.einsum("nk,nkd->nd", weights, near)
        norms = np.sqrt(squares(total))[:, None]
        result[rows] = np.divide(total, norms, total, where=norms > 0)
    return result
