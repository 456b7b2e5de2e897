"""ArraySet: examples that are rows of arrays, with class labels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType, MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_dml.data.examples import About, Examples, Inputs, described
from keras_dml.data.fields import Names, as_rows, check_lengths
from keras_dml.utils.lazy_rows import ArrayRows, LazyRows, joined
from keras_dml.utils.types import Rows
from keras_dml.utils.vectors import blocks

Array = npt.NDArray[Any]

_CHECKED = 2**22
"""Number of values that are checked at a time."""

_ONLY = ""
"""Name of the column if the input is a single array."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ArraySet(Examples):
    """Examples that are rows of arrays, with class labels.

    They can be anything that a model takes: feature vectors, token ids,
    strings for a model with a `TextVectorization` layer, images with their own
    preprocessing, or a dict of arrays for a model with several inputs. Types
    and values reach the model unchanged.

    Rows are read when they are needed, so arrays may be larger than memory:
    `numpy.load(path, mmap_mode="r")` or an open `h5py` data set. Selecting and
    joining sets does not copy rows.

    Args:
        x: An array of N rows, or a dict of arrays by the names of the model's
            inputs: NumPy, memory-mapped, `h5py` or `zarr`. Lists and tensors
            are converted.
        labels: (N,) integers of any size, stored as int64; or strings, which
            are numbered and become the names. None: unknown, which is
            sufficient for embedding and indexing.
        names: Class names: a mapping from label to name, or a sequence whose
            item `i` names label `i`. If labels are strings, this mapping
            determines their numbers; pass the names of one set to another, so
            that both number classes alike.
        ids: Optional N strings: what the source calls the examples.

    Raises:
        ValueError: If `x` is not an array or its rows differ in length, if
            numbers are not finite, if labels are neither integers nor strings,
            or if lengths differ. Arrays that are read from a file are checked
            when their rows are read.

    Example:

    ```python
    examples = ArraySet(
        {"text": ["a red bird", "a blue car"], "price": [[3.0], [900.0]]},
        labels=["bird", "car"],
    )
    examples.inputs([1])  # {"text": ["a blue car"], "price": [[900.0]]}
    ```
    """

    columns: Mapping[str, LazyRows]

    def __init__(
        self,
        x: Any,
        labels: Any = None,
        names: Names | None = None,
        ids: Iterable[str] | None = None,
    ) -> None:
        given = x if isinstance(x, Mapping) else {_ONLY: x}
        columns = {
            str(key): as_column(value, column_name(str(key)))
            for key, value in given.items()
        }
        self._set(columns, About.of(labels, names, ids, "ArraySet"))

    @classmethod
    def of_columns(
        cls, columns: Mapping[str, LazyRows], about: About
    ) -> "ArraySet":
        """A set of columns that have already been checked."""
        made = cls.__new__(cls)
        again = About.of(about.labels, about.names, about.ids, cls.__name__)
        made._set(dict(columns), again)
        return made

    def _set(self, columns: dict[str, LazyRows], about: About) -> None:
        counts = {name: len(column) for name, column in columns.items()}
        if len(set(counts.values())) != 1:
            found = ", ".join(f"{n} of {k!r}" for k, n in counts.items())
            raise ValueError(
                "`x` of ArraySet must have at least one array, and the same "
                f"number of rows in all. Received: {found or 'no array'}."
            )
        vars(self).update(vars(about), columns=MappingProxyType(columns))
        check_lengths(
            "ArraySet", "rows", len(self), labels=about.labels, ids=about.ids
        )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def inputs(self, rows: npt.ArrayLike | EllipsisType) -> Inputs:
        picked = self._checked(as_rows(rows, len(self), "ArraySet.inputs"))
        found = {name: x[picked] for name, x in self.columns.items()}
        for name, array in found.items():
            check_finite(array, column_name(name), picked)
        return found[_ONLY] if list(found) == [_ONLY] else found

    def _checked(self, rows: Rows) -> Rows:
        """Row numbers, negative ones counted from the end."""
        count = len(self)
        outside = rows[(rows < -count) | (rows >= count)]
        if len(outside):
            raise IndexError(
                f"This ArraySet has {count} rows. Received: row {outside[0]}."
            )
        return np.where(rows < 0, rows + count, rows)

    def called(self, row: int) -> str:
        only = self.columns.get(_ONLY)
        if self.ids is None and only is not None and is_text(only.dtype):
            text = only[np.array([row])][0]
            return text.decode() if isinstance(text, bytes) else str(text)
        return super().called(row)

    def _at(self, rows: Rows | None, about: About) -> "ArraySet":
        columns = dict(self.columns)
        if rows is not None:
            rows = self._checked(rows)
            columns = {name: x.select(rows) for name, x in columns.items()}
        return self.of_columns(columns, about)

    @classmethod
    def _joined(cls, sets: Sequence["ArraySet"], about: About) -> "ArraySet":
        kinds = [part._kind() for part in sets]
        if any(kind != kinds[0] for kind in kinds):
            raise ValueError(
                "`sets` of concatenate must contain arrays with the same "
                "names, shapes and types. Received: "
                f"{' and '.join(map(repr, sets))}."
            )
        columns: dict[str, Any] = {
            name: joined([part.columns[name] for part in sets])
            for name in sets[0].columns
        }
        return cls.of_columns(columns, about)

    def _kind(self) -> dict[str, Any]:
        """Shape and type of an example, by name."""
        return {k: (x.shape[1:], x.dtype) for k, x in self.columns.items()}

    def __repr__(self) -> str:
        kinds = []
        for name, (shape, dtype) in self._kind().items():
            sizes = "×".join(map(str, shape))
            type_name = "strings" if is_text(dtype) else str(dtype)
            kinds.append(" ".join(x for x in (name, sizes, type_name) if x))
        return described(self, "examples", *kinds)


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
    """Raises `ValueError` unless the rows, of these numbers, are finite."""
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
