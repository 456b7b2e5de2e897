"""Columns: arrays whose rows are read when they are needed."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_dml.utils.types import Rows
from keras_dml.utils.vectors import blocks

Array = npt.NDArray[Any]

_CHECKED = 2**22
"""Number of values that are checked at a time."""


def is_text(dtype: np.dtype[Any]) -> bool:
    """Whether an array of this type holds strings; object arrays must."""
    return dtype.kind in "OSU"


class Column(abc.ABC):
    """N rows of one shape and type, called `name` of ArraySet in errors."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.shape[0]

    @abc.abstractmethod
    def take(self, rows: Rows) -> Array:
        """Returns some rows; all row numbers are in 0 to N − 1."""

    def is_same(self, other: "Column") -> bool:
        """Whether both read their rows from the same place."""
        return self is other

    def at(self, rows: Rows) -> "Column":
        """Returns the column of some rows, without reading them."""
        return _Selected(self, self.checked(rows))

    def read(self, rows: Rows) -> Array:
        """Returns some rows, which must be finite."""
        found = self.take(self.checked(rows))
        check_finite(found, self.name, rows)
        return found

    def checked(self, rows: Rows) -> Rows:
        """Row numbers, negative ones counted from the end."""
        count = len(self)
        outside = rows[(rows < -count) | (rows >= count)]
        if len(outside):
            raise IndexError(
                f"{self.name} of ArraySet has {count} rows. Received: row "
                f"{outside[0]}."
            )
        return np.where(rows < 0, rows + count, rows)


class _OfArray(Column):
    """Rows of an array."""

    _array: Any

    def is_same(self, other: Column) -> bool:
        return isinstance(other, _OfArray) and same_array(
            self._array, other._array
        )


class _InMemory(_OfArray):
    def __init__(self, array: Array, name: str) -> None:
        self.name, self.shape, self.dtype = name, array.shape, array.dtype
        self._array = array.view()
        self._array.flags.writeable = False

    def take(self, rows: Rows) -> Array:
        return self._array[rows]


class _OnDisk(_OfArray):
    """Rows of a file, read in ascending order without repeats, or as a
    slice."""

    def __init__(self, array: Any, name: str) -> None:
        self.name, self.shape = name, tuple(array.shape)
        self.dtype = np.dtype(array.dtype)
        self._array = array

    def take(self, rows: Rows) -> Array:
        if not len(rows):
            return np.empty((0, *self.shape[1:]), self.dtype)
        first, last = int(rows.min()), int(rows.max())
        if np.array_equal(rows, np.arange(first, last + 1)):
            # `np.array` copies: a view of a memory map would keep it open.
            return np.array(self._array[first : last + 1])
        needed, places = np.unique(rows, return_inverse=True)
        return np.asarray(self._array[needed])[places]


class _Selected(Column):
    def __init__(self, column: Column, rows: Rows) -> None:
        self.name, self.dtype = column.name, column.dtype
        self.shape = (len(rows), *column.shape[1:])
        self._column, self._rows = column, rows

    def take(self, rows: Rows) -> Array:
        return self._column.take(self._rows[rows])

    def at(self, rows: Rows) -> Column:
        return _Selected(self._column, self._rows[self.checked(rows)])

    def __reduce__(self) -> tuple[Any, ...]:
        # The rows alone: the others are none of another process's business,
        # which may not reach their file either.
        return _InMemory, (self.take(np.arange(len(self))), self.name)


class _Joined(Column):
    def __init__(self, columns: Sequence[Column]) -> None:
        first = columns[0]
        self.name, self.dtype = first.name, first.dtype
        counts = [len(column) for column in columns]
        self.shape = (sum(counts), *first.shape[1:])
        self._columns = columns
        self._starts = np.cumsum([0, *counts[:-1]])

    def take(self, rows: Rows) -> Array:
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        which = np.searchsorted(self._starts, rows, side="right") - 1
        # Of columns that start at one row, all but the last are empty.
        for number in np.unique(which):
            here = which == number
            wanted = rows[here] - self._starts[number]
            found[here] = self._columns[number].take(wanted)
        return found


def same_array(a: Any, b: Any) -> bool:
    """Whether two values are the same array, or the same view of its memory."""
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return a is b
    first, second = (
        (x.__array_interface__["data"][0], x.shape, x.strides, x.dtype)
        for x in (a, b)
    )
    return first == second


def joined(columns: Sequence[Column]) -> Column:
    """The rows of several columns of one shape and type."""
    return _Joined(columns)


def as_column(value: Any, name: str) -> Column:
    """The rows of an array, called `name` of ArraySet in errors.

    Raises:
        ValueError: If it has no rows, or rows of unequal length; if it
            contains neither numbers nor strings; or if it is in memory and
            contains numbers that are not finite.
    """
    # Arrays of h5py and zarr, which are in a file, have `chunks`.
    is_stored = isinstance(value, np.memmap) or hasattr(value, "chunks")
    array = value if is_stored else _in_memory(_dense(value, name), name)
    if not array.shape:
        raise ValueError(
            f"{name} of ArraySet must have one row per example. Received: "
            f"{type(value).__name__} without rows. For a single example, use "
            "an "
            "array of one row: x[None]."
        )
    if is_stored:
        return _OnDisk(array, name)
    check_type(array, value, name)
    for rows in blocks(len(array), max(1, _CHECKED // max(1, array[:1].size))):
        check_finite(array[rows], name, np.arange(rows.start, rows.stop))
    return _InMemory(array, name)


def _in_memory(value: Any, name: str) -> Array:
    if hasattr(value, "to_tensor"):
        raise _ragged(name, f"a {type(value).__name__}")
    is_list = isinstance(value, list | tuple)
    if is_list and value and all(isinstance(x, str) for x in value):
        # As an array of one width, texts would all take that of the longest.
        return np.array(value, object)
    try:
        return np.asarray(value)
    except ValueError as error:
        raise _ragged(name, str(error)) from error


def _dense(value: Any, name: str) -> Any:
    """The value unchanged; raises `ValueError` if it is sparse."""
    ways_out = {
        "SparseTensor": "tf.sparse.to_dense(x)",
        "spmatrix": "x.toarray()",
        "sparray": "x.toarray()",
    }
    for kind in type(value).__mro__:
        if kind.__name__ in ways_out:
            raise ValueError(
                f"{name} of ArraySet must be a dense array. Received: "
                f"{type(value).__name__}. Use {ways_out[kind.__name__]}."
            )
    return value


def check_type(array: Array, value: Any, name: str) -> None:
    """Raises `ValueError` unless an array contains numbers or strings."""
    kind = array.dtype.kind
    is_mixed = kind == "U" and isinstance(value, list | tuple)
    if is_mixed or (
        kind == "O" and not all(isinstance(x, str | bytes) for x in array.flat)
    ):
        first = type(next(iter(array.flat))).__name__
        if array.ndim == 1 and hasattr(array.flat[0], "__len__"):
            raise _ragged(name, f"an array of objects, the first a {first}")
        raise ValueError(
            f"{name} of ArraySet must be numbers or strings. Received: an "
            f"array of objects, the first of type {first}."
        )
    if kind in "mM" or array.dtype.names:
        raise ValueError(
            f"{name} of ArraySet must be numbers or strings. Received: dtype "
            f"{array.dtype}."
        )


def _ragged(name: str, received: str) -> ValueError:
    return ValueError(
        f"{name} of ArraySet must have rows of one length. Received: "
        f"{received}. To turn lists of token ids into one array, use "
        "keras.utils.pad_sequences(x, padding='post'); for several inputs of "
        "a "
        "model, use a dict of arrays."
    )


def check_finite(
    array: Array, name: str, rows: Rows, owner: str = "ArraySet"
) -> None:
    """Raises `ValueError` unless the rows, whose numbers are given, are
    finite."""
    # bfloat16 is no kind that NumPy knows.
    if array.dtype.kind not in "fcV" or not array.size:
        return
    finite = np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    if not finite.all():
        bad = rows[~finite]
        raise ValueError(
            f"{name} of {owner} must be finite. Received: NaN or infinity in "
            f"{len(bad)} of {len(array)} checked rows, first in "
            f"row {bad[0]}. Remove these rows, or replace the values with "
            "numpy.nan_to_num(x)."
        )
