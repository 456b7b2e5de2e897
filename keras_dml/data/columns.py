"""Columns: the arrays of an `ArraySet`, checked."""

from typing import Any

import numpy as np
import numpy.typing as npt

from keras_dml.utils.lazy_rows import ArrayRows, LazyRows
from keras_dml.utils.types import Rows
from keras_dml.utils.vectors import blocks

Array = npt.NDArray[Any]

_CHECKED = 2**22
"""Number of values that are checked at a time."""


def is_text(dtype: np.dtype[Any]) -> bool:
    """Whether an array of this type holds strings; object arrays must."""
    return dtype.kind in "OSU"


def column_name(key: str) -> str:
    """What errors call a column; the only array of a set has no key."""
    return f"`x[{key!r}]`" if key else "`x`"


def same_array(a: Any, b: Any) -> bool:
    """Whether two values are the same array, or the same view of its memory."""
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return a is b
    first, second = (
        (x.__array_interface__["data"][0], x.shape, x.strides, x.dtype)
        for x in (a, b)
    )
    return first == second


def as_column(value: Any, name: str) -> LazyRows:
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
            "an array of one row: x[None]."
        )
    if is_stored:
        return ArrayRows(array)
    check_type(array, value, name)
    for rows in blocks(len(array), max(1, _CHECKED // max(1, array[:1].size))):
        check_finite(array[rows], name, np.arange(rows.start, rows.stop))
    view = array.view()
    view.flags.writeable = False
    return ArrayRows(view)


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
        "keras.utils.pad_sequences(x, padding='post'); for several inputs of a "
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
            f"{len(bad)} of {len(array)} checked rows, first in row {bad[0]}. "
            "Remove these rows, or replace the values with numpy.nan_to_num(x)."
        )
