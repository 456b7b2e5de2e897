"""Rescored: an engine of compressed vectors, and the whole ones in a file.

Searches find candidates by their codes, in memory, and read their vectors from
the file: by these the nearest are known, with the scores of an exact index.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from keras_dml.evaluation.ranks import exact
from keras_dml.search.engine import Engine, Form, candidates, make
from keras_dml.search.hits import NONE
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

_FEW = 10
"""For fewer neighbors, as many candidates are found as for these."""

_CACHED = 2**20
"""Numbers of vectors that are compared at a time, 8 MiB in float64."""

_NUMBERS = 2**24
"""Numbers of vectors that are read at a time, 64 MiB."""


class Floats:
    """Vectors in a file, mapped into memory.

    Args:
        dim: D.
        path: The file of an index, which is copied before a change; by
            default, a temporary file without vectors.
        count: Number of vectors in that file.

    Attributes:
        vectors: They, (N, D) float32, as read from the file where needed.
    """

    def __init__(
        self, dim: int, path: Path | None = None, count: int = 0
    ) -> None:
        self._dim, self._is_own = dim, path is None
        self._file: Any = path.open("rb") if path else tempfile.TemporaryFile()
        self.cut(count)

    def __del__(self) -> None:
        self._file.close()  # What is mapped stays.

    def __reduce__(self) -> Any:
        return _copied, (np.array(self.vectors),)

    def append(self, x: FloatArray) -> None:
        """Adds vectors, (n, D)."""
        self._make_own()
        self._put(len(self.vectors), x)
        self.cut(len(self.vectors) + len(x))

    def keep(self, places: Rows) -> None:
        """Removes all but some, whose places ascend."""
        self._make_own()
        for part in blocks(len(places), max(1, _NUMBERS // self._dim)):
            # What is still to be read comes later.
            self._put(part.start, self.vectors[places[part]])
        self.cut(len(places))

    def cut(self, count: int) -> None:
        """Removes all but the first."""
        self.vectors: FloatArray = np.empty((0, self._dim), np.float32)
        if count:  # Nothing cannot be mapped.
            shape = count, self._dim
            mapped = np.memmap(self._file, "<f4", "r", shape=shape)
            self.vectors = np.asarray(mapped)
        if self._is_own:
            self._file.truncate(4 * count * self._dim)

    def write(self, path: Path) -> None:
        """Writes them into another file."""
        self.vectors.tofile(path)

    def _make_own(self) -> None:
        if not self._is_own:
            with self._file as others:
                self._file, self._is_own = tempfile.TemporaryFile(), True
                others.seek(0)
                shutil.copyfileobj(others, self._file, _NUMBERS)

    def _put(self, place: int, x: FloatArray) -> None:
        self._file.seek(4 * place * self._dim)
        self._file.write(np.ascontiguousarray(x, "<f4").data)
        self._file.flush()


def _copied(x: FloatArray) -> Floats:
    floats = Floats(x.shape[1])
    floats.append(x)
    return floats


class Rescored(Engine):
    """A faiss index of codes, and whole vectors in a file.

    Args:
        index, form, ids: As of `Engine`.
        floats: The whole vectors, also of those that are hidden; an attribute.
    """

    def __init__(
        self, index: Any, form: Form, ids: Rows, floats: Floats | None = None
    ) -> None:
        super().__init__(index, form, ids)
        self.floats = Floats(self.dim) if floats is None else floats
        self._candidates = candidates(form, self.parameters)

    @property
    def vectors(self) -> FloatArray:
        """The whole vectors, (N, D), in the order of `ids`."""
        return self.floats.vectors

    def stored(self, ids: Rows) -> FloatArray:
        """Whole vectors with some ids, (n, D) float32."""
        return self.vectors[np.searchsorted(self.ids, ids)]

    def add(self, x: Embeddings, ids: Rows) -> None:
        """Adds vectors, (N, D), by ids greater than before, or raises."""
        self.floats.append(x.array)
        try:
            super().add(x, ids)
        finally:
            self.floats.cut(len(self))

    def remove(self, ids: Rows) -> None:
        """Removes vectors, or checks that they can be hidden."""
        if self.removes():
            self.floats.keep(np.flatnonzero(~np.isin(self.ids, ids)))
        super().remove(ids)

    def search(
        self,
        queries: FloatArray,
        k: int,
        among: Rows | None = None,
        total: int = 0,
    ) -> tuple[FloatArray, Rows]:
        """As of `Engine`; those found by codes are ranked by whole vectors."""
        limit = len(self) if among is None else len(among)
        wide = max(k, min(limit, self._candidates * max(k, _FEW)))
        rough, near = super().search(queries, wide, among, total)
        if not (limit and len(queries)):
            return rough, near
        places = np.searchsorted(self.ids, np.maximum(near, self.ids[0]))
        inner = self._scores(queries, places)
        inner[near == NONE] = -np.inf
        scores, ids = exact.ranked(inner, near)
        return self.metric.outer(scores[:, :k]), ids[:, :k]

    def _scores(self, queries: FloatArray, places: Rows) -> FloatArray:
        """Inner scores with whole vectors, by their places, (Q, k) float64."""
        inner = np.empty(places.shape)
        most = max(1, _CACHED // self.dim)
        for rows in blocks(len(places), max(1, most // places.shape[1])):
            for some in blocks(places.shape[1], most):
                inner[rows, some] = self.metric.exact(
                    queries[rows], self.vectors, places[rows, some]
                )
        return inner

    def above(
        self, queries: FloatArray, threshold: float, among: Rows | None = None
    ) -> tuple[Rows, FloatArray, Rows]:
        """As of `Engine`: all whole vectors are read and compared."""
        ids, form = self.ids if among is None else among, Form(self.metric)
        parts = [super().above(queries[:0], threshold)]
        for some in blocks(len(ids), max(1, _NUMBERS // self.dim)):
            index = make(self.dim, form)
            index.add(self.stored(ids[some]))
            whole = Engine(index, form, ids[some])
            parts.append(whole.above(queries, threshold))
        which, scores, found = map(np.concatenate, zip(*parts, strict=True))
        order = np.lexsort((found, -scores, which))
        return which[order], scores[order], found[order]
