"""Exhaustive: comparisons of queries with every one of some vectors.

Graphs and lists find their way among all vectors: with a filter, most of what
they come to does not pass, and they return too little. These searches look at
what passes and at nothing else. They miss nothing; scores are those of the
vectors as the index keeps them, whole or compressed.
"""

from typing import Any

import numpy as np

from keras_dml.search import faiss_kinds
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

MANY = 10
"""From this many queries on, vectors that pass are copied, for one product of
matrices: with a selector, faiss compares pair by pair. Where half of them pass
that is faster from 2 queries on, where nearly all do from 8 to 12 on."""

_NUMBERS = 2**24
"""Numbers of vectors that are copied at a time, in 64 MiB."""


def nearest(
    index: Any, queries: FloatArray, k: int, chosen: Rows
) -> tuple[FloatArray, Rows]:
    """The k nearest of the chosen vectors, in no particular order.

    Args:
        index: A faiss index of products or squared distances.
        queries: (Q, D) float32.
        k: How many, at most as many as are chosen.
        chosen: What the index calls the vectors, ascending.

    Returns:
        Products or squared distances, (Q, k) float32, and labels, (Q, k); −1
        where there is none.
    """
    faiss = faiss_kinds.library()
    part, queries = _comparing(index, queries)
    can_select = isinstance(part, faiss.IndexFlat | faiss.IndexScalarQuantizer)
    if isinstance(part, faiss.IndexIVF) or (can_select and len(queries) < MANY):
        # A NumPy integer would be refused.
        return part.search(queries, int(k), params=_all(part, chosen))
    scores: list[FloatArray] = []
    labels: list[Rows] = []
    for block in blocks(len(chosen), max(1, _NUMBERS // part.d)):
        x = _vectors(part, chosen[block])
        found = faiss.knn(queries, x, min(k, len(x)), part.metric_type)
        scores.append(found[0])
        labels.append(chosen[block][found[1]])
    return _best(np.hstack(scores), np.hstack(labels), k, part.metric_type)


def above(
    index: Any, queries: FloatArray, bound: float, chosen: Rows | None
) -> tuple[Rows, FloatArray, Rows]:
    """All of the chosen vectors whose score is better than a bound.

    Args:
        index: As for `nearest`.
        queries: (Q, D) float32.
        bound: A product that they exceed, or a squared distance that they
            stay below.
        chosen: What the index calls the vectors, ascending; None for all.

    Returns:
        The query of each, ascending; products or squared distances; labels;
        (n,) each.

    Raises:
        ValueError: If faiss cannot do that with this kind of index.
    """
    part, queries = _comparing(index, queries)
    parameters = _all(part, chosen)
    try:
        limits, scores, labels = part.range_search(
            queries, bound, params=parameters
        )
    except RuntimeError as error:
        raise ValueError(
            "`factory` of an Index must be of a kind that can be searched by "
            f"range. Received: a faiss {type(part).__name__}, which does not "
            f"support it: {error}. Use Index.search with a `k`, or build the "
            "index with another factory."
        ) from None
    counts = np.diff(limits.astype(np.int64))
    return np.repeat(np.arange(len(queries)), counts), scores, labels


def _comparing(index: Any, queries: FloatArray) -> tuple[Any, FloatArray]:
    """The part of an index with all vectors, and queries as it takes them."""
    faiss = faiss_kinds.library()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        for number in range(index.chain.size()):
            step = faiss.downcast_VectorTransform(index.chain.at(number))
            queries = step.apply(queries)
        return _comparing(index.index, queries)
    for name in ("refine_index", "storage"):
        if hasattr(index, name):
            return _comparing(getattr(index, name), queries)
    return index, queries


def _all(part: Any, chosen: Rows | None) -> Any:
    """Search parameters that leave out nothing but what is not chosen."""
    faiss = faiss_kinds.library()
    options: dict[str, Any] = {}
    if chosen is not None:
        options["sel"] = faiss_kinds.selector(chosen)
    if isinstance(part, faiss.IndexIVF):
        return faiss_kinds.probing(part, part.nlist, **options)
    return faiss.SearchParameters(**options)


def _vectors(part: Any, labels: Rows) -> FloatArray:
    """Some of the vectors as they are kept, (n, D) float32."""
    try:
        x: FloatArray = part.reconstruct_batch(labels)
    except RuntimeError as error:
        raise ValueError(
            "`factory` of an Index must be of a kind that can be filtered. "
            f"Received: a faiss {type(part).__name__}, which does not support "
            f"it: {error}. Search without `where`, or build the index with "
            "another factory."
        ) from None
    return x


def _best(
    scores: FloatArray, labels: Rows, k: int, metric: int
) -> tuple[FloatArray, Rows]:
    if scores.shape[1] > k:
        is_product = metric == faiss_kinds.library().METRIC_INNER_PRODUCT
        keys = -scores if is_product else scores
        order = np.argpartition(keys, k - 1, axis=1)[:, :k]
        scores = np.take_along_axis(scores, order, axis=1)
        labels = np.take_along_axis(labels, order, axis=1)
    return scores, labels
