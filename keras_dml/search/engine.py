"""Engine: a faiss index whose vectors go by the ids of rows."""

from pathlib import Path
from typing import Any

import numpy as np

from keras_dml.search import faiss_types
from keras_dml.search.hits import NONE
from keras_dml.search.memory import Memory, flat_room, index_in, own_index
from keras_dml.search.store import Source
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.unit_embeddings import UnitEmbeddings

EXACT = "Flat"

SPARE = 8
"""Candidates fetched beyond k, to see that none was missed."""

_BYTES = 2**25

_BUFFER = 2**20


class Engine:
    """A faiss index of unit vectors, by inner product.

    Args:
        index: A trained faiss index.
        factory: The faiss factory string that it was made by.
        ids: Ids of the vectors in it, ascending.
        memory: Where it lies, if that is not memory of faiss's own.

    Attributes:
        ids: Ids of the vectors, ascending, (N,).
        is_exact: Whether searches are exact.
    """

    def __init__(
        self,
        index: Any,
        factory: str,
        ids: Rows,
        memory: Memory | None = None,
    ) -> None:
        self.index = index
        self.is_exact = factory == EXACT
        self.ids = ids
        self._memory = memory
        self._has_lists = faiss_types.has_lists(index)
        # Inverted files keep ids themselves; others number their vectors.
        self._has_ids = faiss_types.keeps_ids(index)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def trained(cls, x: UnitEmbeddings, factory: str) -> "Engine":
        """An engine without vectors, trained for vectors like `x`, (N, D).

        Raises:
            ValueError: If faiss does not know the factory, or cannot train
                it with so few vectors.
        """
        index = faiss_types.make(x.shape[1], factory)
        if not index.is_trained:
            try:
                index.train(x.array)
            except RuntimeError as error:
                raise ValueError(
                    f"`factory` of an Index must fit the gallery. Received: "
                    f"factory={factory!r} for {len(x)} vectors, of which "
                    f"faiss says: {error}. Use factory={EXACT!r}, or smaller "
                    "numbers."
                ) from None
        return cls(index, factory, np.empty(0, np.int64))

    @classmethod
    def read(cls, memory: Memory, factory: str, ids: Rows) -> "Engine":
        """An engine from what its `source` is.

        Raises:
            ValueError: If this version of faiss cannot read it.
        """
        import faiss

        try:
            index = index_in(memory)
        except RuntimeError as error:
            raise ValueError(
                f"The faiss index of an Index cannot be read by faiss "
                f"{faiss.__version__}: {error}. Use the version that wrote "
                "it, which index.json names, or build the index again."
            ) from None
        return cls(index, factory, ids, memory)

    @property
    def dim(self) -> int:
        """Dimensions of the vectors, D."""
        return int(self.index.d)

    @property
    def vectors(self) -> FloatArray:
        """The vectors of an exact index, (N, D), where faiss has them."""
        import faiss

        count, dim = len(self), self.dim
        flat: FloatArray = faiss.rev_swig_ptr(self.index.get_xb(), count * dim)
        return flat.reshape(count, dim)

    def add(self, x: UnitEmbeddings, ids: Rows) -> None:
        """Adds vectors, (N, D), by ids greater than those before.

        Raises:
            ValueError: If a vector is not finite or zero, or if this kind
                of index cannot be added to. Then none was added.
        """
        if self.is_exact and not len(self):
            self._take(x)
        else:
            self._append(x.array, ids)
        self.ids = np.concatenate([self.ids, ids])

    def _take(self, x: UnitEmbeddings) -> None:
        memory, vectors = flat_room(*x.shape)
        x.write(vectors)
        self.index, self._memory = index_in(memory), memory

    def _append(self, x: FloatArray, ids: Rows) -> None:
        self._own()
        try:
            if self._has_ids:
                self.index.add_with_ids(x, ids)
            else:
                self.index.add(x)
        except RuntimeError as error:
            raise ValueError(
                "`factory` of an Index must allow to add rows. Received: an "
                f"index of which faiss says: {error}. Build it again, with "
                "all rows or another factory."
            ) from None

    def remove(self, ids: Rows) -> bool:
        """Removes vectors; False where this kind of index cannot."""
        import faiss

        self._own()
        chosen = ids if self._has_ids else np.searchsorted(self.ids, ids)
        try:
            self.index.remove_ids(faiss.IDSelectorBatch(chosen))
        except RuntimeError as error:
            if "not implemented" in str(error):
                return False
            raise
        self.ids = self.ids[~np.isin(self.ids, ids)]
        return True

    def search(
        self, queries: FloatArray, k: int, among: Rows | None = None
    ) -> tuple[FloatArray, Rows]:
        """The k nearest vectors of each query.

        Equal scores come in the order of the ids. Exact indexes compare
        scores that were computed in float64, so results do not depend on
        how many queries are searched for together; and where only some of
        the equal ones are among the k nearest, those are the first.

        Args:
            queries: Unit vectors, (Q, D) float32.
            k: How many.
            among: Ids to search among; by default all.

        Returns:
            Scores, (Q, k) float32, and ids, (Q, k); -inf and -1 where
            there are fewer.
        """
        limit = len(self) if among is None else len(among)
        if not (limit and len(queries)):
            shape = (len(queries), k)
            return np.full(shape, -np.inf, np.float32), np.full(shape, NONE)
        parameters = None if among is None else self._selecting(among)
        search = self._search_exactly if self.is_exact else self._search
        scores, ids = search(queries, k, limit, parameters)
        if limit < k:
            wider = ((0, 0), (0, k - limit))
            scores = np.pad(scores, wider, constant_values=-np.inf)
            ids = np.pad(ids, wider, constant_values=NONE)
        return scores, ids

    @property
    def source(self) -> Source:
        """What a file of it holds."""
        if self._memory is not None:
            return self._memory
        return self._write

    def _write(self, path: Path) -> None:
        faiss = faiss_types.library()
        # By faiss alone, a full disk can go unnoticed, and lists of an IVF
        # index take three times as long.
        with path.open("wb", _BUFFER) as file:
            writer = faiss.PyCallbackIOWriter(file.write, 4 * _BUFFER)
            faiss.write_index(self.index, writer)

    def _own(self) -> None:
        """Moves the index to where faiss can change it."""
        if self._memory is not None:
            self.index, self._memory = own_index(self._memory), None

    def _selecting(self, ids: Rows) -> Any:
        chosen = ids if self._has_ids else np.searchsorted(self.ids, ids)
        return faiss_types.selecting(self.index, chosen)

    def _search(
        self, queries: FloatArray, k: int, limit: int, parameters: Any
    ) -> tuple[FloatArray, Rows]:
        """The nearest vectors that this kind of index finds."""
        if self._has_lists:
            faiss_types.share_threads(self.index, len(queries))
        # A NumPy integer would be refused.
        scores, labels = self.index.search(
            queries, min(k, int(limit)), params=parameters
        )
        ids = labels if self._has_ids else self.ids[labels]
        if labels.min() < 0:
            is_none = labels < 0
            scores = np.where(is_none, np.float32(-np.inf), scores)
            ids = np.where(is_none, NONE, ids)
        return ranked(scores, ids)

    def _search_exactly(
        self, queries: FloatArray, k: int, limit: int, parameters: Any
    ) -> tuple[FloatArray, Rows]:
        fetch = min(k + SPARE, limit)
        scores, ids, bound = self._rank(queries, fetch, parameters)
        scores, ids = scores[:, :k].astype(np.float32), ids[:, :k]
        # What was not fetched scores `bound` at most.
        open_rows = np.flatnonzero(bound >= scores[:, -1])
        while fetch < limit and len(open_rows):
            fetch = min(4 * fetch, limit)
            found, found_ids, bound = self._rank(
                queries[open_rows], fetch, parameters
            )
            scores[open_rows], ids[open_rows] = found[:, :k], found_ids[:, :k]
            open_rows = open_rows[bound >= scores[open_rows, -1]]
        return scores, ids

    def _rank(
        self, queries: FloatArray, fetch: int, parameters: Any
    ) -> tuple[FloatArray, Rows, FloatArray]:
        """Candidates in order, and what the others score at most.

        Returns:
            Scores, (Q, fetch) float64, ids, (Q, fetch), and a bound, (Q,).
        """
        scores, labels = self.index.search(
            queries, int(fetch), params=parameters
        )
        bound = scores[:, -1].astype(np.float64) + self._rounding
        scores = self._exact_scores(queries, labels)
        return *ranked(scores, self.ids[labels]), bound

    @property
    def _rounding(self) -> float:
        """Bound on the error of a float32 product of unit vectors."""
        # Higham, "Accuracy and Stability of Numerical Algorithms", 3.1: D u,
        # to first order, with u = 2^-24, of factors of norm 1. Twice that.
        return float(self.dim * 2.0**-23)

    def _exact_scores(self, queries: FloatArray, labels: Rows) -> FloatArray:
        scores = np.empty(labels.shape)
        vectors = self.vectors
        height = max(1, _BYTES // (8 * labels.shape[1] * self.dim))
        for start in range(0, len(queries), height):
            rows = slice(start, start + height)
            # The order of the sum depends on nothing but D.
            scores[rows] = np.multiply(
                vectors[labels[rows]], queries[rows, None], dtype=np.float64
            ).sum(axis=-1)
        return scores


def ranked(scores: FloatArray, ids: Rows) -> tuple[FloatArray, Rows]:
    """Results, (Q, k), by their scores, and by their ids where equal."""
    if (scores[:, :-1] > scores[:, 1:]).all():
        return scores, ids
    order = np.lexsort((ids, -scores), axis=-1)
    return (
        np.take_along_axis(scores, order, axis=-1),
        np.take_along_axis(ids, order, axis=-1),
    )
