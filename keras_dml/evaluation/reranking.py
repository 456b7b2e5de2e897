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
from keras_dml.utils.arrays import as_bytes, as_embeddings, as_ids
from keras_dml.utils.registry import Registry
from keras_dml.utils.types import Count, FloatArray, Rows
from keras_dml.utils.vectors import blocks, in_threads, squares

MEMORY = 2**26
"""Bytes of the scores that a thread processes together."""

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
    given: Kind | Sequence[Kind] | None, distance: Any, owner: str
) -> list[Reranking]:
    """The steps to apply, in order, checked."""
    if given is None:
        return []
    if isinstance(given, str | Mapping | Reranking):
        given = [given]
    made = [_made(x, owner) for x in given]
    for kind in made:
        if distance not in kind.supported:
            raise ValueError(
                f"`distance` of {owner} must be one of {kind.supported} for "
                f"{type(kind).__name__}. Received: distance={distance!r}. For "
                "embeddings of unit length, 'cosine' gives the same ranking "
                "as 'euclidean'."
            )
    if any(map(is_last, made[:-1])):
        raise ValueError(
            f"`rerank` of {owner} must have a last step that computes "
            "distances, and other steps that compute embeddings. Received: "
            f"{[type(x).__name__ for x in made]}."
        )
    return made


def is_last(kind: Reranking) -> bool:
    """Whether its results are distances, and not embeddings to be searched."""
    return type(kind).distances is not Reranking.distances


def _made(given: Any, owner: str) -> Reranking:
    if isinstance(given, Reranking):
        return given
    name, arguments = given, {}
    if isinstance(given, Mapping):
        arguments = {str(k): v for k, v in given.items() if k != "name"}
        name = given.get("name")
    if not isinstance(name, str):
        raise ValueError(
            f"`rerank` of {owner} must be a name, a name and arguments, or an "
            f"object. Received: {given!r}. Use one of {tuple(RERANKING)}, or "
            "{'name': 'k_reciprocal', 'k1': 20}."
        )
    kind = RERANKING[name].value
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(
            f"`rerank` of {owner} must have valid arguments of "
            f"{kind.__name__}. Received: {dict(arguments)}: {error}."
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
    own = np.full(len(x), -1)
    if itself is not None:
        own = as_ids(itself, len(x), "itself", owner)
        if own.min() < -1 or own.max() >= len(y):
            raise ValueError(
                f"`itself` of rerank must be rows of the {len(y)} images of "
                f"the gallery, or -1. Received: rows from {own.min()} to "
                f"{own.max()}."
            )
    least = int((own >= 0).any())
    if check_count(owner, "k", k) > len(y) - least:
        raise ValueError(
            f"`k` of rerank must be at most {len(y) - least}, the number of "
            f"images to find. Received: k={k!r}."
        )
    distances: Distances | None = None
    for step in steps:
        x, y = step.embeddings(x, y, own)
        distances = step.distances(x, y, own, distance)
    if distances is None:
        distances = _cosine_distances(x, y)
    found = np.empty((len(x), k)), np.empty((len(x), k), np.int64)
    for rows in blocks(len(x), max(1, limit // (BYTES_OF_PAIR * len(y)))):
        values = distances(rows)
        mine = np.flatnonzero(own[rows] >= 0)
        values[mine, own[rows][mine]] = np.inf
        order = np.argsort(values, axis=1, kind="stable")[:, :k]
        found[0][rows] = np.take_along_axis(values, order, axis=1)
        found[1][rows] = order
    return found


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
    found = np.empty((count, k), np.int64)
    if not k:
        return found
    right = scores.right(slice(0, size))

    def find(rows: slice) -> None:
        own = itself[rows]
        mine = np.flatnonzero(own >= 0)
        ignored = mine, own[mine]
        found[rows] = nearest_allowed(scores, rows, right, ignored, k)[1]

    # A query is left with all of the gallery where all scores are equal.
    in_threads(find, blocks(count, max(1, MEMORY // (64 * size))))
    return found


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
