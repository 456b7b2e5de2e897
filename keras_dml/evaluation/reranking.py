"""Re-ranking: the interface of all kinds, their registry, and `rerank`.

Queries and gallery are expanded with their neighbors here; `reciprocal`
compares neighborhoods.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
from annotated_types import Ge, Lt

from keras_dml.evaluation.ranks.scores import Scores, nearest_allowed
from keras_dml.evaluation.ranks.search import BYTES_OF_PAIR, Distances
from keras_dml.utils.arguments import Checked, check_count
from keras_dml.utils.registry import Registry
from keras_dml.utils.types import Count, FloatArray, Rows
from keras_dml.utils.vectors import (
    as_bytes,
    as_embeddings,
    as_ids,
    blocks,
    in_threads,
    squares,
)

THREAD_BYTES = 2**26
"""Bytes of scores that a thread processes at a time."""

Power: TypeAlias = Annotated[float, Ge(0), Lt(math.inf)]


class Reranking(Checked):
    """Improves rankings using the neighbors of queries and of the gallery.

    A kind of re-ranking overrides one method: `embeddings`, if its result can
    be searched as before, or `distances`, if it cannot.

    Attributes:
        supported: Distances that it is defined for.
    """

    supported: tuple[str, ...] = ("cosine",)

    def embeddings(
        self, queries: FloatArray, gallery: FloatArray, itself: Rows
    ) -> tuple[FloatArray, FloatArray]:
        """Returns new embeddings of queries, (Q, D), and gallery, (G, D).

        Args:
            queries: (Q, D).
            gallery: (G, D).
            itself: Position of each query in the gallery, or −1, (Q,).
        """
        return queries, gallery

    def distances(
        self,
        queries: FloatArray,
        gallery: FloatArray,
        itself: Rows,
        distance: str,
    ) -> Distances | None:
        """Returns new distances of queries to the gallery, or None if
        unchanged.

        Args:
            queries, gallery, itself: See `embeddings`.
            distance: One of `supported`.
        """
        return None


RERANKING: Registry[type[Reranking]] = Registry("re-ranking")
"""All kinds of re-ranking, by name."""

Kind: TypeAlias = str | Mapping[str, Any] | Reranking
"""A name; a name and arguments, {"name": …, "k1": …}; or an object."""


def rerankings(
    kinds: Kind | Sequence[Kind] | None, distance: Any, owner: str
) -> list[Reranking]:
    """Builds and checks the steps of re-ranking."""
    if kinds is None:
        return []
    if isinstance(kinds, str | Mapping | Reranking):
        kinds = [kinds]
    steps = [_build_reranking(x, owner) for x in kinds]
    for step in steps:
        if distance not in step.supported:
            raise ValueError(
                f"`distance` of {owner} must be one of {step.supported} for "
                f"{type(step).__name__}. Received: distance={distance!r}. For "
                "embeddings of unit length, 'cosine' gives the same ranking "
                "as 'euclidean'."
            )
    if any(map(is_last, steps[:-1])):
        raise ValueError(
            f"`rerank` of {owner} must have a last step that computes "
            "distances, and other steps that compute embeddings. Received: "
            f"{[type(x).__name__ for x in steps]}."
        )
    return steps


def is_last(kind: Reranking) -> bool:
    """Whether it returns distances instead of embeddings to search."""
    return type(kind).distances is not Reranking.distances


def _build_reranking(kind: Any, owner: str) -> Reranking:
    if isinstance(kind, Reranking):
        return kind
    name, arguments = kind, {}
    if isinstance(kind, Mapping):
        arguments = {str(k): v for k, v in kind.items() if k != "name"}
        name = kind.get("name")
    if not isinstance(name, str):
        raise ValueError(
            f"`rerank` of {owner} must be a name, a name and arguments, or an "
            f"object. Received: {kind!r}. Use one of {tuple(RERANKING)}, or "
            "{'name': 'k_reciprocal', 'k1': 20}."
        )
    reranking = RERANKING[name].value
    try:
        return reranking(**arguments)
    except TypeError as error:
        raise ValueError(
            f"`rerank` of {owner} must have valid arguments of "
            f"{reranking.__name__}. Received: {dict(arguments)}: {error}."
        ) from error


def rerank(
    queries: Any,
    gallery: Any,
    k: int = 10,
    *,
    rerank: Kind | Sequence[Kind] = "k_reciprocal",
    distance: str = "cosine",
    itself: Any = None,
    memory: int | str = "512MB",
) -> tuple[FloatArray, Rows]:
    """The k nearest images of each query, after re-ranking.

    Args:
        queries: Embeddings, (Q, D).
        gallery: Embeddings, (G, D), such as those of an index.
        k: Number of images per query.
        rerank: A name in `RERANKING`, a name and arguments such as {"name":
            "k_reciprocal", "k1": 20}, an object, or several that are applied
            in order.
        distance: "cosine", or "euclidean" for `KReciprocal`.
        itself: Position of each query in the gallery, or −1, (Q,), if queries
            are images of the gallery; they do not find themselves.
        memory: Bytes for the rows of distances that are ranked together, or a
            text such as "512MB".

    Returns:
        Distances, (Q, k), ascending; and positions in the gallery, (Q, k);
        ties keep their order. If re-ranking computes embeddings, distances are
        1 − cosine.

    Raises:
        ValueError: If an argument is not as described.
    """
    owner = "rerank"
    steps = rerankings(rerank, distance, owner)
    limit = as_bytes(memory, owner)
    x = as_embeddings(queries, "queries", owner)
    y = as_embeddings(gallery, "gallery", owner)
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            "`gallery` of rerank must have the same number of dimensions as "
            f"`queries`. Received: queries.shape={x.shape}, "
            f"gallery.shape={y.shape}."
        )
    positions = np.full(len(x), -1)
    if itself is not None:
        positions = as_ids(itself, len(x), "itself", owner)
        if positions.min() < -1 or positions.max() >= len(y):
            raise ValueError(
                f"`itself` of rerank must be rows of the {len(y)} images of "
                f"the gallery, or -1. Received: rows from {positions.min()} to "
                f"{positions.max()}."
            )
    num_self = int((positions >= 0).any())
    if check_count(owner, "k", k) > len(y) - num_self:
        raise ValueError(
            f"`k` of rerank must be at most {len(y) - num_self}, the number of "
            f"images to find. Received: k={k!r}."
        )
    distances: Distances | None = None
    for step in steps:
        x, y = step.embeddings(x, y, positions)
        distances = step.distances(x, y, positions, distance)
    if distances is None:
        distances = _cosine_distances(x, y)
    nearest = np.empty((len(x), k)), np.empty((len(x), k), np.int64)
    for rows in blocks(len(x), max(1, limit // (BYTES_OF_PAIR * len(y)))):
        values = distances(rows)
        mine = np.flatnonzero(positions[rows] >= 0)
        values[mine, positions[rows][mine]] = np.inf
        order = np.argsort(values, axis=1, kind="stable")[:, :k]
        nearest[0][rows] = np.take_along_axis(values, order, axis=1)
        nearest[1][rows] = order
    return nearest


def _cosine_distances(x: FloatArray, y: FloatArray) -> Distances:
    """1 − cosine, rounded to 12 digits so that equal vectors tie."""
    scores = Scores(x, y, "cosine")
    gallery = scores.gallery.rows(slice(0, len(y)))

    def of(rows: slice) -> FloatArray:
        cosines: FloatArray = scores.queries.rows(rows) @ gallery.T
        return (1 - cosines).round(12)

    return of


def nearest_others(scores: Scores, itself: Rows, k: int) -> Rows:
    """Positions, (Q, k), of the nearest images, excluding the query itself.

    `itself` is the position of each query in the gallery, or −1, (Q,). Of
    fewer others than k, all are returned.
    """
    count, size = len(scores.queries), len(scores.gallery)
    k = min(k, size - int((itself >= 0).any()))
    neighbors = np.empty((count, k), np.int64)
    if not k:
        return neighbors
    rhs = scores.rhs(slice(0, size))

    def find(rows: slice) -> None:
        at = itself[rows]
        mine = np.flatnonzero(at >= 0)
        ignored = mine, at[mine]
        neighbors[rows] = nearest_allowed(scores, rows, rhs, ignored, k)[1]

    # If all scores are equal, a query has the whole gallery as candidates.
    in_threads(find, blocks(count, max(1, THREAD_BYTES // (64 * size))))
    return neighbors


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
        return _expand(queries, gallery, itself, self.k, self.alpha), gallery


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
        return queries, _expand(gallery, gallery, every, self.k, self.alpha)


def _expand(
    queries: FloatArray,
    gallery: FloatArray,
    itself: Rows,
    k: int,
    alpha: float | None,
) -> FloatArray:
    """Normalized sums of queries and their neighbors, (Q, D)."""
    scores = Scores(queries, gallery, "cosine")
    neighbors = nearest_others(scores, itself, k)
    result = np.empty_like(queries)
    by_rank = 1 - np.arange(1, neighbors.shape[1] + 1) / (k + 1)
    size = max(1, 2**21 // (max(1, neighbors.shape[1]) * queries.shape[1]))
    for rows in blocks(len(queries), size):
        x = scores.queries.rows(rows)
        near = scores.gallery.rows(neighbors[rows].ravel())
        near = near.reshape(*neighbors[rows].shape, -1)  # (n, k, D)
        if alpha is None:
            weights = np.broadcast_to(by_rank, neighbors[rows].shape)
        else:
            weights = np.einsum("nd,nkd->nk", x, near).clip(0) ** alpha
        total = x + np.einsum("nk,nkd->nd", weights, near)
        norms = np.sqrt(squares(total))[:, None]
        result[rows] = np.divide(total, norms, total, where=norms > 0)
    return result
