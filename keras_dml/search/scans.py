"""Scans: queries compared with every vector of an index, or with some of them.

A scan misses nothing. It compares vectors as the index stores them: whole, or
as codes. `search_parameters` sets how much searches of lists and graphs miss.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

GRAPH_CANDIDATES = 2
"""Candidates of a graph per neighbor: with only one, it misses 3 % to 16 % of
100 neighbors in clusters."""

GATHERED_QUERIES = 10
"""Number of queries from which vectors are copied for a product of matrices,
because faiss compares pair by pair with a selector."""

MIN_PRODUCT_SHARE = 0.4
"""Share of flat vectors from which few queries are multiplied by all of them,
because faiss compares one by one with a selector."""

_PRODUCT_ROWS = 2**15
"""Vectors that are multiplied at a time."""

_COPIED_NUMBERS = 2**24
"""Numbers of vectors that are copied at a time, in 64 MiB."""


def nearest(
    index: Any, queries: FloatArray, k: int, labels: Rows
) -> tuple[FloatArray, Rows]:
    """Finds the k nearest of some vectors by comparing all of them.

    The vectors have faiss's `labels`, ascending, (n,), at least k. Returns
    products or squared distances, (Q, k) float32, best first, and labels.
    """
    import faiss

    part, queries = vectors_of(index, queries)
    selects = faiss.IndexFlat, faiss.IndexScalarQuantizer, faiss.IndexRaBitQ
    # RaBitQ of several bits reconstructs only the first of them.
    is_gathered = len(queries) >= GATHERED_QUERIES and not isinstance(
        part, faiss.IndexRaBitQ
    )
    if (
        isinstance(faiss.downcast_index(index), faiss.IndexFlat)
        and part.metric_type == faiss.METRIC_INNER_PRODUCT
        and len(labels) >= MIN_PRODUCT_SHARE * part.ntotal
        and not is_gathered
    ):
        return _nearest_by_product(part, queries, k, labels)
    if isinstance(part, faiss.IndexIVF) or (
        isinstance(part, selects) and not is_gathered
    ):
        return run_search(part, queries, k, _scan_parameters(part, labels))
    size = max(1, _COPIED_NUMBERS // part.d)
    parts = (
        (part.reconstruct_batch(labels[rows]), labels[rows])
        for rows in blocks(len(labels), size)
    )
    return nearest_of_parts(parts, queries, k, part.metric_type)


def _nearest_by_product(
    part: Any, queries: FloatArray, k: int, labels: Rows
) -> tuple[FloatArray, Rows]:
    """The k nearest of some flat vectors, by products with all of them."""
    import faiss

    flat: FloatArray = faiss.rev_swig_ptr(part.get_xb(), part.ntotal * part.d)
    vectors = flat.reshape(part.ntotal, part.d)
    heap = faiss.ResultHeap(len(queries), k, True)
    for block in blocks(part.ntotal, _PRODUCT_ROWS):
        first, last = np.searchsorted(labels, (block.start, block.stop))
        its = labels[first:last]
        scores = (vectors[block] @ queries.T)[its - block.start].T
        columns = np.broadcast_to(np.arange(len(its)), scores.shape)
        if len(its) > k:
            columns = np.argpartition(scores, -k, axis=1)[:, -k:]
        top = np.take_along_axis(scores, columns, axis=1)
        heap.add_result(np.ascontiguousarray(top), its[columns])
    heap.finalize()
    return heap.D, heap.I


def nearest_of_parts(
    parts: Iterable[tuple[FloatArray, Rows]],
    queries: FloatArray,
    k: int,
    metric_type: int,
) -> tuple[FloatArray, Rows]:
    """Finds the k nearest of vectors that come in parts with their labels."""
    import faiss

    is_product = metric_type == faiss.METRIC_INNER_PRODUCT
    heap = faiss.ResultHeap(len(queries), k, is_product)
    _multiply_batches(queries.shape[1])
    for x, labels in parts:
        scores, rows = faiss.knn(queries, x, min(k, len(x)), metric_type)
        heap.add_result(scores, labels[rows])
    heap.finalize()
    return heap.D, heap.I


def range_search(
    index: Any, queries: FloatArray, bound: float, labels: Rows | None
) -> tuple[Rows, FloatArray, Rows]:
    """Finds all vectors whose product, or squared distance, beats a bound.

    Only those with faiss's `labels`, which ascend, are compared, if given.
    Returns queries, ascending; products or squared distances; labels; (n,)
    each.
    """
    part, queries = vectors_of(index, queries)
    parameters = _scan_parameters(part, labels)
    limits, scores, hits = part.range_search(queries, bound, params=parameters)
    counts = np.diff(limits.astype(np.int64))
    return np.repeat(np.arange(len(queries)), counts), scores, hits


def vectors_of(index: Any, queries: FloatArray) -> tuple[Any, FloatArray]:
    """The part of an index with the vectors, and queries transformed for it."""
    import faiss

    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        for number in range(index.chain.size()):
            step = faiss.downcast_VectorTransform(index.chain.at(number))
            queries = step.apply(queries)
        return vectors_of(index.index, queries)
    for name in ("refine_index", "storage"):
        if hasattr(index, name):
            return vectors_of(getattr(index, name), queries)
    return index, queries


def run_search(
    index: Any, queries: FloatArray, k: int, parameters: Any = None
) -> tuple[FloatArray, Rows]:
    """Runs `index.search`; returns scores and labels, (Q, k)."""
    # `faiss.contrib.torch_utils` (of faiss 1.15), which pytorch-metric-learning
    # imports, replaces `search` by one without `params`, and renames faiss's.
    search = getattr(index, "search_numpy", index.search)
    _multiply_batches(index.d)
    result: tuple[FloatArray, Rows]
    result = search(queries, int(k), params=parameters)  # NumPy's k raises.
    return result


def _multiply_batches(dim: int) -> None:
    """Has faiss multiply matrices from four queries per thread on.

    faiss 1.15 compares queries of up to 128,000 numbers in all one by one. With
    few threads, that takes up to ten times as long; before, 20 queries were the
    limit.
    """
    import faiss

    if tuple(map(int, faiss.__version__.split(".")[:2])) >= (1, 15):
        limit = 4 * dim * faiss.omp_get_max_threads()
        faiss.cvar.distance_compute_blas_threshold = limit


def share_threads(lists: Any, queries: int) -> None:
    """Makes inverted files, if there are any, use all threads."""
    import faiss

    if lists is not None:
        # With few queries, faiss would leave threads idle: mode 1 divides the
        # lists of a query among threads, mode 0 the queries.
        lists.parallel_mode = int(queries < faiss.omp_get_max_threads())


def search_parameters(index: Any, k: int, effort: float = 1.0) -> Any:
    """faiss's parameters for a search of k vectors; None for kinds without any.

    `effort` multiplies the index's own number of lists or candidates.
    """
    import faiss

    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        inner = search_parameters(index.index, k, effort)
        return inner and faiss.SearchParametersPreTransform(index_params=inner)
    if isinstance(index, faiss.IndexRefine):
        wider = math.ceil(k * index.k_factor / GRAPH_CANDIDATES)
        inner = search_parameters(index.base_index, max(k, wider), effort)
        return inner and faiss.IndexRefineSearchParameters(
            base_index_params=inner, k_factor=index.k_factor
        )
    if isinstance(index, faiss.IndexIVF):
        lists = min(index.nlist, math.ceil(effort * index.nprobe))
        return _list_parameters(index, lists, max_codes=index.max_codes)
    if isinstance(index, faiss.IndexHNSW):
        candidates = max(effort * index.hnsw.efSearch, GRAPH_CANDIDATES * k)
        return faiss.SearchParametersHNSW(efSearch=math.ceil(candidates))
    return None


def _scan_parameters(part: Any, labels: Rows | None) -> Any:
    """Parameters that compare all vectors, or all with some labels."""
    import faiss

    options: dict[str, Any] = {}
    if labels is not None:
        bits = np.zeros(int(labels.max(initial=-1)) + 1, bool)
        bits[labels] = True
        packed = np.packbits(bits, bitorder="little")
        options["sel"] = faiss.IDSelectorBitmap(packed)
    if isinstance(part, faiss.IndexIVF):
        return _list_parameters(part, part.nlist, **options)
    # Kinds of codes in blocks take no parameters, not even empty ones.
    return faiss.SearchParameters(**options) if options else None


def _list_parameters(index: Any, lists: int, **options: Any) -> Any:
    import faiss

    quantizer = faiss.downcast_index(index.quantizer)
    if isinstance(quantizer, faiss.IndexHNSW):
        # A graph finds no more lists than it has candidates.
        options["quantizer_params"] = search_parameters(quantizer, lists)
    return faiss.SearchParametersIVF(nprobe=lists, **options)
