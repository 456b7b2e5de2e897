"""`rerank`: the nearest images of queries, after re-ranking."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_dml.evaluation.ranks.dense import BYTES_OF_PAIR, Distances
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.evaluation.reranking.base import Kind, rerankings
from keras_dml.utils.arguments import check_count
from keras_dml.utils.arrays import as_bytes, as_embeddings, as_ids
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks


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
            "`queries`. "
            f"Received: queries.shape={x.shape}, gallery.shape={y.shape}."
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
