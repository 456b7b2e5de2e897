"""Embeddings as a distance sees them, row by row in float64."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_dml.utils.lazy_rows import EmbeddingRows, LazyRows, Selection
from keras_dml.utils.types import FloatArray

CHUNK = 4096
"""Rows that are read from files, or summed, at a time."""

CACHED = 2**16
"""Number of float64 values that are processed at a time in the cache."""


class Vectors:
    """Embeddings, (N, D), each row times its factor, (N,), or one for all."""

    def __init__(self, x: EmbeddingRows, factors: FloatArray | float) -> None:
        self._x = x
        self._factors = np.broadcast_to(factors, len(x))
        # Rows without a direction, (N,); known for unit vectors only.
        self.is_zero = np.zeros(len(x), bool)

    @classmethod
    def unit(cls, x: EmbeddingRows, norms: FloatArray) -> "Vectors":
        """Rows divided by their norms; zero rows stay zero."""
        vectors = cls(x, 1.0 / np.where(norms > 0, norms, 1.0))
        vectors.is_zero = norms == 0
        return vectors

    def __len__(self) -> int:
        return len(self._x)

    def rows(self, which: Selection) -> FloatArray:
        rows: FloatArray = np.multiply(
            self._x[which], self._factors[which, None], dtype=np.float64
        )
        return rows

    def blocks(self, among: slice | None = None) -> list[slice]:
        return row_blocks(self._x, among)

    def mean(self) -> FloatArray:
        total = np.zeros(self._x.shape[1])
        for chunk in blocks(len(self), CHUNK):
            total += self.rows(chunk).sum(axis=0)
        return total / len(self)


def unit_rows(x: FloatArray) -> FloatArray:
    """Rows divided by their norms, float32; zero rows stay zero."""
    vectors = Vectors.unit(x, row_norms(x))
    result = np.empty(x.shape, np.float32)
    for chunk in row_blocks(x):
        result[chunk] = vectors.rows(chunk)
    return result


def row_norms(x: EmbeddingRows) -> FloatArray:
    """Euclidean norm of every row, (N,) float64."""
    norms = np.empty(len(x), np.float64)
    for rows in row_blocks(x):
        wide = x[rows].astype(np.float64)
        # Squares of very large or very small numbers leave the range.
        largest = np.abs(wide).max(axis=1)
        largest[largest == 0] = 1.0
        norms[rows] = np.sqrt(squares(wide / largest[:, None])) * largest
    return norms


def squares(x: FloatArray) -> FloatArray:
    """Squared norm of every row, summed in an order set by D alone."""
    # Unlike that of einsum or of a matrix product.
    result: FloatArray = np.add.reduce(x * x, axis=1)
    return result


def blocks(count: int, size: int) -> list[slice]:
    """Slices of at most `size` that cover `range(count)` in order."""
    return [
        slice(start, min(start + size, count))
        for start in range(0, count, size)
    ]


def row_blocks(x: EmbeddingRows, among: slice | None = None) -> list[slice]:
    """Blocks of (N, D) to be made float64, counted from the first row.

    They are of the consecutive rows `among`, or all.
    """
    count = len(x) if among is None else among.stop - among.start
    # Fewer would be read from files more slowly.
    fits = CHUNK if isinstance(x, LazyRows) else CACHED // x.shape[1]
    return blocks(count, min(max(fits, 1), CHUNK))


def in_threads(work: Callable[[slice], None], slices: list[slice]) -> None:
    """Calls `work` for every slice, in threads if there are several."""
    if len(slices) == 1:
        work(slices[0])
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(work, slices):
            pass


def within(outer: slice, inner: slice) -> slice:
    """The part `inner` of `outer`, counted from the start of `outer`."""
    return slice(outer.start + inner.start, outer.start + inner.stop)
