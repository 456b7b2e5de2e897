"""Embeddings that are read where they lie, some rows at a time."""

import abc
import mmap
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from keras_dml.utils.types import FloatArray, Rows

Selection: TypeAlias = "Rows | slice"


class Stored(abc.ABC):
    """(N, D) numbers of which `x[rows]` reads some rows into memory.

    What is made of it, such as a selection of rows, is stored as well: it is
    computed when it is read. `np.asarray` reads all.

    Attributes:
        shape: (N, D).
        dtype: Of what is read: float32 or float64.
    """

    def __init__(self, shape: tuple[int, int], dtype: Any) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)

    def __len__(self) -> int:
        return self.shape[0]

    @abc.abstractmethod
    def __getitem__(self, which: Selection) -> FloatArray:
        """Some rows, (n, D): a slice of them, or those of given numbers."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        # In parts, as what is stored may be computed.
        found = np.empty(self.shape, dtype or self.dtype)
        step = max(1, 2**20 // self.shape[1])
        for start in range(0, len(self), step):
            found[start : start + step] = self[start : start + step]
        return found

    def select(self, rows: Rows) -> "Stored":
        """Some rows, in their order."""
        return _Selected(self, rows)

    def changed(self, change: Callable[[FloatArray], FloatArray]) -> "Stored":
        """What a function makes of every row, (n, D) to (n, d)."""
        return _Changed(self, change)


EmbeddingRows: TypeAlias = FloatArray | Stored
"""Embeddings, (N, D), in memory or not."""


def selected(x: EmbeddingRows, rows: Rows) -> EmbeddingRows:
    """Some rows, in their order."""
    return x.select(rows) if isinstance(x, Stored) else x[rows]


def changed(
    x: EmbeddingRows, change: Callable[[FloatArray], FloatArray]
) -> EmbeddingRows:
    """What a function makes of every row, (n, D) to (n, d)."""
    return x.changed(change) if isinstance(x, Stored) else change(x)


def joined(parts: Sequence[EmbeddingRows]) -> EmbeddingRows:
    """The rows of several, one after another."""
    if len(parts) == 1:
        return parts[0]
    if any(isinstance(part, Stored) for part in parts):
        return _Joined(parts)
    return np.concatenate(parts)


class Mapped(Stored):
    """The rows of an array in files.

    It is pickled as the array is, and a `np.memmap` without its content: what
    is unpickled opens the file again.

    Args:
        source: (N, D), read by `source[rows]`; a `np.memmap` for instance.
        dtype: What rows are cast to, float32 or float64.
    """

    def __init__(self, source: Any, dtype: Any = np.float32) -> None:
        super().__init__(tuple(source.shape), dtype)
        self._source = source

    def __getitem__(self, which: Selection) -> FloatArray:
        return np.asarray(self._source[which]).astype(self.dtype, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        state = vars(self).copy()
        if type(self._source) is np.memmap:
            state["_source"] = _place(self._source)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["_source"], dict):
            state["_source"] = np.memmap(mode="r", **state["_source"])
        vars(self).update(state)


class _Selected(Stored):
    """Some rows of another one."""

    def __init__(self, whole: Stored, rows: Rows) -> None:
        super().__init__((len(rows), whole.shape[1]), whole.dtype)
        self._whole, self._rows = whole, rows

    def __getitem__(self, which: Selection) -> FloatArray:
        return self._whole[self._rows[which]]


class _Changed(Stored):
    """What a function makes of the rows of another one."""

    def __init__(
        self, given: Stored, change: Callable[[FloatArray], FloatArray]
    ) -> None:
        one = change(given[0:1])
        super().__init__((len(given), one.shape[1]), one.dtype)
        self._given, self._change = given, change

    def __getitem__(self, which: Selection) -> FloatArray:
        return self._change(self._given[which])


class _Joined(Stored):
    """The rows of several, one after another."""

    def __init__(self, parts: Sequence[EmbeddingRows]) -> None:
        counts = [len(part) for part in parts]
        dtype = np.result_type(*(part.dtype for part in parts))
        super().__init__((sum(counts), parts[0].shape[1]), dtype)
        self._parts = parts
        self._starts = np.cumsum([0, *counts])

    def __getitem__(self, which: Selection) -> FloatArray:
        rows = np.arange(len(self))[which]
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        for number, part in enumerate(self._parts):
            own = owner == number
            found[own] = part[rows[own] - self._starts[number]]
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
