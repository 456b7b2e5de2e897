"""Approximate: searches in kinds of index that may miss some of the nearest.

Graphs and lists find their way among all vectors: with a filter, most of what
they come to does not pass. `Approximate` has them search the harder, and in the
end compares queries with every vector that passes, by `compared`, which misses
nothing. Scores are those of the vectors as the index keeps them, whole or
compressed.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_dml.search.filters import Mask
from keras_dml.search.hits import NONE
from keras_dml.search.metrics import Metric, library
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, row_norms

MOST = 0.75
"""A filter that a larger share of the rows passes is left to the kind."""

FEW, LITTLE = 2**17, 1 / 20
"""Up to this many rows, or this fraction, are compared one by one."""

EFFORT = 2
"""How many times as thoroughly a kind searches where a filter is left to it:
inverted files reach .98 of the exact answer for .88 without a filter."""

MEASURED = 20
"""Up to this many neighbors, recall is about that which is measured for 10.
For more, lists or candidates grow with the square root of their number."""

WIDER, WIDEST = 8, 1 / 100
"""Where too few of the vectors found pass, this many times as many are
searched for, up to this fraction of all; beyond it, all are compared."""

FARTHER = 0.05
"""After removals, inverted files are doubted where a query's last hit is
farther than that of all but this fraction of the rows: its nearest ones may
have been removed, and what is then nearest lies in more lists."""

SAMPLE = 512
"""Rows that are searched for to know how far hits usually are."""

AGREEING = 0.98
"""Share of the hits that two efforts must find both to be believed."""

_FOUND = 2**22
"""Vectors found at a time, before those that do not pass are left out."""

CANDIDATES = 2
"""Candidates of a graph for each of the vectors that it is to find: with as
many as vectors, it misses 3 % to 16 % of 100 in clusters."""

MANY = 10
"""From this many queries on, vectors that pass are copied, for one product of
matrices: with a selector, faiss compares pair by pair. Where half of them pass
that is faster from 2 queries on, where nearly all do from 8 to 12 on."""

_NUMBERS = 2**24
"""Numbers of vectors that are copied at a time, in 64 MiB."""


class Approximate:
    """Searches in a faiss index that is not exact.

    Args:
        index: It.
        lists: Its inverted files; None without them.
        metric: What it compares by.
        labels: What it calls its vectors, ascending, (N,).
        has_holes: Whether vectors were removed from lists.
        candidates: How many vectors are found for each that is wanted.
    """

    def __init__(
        self,
        index: Any,
        lists: Any,
        metric: Metric,
        labels: Rows,
        has_holes: bool,
        candidates: int,
    ) -> None:
        self._index, self._lists, self._metric = index, lists, metric
        self._labels, self._has_holes = labels, has_holes
        self._candidates = candidates
        # By k, the score that FARTHER is of.
        self._usual: dict[int, float] = {}

    def nearest(
        self, queries: FloatArray, k: int, chosen: Rows | None, total: int
    ) -> tuple[FloatArray, Rows]:
        """What the index finds, as faiss returns it.

        Whatever the filter, the kind searches among all vectors, and what does
        not pass is left out. That k of those found pass is only to be expected
        where a filter does not depend on the query; where they do not, what is
        next to it was filtered out. The kind then searches wider, until it
        finds the same hits twice, and at last everything is compared.
        """
        share_threads(self._lists, len(queries))
        width, effort = k, self._effort(k)
        among, count = self._labels, len(self._labels)
        passes: Mask | None = None
        if chosen is not None:
            can_search = searching(self._index, k) is not None
            if not can_search or _are_few(len(chosen), total):
                return compared(self._index, queries, k, chosen)
            among, share = chosen, len(chosen) / count
            # Where vectors are only hidden, there is no filter.
            if len(chosen) < total and not self._has_holes:
                effort *= EFFORT
            effort /= share
            # Five standard deviations above the mean, a binomial one's.
            deviation = (k * (1 - share)) ** 0.5 / share
            width = min(count, round(k / share + 5 * deviation))
            # Which labels are chosen; at −1, the last, that none is.
            passes = np.zeros(int(self._labels[-1]) + 2, bool)
            passes[chosen] = True
        found, near = self._first(queries, k, passes, width, effort)
        if not self._has_holes and near[:, -1].min() != NONE:
            return found, near
        is_right = near[:, -1] != NONE
        if self._has_holes:
            # Among all vectors, the last hit comes later.
            rank = min(round(k * count / len(among)), count)
            is_right &= self._are_near(queries, found, rank)
        left = np.flatnonzero(~is_right)
        while count > FEW and len(left):
            width, effort = WIDER * width, 2 * effort
            if width > WIDEST * count:
                break
            again = self._first(queries[left], k, passes, width, effort)
            is_right = again[1][:, -1] != NONE
            is_right &= _share_of_equal(again[1], near[left]) >= AGREEING
            found[left], near[left] = again
            left = left[~is_right]
        if len(left):
            found[left], near[left] = compared(
                self._index, queries[left], k, among
            )
        return found, near

    def _first(
        self,
        queries: FloatArray,
        k: int,
        passes: Mask | None,
        width: int,
        effort: float,
    ) -> tuple[FloatArray, Rows]:
        """The first k that pass of the vectors found, (Q, k); −1 for none."""
        if len(queries) * width > _FOUND and len(queries) > 1:
            parts = [
                self._first(queries[part], k, passes, width, effort)
                for part in blocks(len(queries), max(1, _FOUND // width))
            ]
            scores, labels = zip(*parts, strict=True)
            return np.concatenate(scores), np.concatenate(labels)
        parameters = None
        if width > MEASURED or effort != 1:
            parameters = searching(self._index, width, effort)
        found, near = _search(self._index, queries, width, parameters)
        if passes is None and width == k:
            return found, near
        is_out = near == NONE if passes is None else ~passes[near]
        near[is_out] = NONE
        order = np.argsort(is_out, axis=1, kind="stable")[:, :k]
        return (
            np.take_along_axis(found, order, axis=1),
            np.take_along_axis(near, order, axis=1),
        )

    def _effort(self, k: int) -> float:
        """How many times as thoroughly k vectors are searched for.

        Next to removed rows, hits are farther and in more lists.
        """
        wanted = k / max(1, self._candidates)
        effort: float = max(1, wanted / MEASURED) ** 0.5
        return effort * EFFORT if self._has_holes else effort

    def _are_near(self, queries: FloatArray, found: FloatArray, k: int) -> Mask:
        """Whether the last hits are about as near as rows' kth, (Q,)."""
        if k not in self._usual:
            rows = sample(self._lists, SAMPLE)
            # They find themselves, too.
            parameters = searching(self._lists, k, self._effort(k))
            scores, _ = _search(self._lists, rows, k + 1, parameters)
            usual = self._last(rows, scores)
            self._usual[k] = float(np.quantile(usual, FARTHER))
        is_near: Mask = self._last(queries, found) >= self._usual[k]
        return is_near

    def _last(self, queries: FloatArray, found: FloatArray) -> FloatArray:
        """The last score of each query, (Q,), whatever the query's norm."""
        last = self._metric.inner(found[:, -1])
        if self._metric.is_distance:
            return last
        return last / np.maximum(row_norms(queries), np.float32(1e-30))


def _search(
    index: Any, queries: FloatArray, k: int, parameters: Any
) -> tuple[FloatArray, Rows]:
    """What faiss finds: scores and labels, (Q, k)."""
    # `faiss.contrib.torch_utils` (of faiss 1.15), which pytorch-metric-learning
    # imports, gives all indexes a `search` without `params`, and this name to
    # faiss's own.
    search = getattr(index, "search_numpy", index.search)
    if type(parameters) is library().SearchParameters and not parameters.sel:
        parameters = None  # Of blocks of codes, which take none.
    found: tuple[FloatArray, Rows]
    found = search(queries, int(k), params=parameters)  # A NumPy k is refused.
    return found


def share_threads(lists: Any, queries: int) -> None:
    """Has inverted files, if there are any, use all threads."""
    if lists is not None:
        # faiss gives each query one thread, and leaves others idle. Mode 1
        # divides the lists of a query, mode 0 the queries.
        lists.parallel_mode = int(queries < library().omp_get_max_threads())


def _are_few(chosen: int, total: int) -> bool:
    """Whether rows that pass a filter are compared one by one."""
    share = chosen / total
    return share <= MOST and (chosen <= FEW or share <= LITTLE)


def _share_of_equal(some: Rows, others: Rows) -> FloatArray:
    """Which share of labels, (Q, k), unequal in a row, are among others."""
    both = np.sort(np.hstack([some, others]), axis=1)
    is_twice = (both[:, 1:] == both[:, :-1]) & (both[:, 1:] != NONE)
    share: FloatArray = is_twice.mean(axis=1) * (both.shape[1] - 1)
    return share / some.shape[1]


def compared(
    index: Any, queries: FloatArray, k: int, chosen: Rows
) -> tuple[FloatArray, Rows]:
    """The k nearest of the chosen vectors, all compared, in no order.

    Args:
        index: A faiss index of products or squared distances.
        queries: (Q, D) float32.
        k: How many, at most as many as are chosen.
        chosen: What the index calls the vectors, ascending.

    Returns:
        Products or squared distances, (Q, k) float32, and labels, (Q, k); −1
        where there is none.
    """
    faiss = library()
    part, queries = _comparing(index, queries)
    can_select = isinstance(part, faiss.IndexFlat | faiss.IndexScalarQuantizer)
    if isinstance(part, faiss.IndexIVF) or (can_select and len(queries) < MANY):
        return _search(part, queries, k, _all(part, chosen))
    size = max(1, _NUMBERS // part.d)
    if len(chosen) <= size:
        x = _vectors(part, chosen)
        found, rows = faiss.knn(queries, x, k, part.metric_type)
        return found, chosen[rows]
    return nearest_of(
        (
            (_vectors(part, chosen[rows]), chosen[rows])
            for rows in blocks(len(chosen), size)
        ),
        queries,
        k,
        part.metric_type,
    )


def nearest_of(
    parts: Iterable[tuple[FloatArray, Rows]],
    queries: FloatArray,
    k: int,
    metric_type: int,
) -> tuple[FloatArray, Rows]:
    """The k nearest of vectors that come in parts, all compared, best first.

    A part is vectors, (n, D) float32, and their labels, (n,); the rest is as of
    `compared`.
    """
    faiss = library()
    is_product = metric_type == faiss.METRIC_INNER_PRODUCT
    best = faiss.ResultHeap(len(queries), k, is_product)
    for x, labels in parts:
        found, rows = faiss.knn(queries, x, min(k, len(x)), metric_type)
        best.add_result(found, labels[rows])
    best.finalize()
    return best.D, best.I


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
    faiss = library()
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
    faiss = library()
    options: dict[str, Any] = {}
    if chosen is not None:
        options["sel"] = selector(chosen)
    if isinstance(part, faiss.IndexIVF):
        return probing(part, part.nlist, **options)
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


def probing(index: Any, lists: int, **options: Any) -> Any:
    """Search parameters of inverted files for a number of lists."""
    faiss = library()
    quantizer = faiss.downcast_index(index.quantizer)
    if isinstance(quantizer, faiss.IndexHNSW):
        # A graph finds no more lists than it has candidates.
        options["quantizer_params"] = searching(quantizer, lists, 1)
    return faiss.SearchParametersIVF(nprobe=lists, **options)


def sample(index: Any, count: int) -> FloatArray:
    """Some of the vectors of inverted files, as they are kept, (n, D)."""
    faiss, lists = library(), index.invlists
    ends = np.cumsum([lists.list_size(i) for i in range(index.nlist)])
    drawn = np.random.default_rng(0).integers(ends[-1], size=count)
    x = np.empty((count, index.d), np.float32)
    for row, number in zip(x, drawn.tolist(), strict=True):
        its = int(np.searchsorted(ends, number, side="right"))
        place = number - int(ends[its - 1] if its else 0)
        index.reconstruct_from_offset(its, place, faiss.swig_ptr(row))
    return x


def selector(chosen: Rows) -> Any:
    """What restricts a search to some vectors, by what faiss calls them."""
    faiss = library()
    bits = np.zeros(int(chosen.max(initial=-1)) + 1, bool)
    bits[chosen] = True
    return faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))


def searching(index: Any, k: int, effort: float = 1.0) -> Any:
    """Search parameters for k vectors.

    Args:
        index: An index.
        k: How many are searched for.
        effort: How many times as thoroughly it searches as it is set to.

    Returns:
        The parameters; None if how thoroughly this kind searches, and whether
        it can leave out vectors, is not known.
    """
    faiss = library()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        inner = searching(index.index, k, effort)
        return inner and faiss.SearchParametersPreTransform(index_params=inner)
    if isinstance(index, faiss.IndexRefine):
        wider = math.ceil(k * index.k_factor / CANDIDATES)
        inner = searching(index.base_index, max(k, wider), effort)
        return inner and faiss.IndexRefineSearchParameters(
            base_index_params=inner, k_factor=index.k_factor
        )
    if isinstance(index, faiss.IndexIVF):
        lists = min(index.nlist, math.ceil(effort * index.nprobe))
        return probing(index, lists, max_codes=index.max_codes)
    if isinstance(index, faiss.IndexHNSW):
        candidates = math.ceil(
            max(effort * index.hnsw.efSearch, CANDIDATES * k)
        )
        return faiss.SearchParametersHNSW(efSearch=candidates)
    whole = faiss.IndexFlat, faiss.IndexScalarQuantizer
    if isinstance(index, (*whole, faiss.IndexRaBitQFastScan)):
        return faiss.SearchParameters()
    return None
