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
        """Some rows, (n, ...): a slice of them, or those of given numbers."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        # In parts, as rows may be computed.
        found = np.empty(self.shape, dtype or self.dtype)
        step = max(1, 2**20 // max(1, math.prod(self.shape[1:])))
        for start in range(0, len(self), step):
            found[start : start + step] = self[start : start + step]
        return found


EmbeddingRows: TypeAlias = FloatArray | LazyRows
"""Embeddings, (N, D), in memory or not."""


def selected(x: EmbeddingRows, rows: Rows) -> EmbeddingRows:
    """Some rows, in their order."""
    if isinstance(x, _Selected):
        return _Selected(x.whole, x.rows[rows])
    return _Selected(x, rows) if isinstance(x, LazyRows) else x[rows]


def changed(
    x: EmbeddingRows, change: Callable[[FloatArray], FloatArray]
) -> EmbeddingRows:
    """What a function makes of every row, (n, D) to (n, d)."""
    return _Changed(x, change) if isinstance(x, LazyRows) else change(x)


def joined(parts: Sequence[EmbeddingRows]) -> EmbeddingRows:
    """The rows of several, one after another."""
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
            found = np.asarray(self.source[which])
        elif len(which):
            # Files are read in ascending order without repeats, or as a
            # slice, which is much faster.
            needed, places = np.unique(which, return_inverse=True)
            first, last = int(needed[0]), int(needed[-1])
            is_slice = last - first + 1 == len(needed)
            part = slice(first, last + 1) if is_slice else needed
            found = np.asarray(self.source[part])[places]
        else:
            found = np.empty((0, *self.shape[1:]), self.dtype)
        return found.astype(self.dtype, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        state = vars(self).copy()
        if type(self.source) is np.memmap:
            state["source"] = _place(self.source)
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
        # The rows alone: the others are none of another process's business.
        return ArrayRows, (self[:],)


class _Changed(LazyRows):
    def __init__(
        self, given: LazyRows, change: Callable[[FloatArray], FloatArray]
    ) -> None:
        one = change(given[0:1])
        super().__init__((len(given), one.shape[1]), one.dtype)
        self._given, self._change = given, change

    def __getitem__(self, which: Selection) -> AnyArray:
        return self._change(self._given[which])


class _Joined(LazyRows):
    def __init__(self, parts: Sequence[EmbeddingRows]) -> None:
        counts = [len(part) for part in parts]
        dtype = np.result_type(*(part.dtype for part in parts))
        super().__init__((sum(counts), *parts[0].shape[1:]), dtype)
        self._parts = parts
        self._starts = np.cumsum([0, *counts])

    def __getitem__(self, which: Selection) -> AnyArray:
        rows = np.arange(len(self))[which]
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(owner):
            own = owner == number
            found[own] = self._parts[number][rows[own] - self._starts[number]]
        return found


def _place(source: Any) -> Any:
    """Where a map lies, as arguments of `np.memmap`; or its content."""
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
