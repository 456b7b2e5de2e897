"""Arrays from the user, checked; embeddings row by row in float64."""

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np

from keras_dml.utils.lazy_rows import (
    ArrayRows,
    EmbeddingRows,
    LazyRows,
    Selection,
    map_rows,
)
from keras_dml.utils.types import FloatArray, Rows

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


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def as_embeddings(x: Any, name: str, owner: str) -> FloatArray:
    """Embeddings, (N, D), as float32 (float64 stays), C-contiguous.

    A ValueError calls `x` `name` of `owner`: it must be a non-empty matrix of
    finite real numbers.
    """
    x = np.asarray(x)
    _check_kind(x, name, owner)
    if x.dtype != np.float64:
        x = x.astype(np.float32, copy=False)
    x = np.ascontiguousarray(x)
    _check_finite(x, name, owner)
    return x


def as_rows(x: Any, name: str, owner: str) -> EmbeddingRows:
    """Like `as_embeddings`, but reads a `np.memmap` or `LazyRows` in blocks."""
    if not isinstance(x, np.memmap | LazyRows):
        return as_embeddings(x, name, owner)
    _check_kind(x, name, owner)
    if not isinstance(x, LazyRows):
        is_double = x.dtype == np.float64
        x = ArrayRows(x, np.float64 if is_double else np.float32)
    _check_finite(x, name, owner)
    return x


def _check_kind(x: Any, name: str, owner: str) -> None:
    if len(x.shape) != 2 or not x.shape[0] * x.shape[1]:
        raise ValueError(
            f"`{name}` of {owner} must be a non-empty (N, D) array of "
            f"embeddings. Received: {name}.shape={x.shape}."
        )
    # bfloat16 is no NumPy kind; whatever casts to float32 by value is
    # a real number, and complex numbers, objects and texts are not.
    if x.dtype.kind in "cOSUMm" or x.dtype == bool:
        raise ValueError(
            f"`{name}` of {owner} must be real numbers. Received: "
            f"{name}.dtype={x.dtype}."
        )


def _check_finite(x: EmbeddingRows, name: str, owner: str) -> None:
    count, first = 0, -1
    for rows in blocks(len(x), max(1, 2**22 // x.shape[1])):
        bad = np.flatnonzero(~np.isfinite(x[rows]).all(axis=1))
        if len(bad) and not count:
            first = rows.start + int(bad[0])
        count += len(bad)
    if count:
        raise ValueError(
            f"`{name}` of {owner} must be finite. Received: {count} of "
            f"{len(x)} rows with NaN or infinity, the first of which is row "
            f"{first}. This usually means that training diverged. Use a lower "
            "learning rate, or clip gradients."
        )


def as_ids(ids: Any, count: int, name: str, owner: str) -> Rows:
    """Class or group ids as int64; a ValueError unless `count` integers."""
    ids = np.asarray(ids)
    if ids.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` of {owner} must be integers, or strings for classes. "
            f"Received: {name}.dtype={ids.dtype}. Use "
            f"`np.unique({name}, return_inverse=True)[1]` to number other "
            "kinds of ids."
        )
    if ids.shape != (count,):
        raise ValueError(
            f"`{name}` of {owner} must have one id per embedding. Received: "
            f"{name}.shape={ids.shape} for {count} embeddings."
        )
    return ids.astype(np.int64, copy=False)


def as_bytes(memory: int | str, owner: str) -> int:
    """Number of bytes of `512 * 2**20`, "512MB" or "2 GB"; 1 MB or more."""
    match = re.fullmatch(
        r"\s*(\d+(?:\.\d+)?)\s*([KMG]?)B?\s*", str(memory).upper()
    )
    if not match:
        raise ValueError(
            f"`memory` of {owner} must be a number of bytes or a text such "
            f'as "512MB". Received: memory={memory!r}.'
        )
    size = int(float(match[1]) * _UNITS[match[2]])
    if size < 2**20:
        raise ValueError(
            f"`memory` of {owner} must be at least 1MB. Received: "
            f'memory={memory!r}. Use "64MB" or more to be fast.'
        )
    return size


_MAX_NORM = 2.0**62
"""The sum of two such lengths has a square that float32 can hold."""

_ELEMENTS = 2**19
"""Float64 numbers at a time: with fewer, threads wait for each other, and with
more, for memory."""


class Embeddings:
    """Embeddings from the user, checked when they are read.

    `x`, which messages call `name` of `owner`, is (N, D) or (D,), real
    numbers; `dim` is D, or None if any will do. Another shape is a ValueError.
    """

    def __init__(self, x: Any, dim: int | None, name: str, owner: str) -> None:
        try:
            rows = np.asarray(x)
        except ValueError:  # The rows differ in length.
            rows = np.empty(len(x), object)
        shape = rows.shape
        if rows.ndim == 1 and rows.size:
            rows = rows[None]
        width = rows.shape[1] if rows.ndim == 2 else 0
        if not width or width != (dim or width):
            width_name = "D" if dim is None else dim
            raise ValueError(
                f"`{name}` of {owner} must be embeddings, (N, {width_name}) or "
                f"({width_name},), or examples: a set such as ImageSet or "
                f"ArraySet, files, texts or uint8 pixels. Received: {name} of "
                f"shape {shape} and dtype {rows.dtype}."
            )
        self.shape: tuple[int, int] = rows.shape
        self._rows = rows
        self._name = name
        self._owner = owner

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def array(self) -> FloatArray:
        """The vectors, (N, D) float32; see `write`."""
        array = np.empty(self.shape, np.float32)
        self.write(array)
        return array

    def write(self, out: FloatArray) -> None:
        """Writes the vectors as they are, (N, D) float32."""
        if not len(self):
            return
        rows = as_embeddings(self._rows, self._name, self._owner)
        norms = row_norms(rows)
        if norms.max() > _MAX_NORM:
            row = int(norms.argmax())
            raise ValueError(
                f"`{self._name}` of {self._owner} must not be longer than "
                f"{_MAX_NORM:.3g}, because float32 could not hold squared "
                f"distances. Received: {self._name}[{row}] with length "
                f"{norms[row]:.3g}. Scale them down."
            )
        out[:] = rows


class UnitEmbeddings(Embeddings):
    """Embeddings that are scaled to unit length."""

    def write(self, out: FloatArray) -> None:
        """Writes the unit vectors, (N, D) float32; no row may be zero."""
        if not len(self):
            return
        x = self._rows
        if x.dtype != np.float32:
            x = as_embeddings(x, self._name, self._owner)

        def normalize(rows: slice) -> None:
            wide, norms = _unit(x[rows])
            # A minimum of NaN is NaN.
            if not (norms.min() > 0 and norms.max() < np.inf):
                bad = np.argmin((norms > 0) & (norms < np.inf))
                row = rows.start + int(bad)
                # This raises for values that are not finite.
                as_embeddings(x, self._name, self._owner)
                raise _no_unit(x[row], row, self._name, self._owner)
            out[rows] = wide

        count, dim = self.shape
        in_threads(normalize, blocks(count, max(1, _ELEMENTS // dim)))


def as_unit_rows(x: Any, name: str, owner: str) -> EmbeddingRows:
    """`UnitEmbeddings`, (N, D) float32; those in files are left there."""
    if not isinstance(x, np.memmap | LazyRows):
        return UnitEmbeddings(x, None, name, owner).array
    x = as_rows(x, name, owner)
    for rows in blocks(len(x), max(1, _ELEMENTS // x.shape[1])):
        block = x[rows]
        norms = _unit(block)[1]
        bad = np.flatnonzero(~((norms > 0) & (norms < np.inf)))
        if len(bad):
            row = int(bad[0])
            raise _no_unit(block[row], rows.start + row, name, owner)
    return map_rows(x, lambda rows: _unit(rows)[0].astype(np.float32))


def _unit(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows in float32 of unit length, (n, D), and their norms, (n,)."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # Squares of float32 stay within the range of float64.
        wide = x.astype(np.float32, copy=False).astype(np.float64)
        norms = np.sqrt(squares(wide))
        wide /= norms[:, None]
    return wide, norms


def _no_unit(vector: FloatArray, row: int, name: str, owner: str) -> ValueError:
    return ValueError(
        f"`{name}` of {owner} must have a nonzero length that float32 can "
        f"hold. Received: {name}[{row}] with numbers up to "
        f"{np.abs(vector).max():.3g}."
    )
