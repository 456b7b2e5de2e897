"""Rows of arrays that are read, or computed, when they are needed."""

import abc
import math
import mmap
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from keras_dml.utils.types import FloatArray, Rows

AnyArray: TypeAlias = npt.NDArray[Any]

Selection: TypeAlias = "Rows | slice"


class LazyRows(abc.ABC):
    """N rows of one shape and type, of which `x[rows]` reads some.

    What is made of them, such as a selection of rows, is lazy as well.
    `np.asarray` reads all. Embeddings, (N, D), are float32 or float64.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)

    def __len__(self) -> int:
        return self.shape[0]

    @abc.abstractmethod
    def __getitem__(self, which: Selection) -> AnyArray:
        """Rows, (n, ...), by a slice or by row numbers."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        # Rows may be computed, so they are read in parts.
        array = np.empty(self.shape, dtype or self.dtype)
        step = max(1, 2**20 // max(1, math.prod(self.shape[1:])))
        for start in range(0, len(self), step):
            array[start : start + step] = self[start : start + step]
        return array


EmbeddingRows: TypeAlias = FloatArray | LazyRows
"""Embeddings, (N, D), in memory or not."""


def select_rows(x: EmbeddingRows, rows: Rows) -> EmbeddingRows:
    """Selects rows, in the order of `rows`."""
    if isinstance(x, _Selected):
        return _Selected(x.whole, x.rows[rows])
    return _Selected(x, rows) if isinstance(x, LazyRows) else x[rows]


def map_rows(
    x: EmbeddingRows, change: Callable[[FloatArray], FloatArray]
) -> EmbeddingRows:
    """Applies a function to all rows, (n, D) to (n, d)."""
    return _Changed(x, change) if isinstance(x, LazyRows) else change(x)


def join_rows(parts: Sequence[EmbeddingRows]) -> EmbeddingRows:
    """Concatenates rows."""
    if len(parts) == 1:
        return parts[0]
    if any(isinstance(part, LazyRows) for part in parts):
        return _Joined(parts)
    return np.concatenate(parts)


class ArrayRows(LazyRows):
    """The rows of an array, in memory or in a file; cast to `dtype`, if given.

    It is pickled as the array is, and a `np.memmap` without its content: what
    is unpickled opens the file again.
    """

    def __init__(self, source: Any, dtype: Any = None) -> None:
        super().__init__(tuple(source.shape), dtype or source.dtype)
        self.source = source

    def __getitem__(self, which: Selection) -> AnyArray:
        if isinstance(which, slice) or isinstance(self.source, np.ndarray):
            rows = np.asarray(self.source[which])
        elif len(which):
            # Files are read in ascending order without repeats, or as a
            # slice, which is much faster.
            row_numbers, positions = np.unique(which, return_inverse=True)
            first, last = int(row_numbers[0]), int(row_numbers[-1])
            is_slice = last - first + 1 == len(row_numbers)
            part = slice(first, last + 1) if is_slice else row_numbers
            rows = np.asarray(self.source[part])[positions]
        else:
            rows = np.empty((0, *self.shape[1:]), self.dtype)
        return rows.astype(self.dtype, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        state = vars(self).copy()
        if type(self.source) is np.memmap:
            state["source"] = _map_arguments(self.source)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["source"], dict):
            state["source"] = np.memmap(mode="r", **state["source"])
        vars(self).update(state)


class _Selected(LazyRows):
    def __init__(self, whole: LazyRows, rows: Rows) -> None:
        super().__init__((len(rows), *whole.shape[1:]), whole.dtype)
        self.whole, self.rows = whole, rows

    def __getitem__(self, which: Selection) -> AnyArray:
        return self.whole[self.rows[which]]

    def __reduce__(self) -> Any:
        source = getattr(self.whole, "source", None)
        if isinstance(source, np.memmap):
            return _Selected, (self.whole, self.rows)
        # Another process needs only the selected rows.
        return ArrayRows, (self[:],)


class _Changed(LazyRows):
    def __init__(
        self, source: LazyRows, change: Callable[[FloatArray], FloatArray]
    ) -> None:
        one = change(source[0:1])
        super().__init__((len(source), one.shape[1]), one.dtype)
        self._source, self._change = source, change

    def __getitem__(self, which: Selection) -> AnyArray:
        return self._change(self._source[which])


class _Joined(LazyRows):
    def __init__(self, parts: Sequence[EmbeddingRows]) -> None:
        counts = [len(part) for part in parts]
        dtype = np.result_type(*(part.dtype for part in parts))
        super().__init__((sum(counts), *parts[0].shape[1:]), dtype)
        self._parts = parts
        self._starts = np.cumsum([0, *counts])

    def __getitem__(self, which: Selection) -> AnyArray:
        rows = np.arange(len(self))[which]
        array = np.empty((len(rows), *self.shape[1:]), self.dtype)
        parts = np.searchsorted(self._starts, rows, side="right") - 1
        for part in np.unique(parts):
            mask = parts == part
            array[mask] = self._parts[part][rows[mask] - self._starts[part]]
        return array


def _map_arguments(source: Any) -> Any:
    """Arguments of `np.memmap` that open a file again, or its content."""
    if (
        source.mode == "c"
        or not source.flags.c_contiguous
        or source._mmap is None
    ):
        return np.asarray(source)
    # A slice of a map knows the offset of the map only.
    start = source.offset - source.offset % mmap.ALLOCATIONGRANULARITY
    first = np.frombuffer(source._mmap, np.uint8).ctypes.data
    return {
        "filename": source.filename,
        "dtype": source.dtype,
        "shape": source.shape,
        "offset": start + source.ctypes.data - first,
    }
