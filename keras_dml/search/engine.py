"""Engine: a faiss index whose vectors go by the ids of rows."""

from pathlib import Path
from typing import Any

import numpy as np

from keras_dml.evaluation.ranks import exact
from keras_dml.search import faiss_kinds
from keras_dml.search.hits import NONE
from keras_dml.utils.arrays import UnitEmbeddings
from keras_dml.utils.types import FloatArray, Rows

EXACT = "Flat"

_BUFFER = 2**20


class Engine:
    """A faiss index of unit vectors, by inner product.

    Args:
        index: A trained faiss index.
        factory: The factory string that it was made by; an attribute.
        parameters: As of `Index`; an attribute.
        ids: Ids of the vectors in it, ascending, (N,); an attribute.
    """

    def __init__(
        self, index: Any, factory: str, parameters: str | None, ids: Rows
    ) -> None:
        self.index = index
        self.factory = factory
        self.parameters = faiss_kinds.set_parameters(index, parameters)
        self.is_exact = factory == EXACT
        self.ids = ids
        self._lists = faiss_kinds.lists_of(index)
        # Inverted files keep ids themselves; others number their vectors.
        self._has_ids = faiss_kinds.keeps_ids(index)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def trained(
        cls, x: UnitEmbeddings, factory: str, parameters: str | None
    ) -> "Engine":
        """An engine without vectors, trained for vectors like `x`, (N, D)."""
        index = faiss_kinds.make(x.shape[1], factory)
        if not index.is_trained:
            try:
                index.train(x.array)
            except RuntimeError as error:
                raise ValueError(
                    f"`factory` of an Index must fit the gallery. Received: "
                    f"{factory!r} for {len(x)} vectors, of which faiss says: "
                    f"{error}. Use {EXACT!r}, or smaller numbers."
                ) from None
        return cls(index, factory, parameters, np.empty(0, np.int64))

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

    def add(self, x: UnitEmbeddings, ids: Rows) -> None:
        """Adds vectors, (N, D), by ids greater than before, or raises."""
        index = self.index
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
                "`factory` of an Index must allow to add rows. Received: an "
                f"index of which faiss says: {error}. Build it again, with "
                "all rows or another factory."
            ) from None
        self.ids = np.concatenate([self.ids, ids])

    def remove(self, ids: Rows) -> None:
        """Removes vectors; where faiss cannot, checks that it can hide them."""
        selector = faiss_kinds.library().IDSelectorBatch(self._labels(ids))
        try:
            self.index.remove_ids(selector)
        except RuntimeError as error:
            if "not implemented" not in str(error):
                raise
            faiss_kinds.selecting(self.index, ids)
        else:
            self.ids = self.ids[~np.isin(self.ids, ids)]

    def write(self, path: Path) -> None:
        """Writes the faiss index into a file."""
        faiss = faiss_kinds.library()
        # By faiss alone, a full disk can go unnoticed, and lists of an IVF
        # index take three times as long.
        with path.open("wb", _BUFFER) as file:
            writer = faiss.PyCallbackIOWriter(file.write, _BUFFER)
            faiss.write_index(self.index, writer)

    def search(
        self, queries: FloatArray, k: int, among: Rows | None = None
    ) -> tuple[FloatArray, Rows]:
        """The k nearest vectors of each query.

        Equal scores come in the order of the ids. Scores of exact indexes
        are compared in float64, so results do not depend on how many queries
        there are; and of equal ones the first are among the k nearest.

        Args:
            queries: Unit vectors, (Q, D) float32.
            k: How many; where there are fewer, scores are -inf and ids -1.
            among: Ids to search among; by default all.

        Returns:
            Scores, (Q, k) float32, and ids, (Q, k).
        """
        limit = len(self) if among is None else len(among)
        if not (limit and len(queries)):
            shape = (len(queries), k)
            return np.full(shape, -np.inf, np.float32), np.full(shape, NONE)
        parameters = None
        if among is not None:
            parameters = faiss_kinds.selecting(self.index, self._labels(among))
        search = self._search_exactly if self.is_exact else self._search
        scores, ids = search(queries, k, limit, parameters)
        if limit < k:
            wider = ((0, 0), (0, k - limit))
            scores = np.pad(scores, wider, constant_values=-np.inf)
            ids = np.pad(ids, wider, constant_values=NONE)
        return scores, ids

    def _labels(self, ids: Rows) -> Rows:
        """What faiss calls the vectors with these ids."""
        return ids if self._has_ids else np.searchsorted(self.ids, ids)

    def _search(
        self, queries: FloatArray, k: int, limit: int, parameters: Any
    ) -> tuple[FloatArray, Rows]:
        """The nearest vectors that this kind of index finds."""
        if self._lists is not None:
            # faiss gives each query one thread, and leaves others idle. Mode 1
            # divides the lists of a query, mode 0 the queries.
            threads = faiss_kinds.library().omp_get_max_threads()
            self._lists.parallel_mode = int(len(queries) < threads)
        # A NumPy integer would be refused.
        scores, labels = self.index.search(
            queries, min(k, int(limit)), params=parameters
        )
        ids = labels if self._has_ids else self.ids[labels]
        if labels.min() < 0:
            is_none = labels < 0
            scores = np.where(is_none, np.float32(-np.inf), scores)
            ids = np.where(is_none, NONE, ids)
        return exact.ranked(scores, ids)

    def _search_exactly(
        self, queries: FloatArray, k: int, limit: int, parameters: Any
    ) -> tuple[FloatArray, Rows]:
        vectors = self.vectors
        # Factors have norm 1; twice the bound, as they are rounded, too.
        error = exact.product_error(2 * self.dim)
        scores, labels = exact.nearest(
            lambda rows, count: self.index.search(
                queries[rows], int(count), params=parameters
            ),
            lambda rows, labels: exact.paired_products(
                queries[rows], vectors, labels
            ),
            np.full(len(queries), error),
            k,
            limit,
        )
        return scores.astype(np.float32), self.ids[labels]
