"""Engine: a faiss index whose vectors go by the ids of rows."""

from pathlib import Path
from typing import Any

import numpy as np

from keras_dml.evaluation.ranks import exact
from keras_dml.search import exhaustive, faiss_kinds
from keras_dml.search.filters import Mask
from keras_dml.search.hits import NONE
from keras_dml.search.metrics import COSINE, Metric
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.progress import waiting
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, row_norms

EXACT = "Flat"

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

_BUFFER = 2**20

_FOUND = 2**22
"""Vectors found at a time, before those that do not pass are left out."""


class Engine:
    """A faiss index and the ids of its vectors.

    Args:
        index: A trained faiss index.
        metric: What it compares by; an attribute.
        factory: The factory string that it was made by; an attribute.
        parameters: As of `Index`; an attribute.
        ids: Ids of the vectors in it, ascending, (N,); an attribute.
    """

    def __init__(
        self,
        index: Any,
        metric: Metric,
        factory: str,
        parameters: str | None,
        ids: Rows,
    ) -> None:
        self.index = index
        self.metric = metric
        self.factory = factory
        self.parameters = faiss_kinds.set_parameters(index, parameters)
        self.is_exact = factory == EXACT
        self._lists = faiss_kinds.lists_of(index)
        self._number(ids)
        # Inverted files keep ids themselves; others number their vectors.
        self._has_ids = faiss_kinds.keeps_ids(index)
        # Norm of the longest vector, or more; None if it is not known.
        self._longest: float | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def trained(
        cls,
        x: Embeddings,
        metric: Metric,
        factory: str,
        parameters: str | None,
    ) -> "Engine":
        """An engine without vectors, trained for vectors like `x`, (N, D)."""
        index = faiss_kinds.make(x.shape[1], factory, metric.faiss_type)
        if not index.is_trained:
            try:
                with waiting(f"Train {factory} on {len(x):,} vectors"):
                    index.train(x.array)
            except RuntimeError as error:
                raise ValueError(
                    "`factory` of an Index must fit the gallery. Received: "
                    f"{factory!r} for {len(x)} vectors, which faiss refuses: "
                    f"{error}. Use {EXACT!r}, or smaller numbers."
                ) from None
        return cls(index, metric, factory, parameters, np.empty(0, np.int64))

    @property
    def dim(self) -> int:
        """Dimensions of the vectors, D."""
        return int(self.index.d)

    @property
    def vectors(self) -> FloatArray:
        """The vectors of an exact index, (N, D), where faiss has them."""
        shape = self.index.ntotal, self.dim
        faiss, start = faiss_kinds.library(), self.index.get_xb()
        flat: FloatArray = faiss.rev_swig_ptr(start, shape[0] * shape[1])
        return flat.reshape(shape)

    def stored(self, ids: Rows) -> FloatArray:
        """Vectors with some ids as they are kept, (n, D) float32.

        Raises:
            ValueError: If this kind of index does not give them back.
        """
        if self.is_exact:
            return self.vectors[self._labels(ids)]
        maps = faiss_kinds.library().DirectMap
        try:
            if self._lists is not None:
                # Lists alone do not say where a vector is.
                self._lists.set_direct_map_type(maps.Hashtable)
            x: FloatArray = self.index.reconstruct_batch(self._labels(ids))
        except RuntimeError as error:
            raise ValueError(
                "`factory` of an Index must be of a kind that gives its "
                f"vectors back. Received: {self.factory!r}: {error}."
            ) from None
        finally:
            if self._lists is not None:
                self._lists.set_direct_map_type(maps.NoMap)
        return x

    def add(self, x: Embeddings, ids: Rows) -> None:
        """Adds vectors, (N, D), by ids greater than before, or raises."""
        index, self._longest = self.index, None
        try:
            if self._has_ids:
                index.add_with_ids(x.array, ids)
            elif len(self) or not self.is_exact:
                index.add(x.array)
            else:
                # Where faiss keeps them: a copy takes as long as the rest.
                index.codes.resize(4 * len(x) * self.dim)
                index.ntotal = len(x)
                x.write(self.vectors)
        except ValueError:
            if not len(self):
                index.reset()
            raise
        except RuntimeError as error:
            raise ValueError(
                "`factory` of an Index must support adding rows. Received: an "
                f"index that faiss refuses to change: {error}. Build it again, "
                "with all rows or with another factory."
            ) from None
        self._number(np.concatenate([self.ids, ids]))

    def _number(self, ids: Rows) -> None:
        """Sets the ids of the vectors, which have changed."""
        self.ids = ids
        # Whether rows were removed from lists.
        removed = bool(len(ids)) and ids[-1] >= len(ids)
        self._has_holes = bool(removed) and self._lists is not None
        # By k, the score that FARTHER is of.
        self._usual: dict[int, float] = {}

    def reserve(self, count: int) -> None:
        """Reserves memory for a total number of vectors, if faiss allows it."""
        if self.is_exact and not len(self):
            # It keeps the memory, and need not move vectors as they grow.
            self.index.codes.resize(4 * count * self.dim)
            self.index.codes.resize(0)

    def removes(self) -> bool:
        """Whether vectors can be removed; ValueError if not even hidden."""
        if faiss_kinds.removes(self.index):
            return True
        if faiss_kinds.searching(self.index, 1) is None:
            raise ValueError(
                "`factory` of an Index must be one of Flat, SQ, IVF or HNSW to "
                f"remove rows. Received: factory={self.factory!r}. Build the "
                "index again with one of them, or without those rows."
            )
        return False

    def remove(self, ids: Rows) -> None:
        """Removes vectors, or checks that they can be hidden."""
        if self.removes():
            faiss = faiss_kinds.library()
            self.index.remove_ids(faiss.IDSelectorBatch(self._labels(ids)))
            self._number(self.ids[~np.isin(self.ids, ids)])

    def write(self, path: Path) -> None:
        """Writes the faiss index into a file."""
        faiss = faiss_kinds.library()
        # By faiss alone, a full disk can go unnoticed, and lists of an IVF
        # index take three times as long.
        with path.open("wb", _BUFFER) as file:
            writer = faiss.PyCallbackIOWriter(file.write, _BUFFER)
            faiss.write_index(self.index, writer)

    def search(
        self,
        queries: FloatArray,
        k: int,
        among: Rows | None = None,
        total: int = 0,
    ) -> tuple[FloatArray, Rows]:
        """The k nearest vectors of each query.

        Equal scores come in the order of the ids. Scores of exact indexes
        are compared in float64, so results do not depend on how many queries
        there are; and of equal ones the first are among the k nearest.

        Args:
            queries: Vectors, (Q, D) float32.
            k: How many; where there are fewer, scores are -inf and ids -1.
            among: Ids to search among, ascending; by default all.
            total: Of how many ids `among` was taken.

        Returns:
            Scores, (Q, k) float32, and ids, (Q, k).
        """
        limit = len(self) if among is None else len(among)
        if not (limit and len(queries)):
            shape = (len(queries), k)
            return np.full(shape, -np.inf, np.float32), np.full(shape, NONE)
        labels = None if among is None else self._labels(among)
        if self.is_exact:
            scores, ids = self._search_exactly(queries, k, limit, labels)
        else:
            found = self._candidates(queries, min(k, limit), labels, total)
            scores, ids = self._ranked(*found)
        if limit < k:
            wider = ((0, 0), (0, k - limit))
            scores = np.pad(scores, wider, constant_values=-np.inf)
            ids = np.pad(ids, wider, constant_values=NONE)
        return self.metric.outer(scores), ids

    def above(
        self, queries: FloatArray, threshold: float, among: Rows | None = None
    ) -> tuple[Rows, FloatArray, Rows]:
        """All vectors whose scores reach a threshold, whatever the kind.

        Args:
            queries: Vectors, (Q, D) float32.
            threshold: A score.
            among: Ids to search among, ascending; by default all.

        Returns:
            Queries, scores and ids, (n,) each, by query and then as of
            `search`.
        """
        if not len(queries):
            none = np.empty(0, np.int64)
            return none, none.astype(np.float32), none
        metric = self.metric
        bound = metric.bound(threshold)
        # What is a little below it may reach it when rounded to float32.
        bound -= 2.0**-22 * abs(bound) + float(np.finfo(np.float32).tiny)
        if self.is_exact:
            bound -= metric.tolerance(queries, self._longest_norm).max()
        chosen = None if among is None else self._labels(among)
        self._share_threads(len(queries))
        which, found, labels = exhaustive.above(
            self.index, queries, metric.inner(bound), chosen
        )
        scores = metric.inner(found)
        if self.is_exact:
            vectors, scores = self.vectors, np.empty(len(which))
            for block in blocks(len(which), 2**16):
                scores[block] = metric.exact(
                    queries[which[block]], vectors, labels[block, None]
                )[:, 0]
        ids = labels if self._has_ids else self.ids[labels]
        outer = metric.outer(scores)
        kept = outer.astype(np.float64) >= threshold
        order = np.lexsort((ids[kept], -scores[kept], which[kept]))
        return which[kept][order], outer[kept][order], ids[kept][order]

    def _labels(self, ids: Rows) -> Rows:
        """What faiss calls the vectors with these ids."""
        is_same = len(self) and self.ids[-1] == len(self) - 1
        if self._has_ids or is_same:
            return ids
        return np.searchsorted(self.ids, ids)

    @property
    def _longest_norm(self) -> float:
        if self.metric.name == COSINE:
            return 1.0
        if self._longest is None:
            self._longest = float(row_norms(self.vectors).max(initial=0))
        return self._longest

    def _candidates(
        self, queries: FloatArray, k: int, chosen: Rows | None, total: int
    ) -> tuple[FloatArray, Rows]:
        """What an index that is not exact finds, as faiss returns it.

        Whatever the filter, the kind searches among all vectors, and what does
        not pass is left out. That k of those found pass is only to be expected
        where a filter does not depend on the query; where they do not, what is
        next to it was filtered out. The kind then searches wider, until it
        finds the same hits twice, and at last everything is compared.
        """
        self._share_threads(len(queries))
        width, effort = k, self._effort(k)
        if chosen is not None:
            can_search = faiss_kinds.searching(self.index, k) is not None
            if not can_search or _are_few(len(chosen), total):
                return exhaustive.nearest(self.index, queries, k, chosen)
            share = len(chosen) / len(self)
            # Where vectors are only hidden, there is no filter.
            if len(chosen) < total and not self._has_holes:
                effort *= EFFORT
            effort /= share
            # Five standard deviations above the mean, a binomial one's.
            deviation = (k * (1 - share)) ** 0.5 / share
            width = min(len(self), round(k / share + 5 * deviation))
        passes = None if chosen is None else self._mask(chosen)
        found, near = self._first(queries, k, passes, width, effort)
        if not self._has_holes and near[:, -1].min() != NONE:
            return found, near
        is_right = near[:, -1] != NONE
        if self._has_holes:
            # Among all vectors, the last hit comes later.
            rank = k if chosen is None else round(k * len(self) / len(chosen))
            is_right &= self._are_near(queries, found, min(rank, len(self)))
        left = np.flatnonzero(~is_right)
        while len(self) > FEW and len(left):
            width, effort = WIDER * width, 2 * effort
            if width > WIDEST * len(self):
                break
            again = self._first(queries[left], k, passes, width, effort)
            is_right = again[1][:, -1] != NONE
            is_right &= _share_of_equal(again[1], near[left]) >= AGREEING
            found[left], near[left] = again
            left = left[~is_right]
        if len(left):
            among = self._labels(self.ids) if chosen is None else chosen
            found[left], near[left] = exhaustive.nearest(
                self.index, queries[left], k, among
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
            parameters = faiss_kinds.searching(self.index, width, effort)
        # A NumPy integer would be refused.
        found, near = self.index.search(queries, int(width), params=parameters)
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
        """How many times as thoroughly k neighbors are searched for.

        Next to removed rows, hits are farther and in more lists.
        """
        effort = (k / MEASURED) ** 0.5 if k > MEASURED else 1
        return effort * EFFORT if self._has_holes else effort

    def _are_near(self, queries: FloatArray, found: FloatArray, k: int) -> Mask:
        """Whether the last hits are about as near as rows' kth, (Q,)."""
        if k not in self._usual:
            rows = faiss_kinds.sample(self._lists, SAMPLE)
            # They find themselves, too.
            parameters = faiss_kinds.searching(self._lists, k, self._effort(k))
            scores, _ = self._lists.search(rows, k + 1, params=parameters)
            usual = self._last(rows, scores)
            self._usual[k] = float(np.quantile(usual, FARTHER))
        is_near: Mask = self._last(queries, found) >= self._usual[k]
        return is_near

    def _last(self, queries: FloatArray, found: FloatArray) -> FloatArray:
        """The last score of each query, (Q,), whatever the query's norm."""
        last = self.metric.inner(found[:, -1])
        if self.metric.is_distance:
            return last
        return last / np.maximum(row_norms(queries), np.float32(1e-30))

    def _mask(self, chosen: Rows) -> Mask:
        """Which labels are chosen; at −1, the last, that none is."""
        top = int(self.ids[-1]) if self._has_ids else len(self) - 1
        passes = np.zeros(top + 2, bool)
        passes[chosen] = True
        return passes

    def _share_threads(self, queries: int) -> None:
        if self._lists is not None:
            # faiss gives each query one thread, and leaves others idle. Mode 1
            # divides the lists of a query, mode 0 the queries.
            threads = faiss_kinds.library().omp_get_max_threads()
            self._lists.parallel_mode = int(queries < threads)

    def _ranked(
        self, found: FloatArray, labels: Rows
    ) -> tuple[FloatArray, Rows]:
        """Scores and ids of what faiss found, in their order."""
        scores = self.metric.inner(found)
        ids = labels if self._has_ids else self.ids[labels]
        if labels.min() < 0:
            is_none = labels < 0
            scores = np.where(is_none, np.float32(-np.inf), scores)
            ids = np.where(is_none, NONE, ids)
        return exact.ranked(scores, ids)

    def _search_exactly(
        self, queries: FloatArray, k: int, limit: int, chosen: Rows | None
    ) -> tuple[FloatArray, Rows]:
        vectors, metric = self.vectors, self.metric

        def candidates(rows: Rows, count: int) -> tuple[FloatArray, Rows]:
            some = queries[rows]
            if chosen is None:
                found, labels = self.index.search(some, int(count))
            else:
                found, labels = exhaustive.nearest(
                    self.index, some, count, chosen
                )
            return metric.inner(found), labels

        scores, labels = exact.nearest(
            candidates,
            lambda rows, labels: metric.exact(queries[rows], vectors, labels),
            metric.tolerance(queries, self._longest_norm),
            k,
            limit,
        )
        return scores, self.ids[labels]


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
