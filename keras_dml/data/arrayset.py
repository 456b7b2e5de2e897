"""ArraySet: examples that are rows of arrays, with class labels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType, MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_dml.data.examples import About, Examples, Inputs, describe
from keras_dml.data.validation import (
    Names,
    as_column,
    as_rows,
    check_finite,
    check_lengths,
    column_name,
    is_text,
)
from keras_dml.utils.lazy_rows import LazyRows, join_rows, select_rows
from keras_dml.utils.types import Rows

_NO_NAME = ""
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
        ids: Optional N strings: names of the examples in their source.

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
        arrays = x if isinstance(x, Mapping) else {_NO_NAME: x}
        columns = {
            str(key): as_column(value, column_name(str(key)))
            for key, value in arrays.items()
        }
        about = About.of(labels, names, ids, "ArraySet")
        counts = {name: len(column) for name, column in columns.items()}
        if len(set(counts.values())) != 1:
            sizes = ", ".join(f"{n} of {k!r}" for k, n in counts.items())
            raise ValueError(
                "`x` of ArraySet must have at least one array, and the same "
                f"number of rows in all. Received: {sizes or 'no array'}."
            )
        vars(self).update(vars(about), columns=MappingProxyType(columns))
        check_lengths(
            "ArraySet", "rows", len(self), labels=about.labels, ids=about.ids
        )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def inputs(self, rows: npt.ArrayLike | EllipsisType) -> Inputs:
        picked = self._resolve(as_rows(rows, len(self), "ArraySet.inputs"))
        arrays = {name: x[picked] for name, x in self.columns.items()}
        for name, array in arrays.items():
            check_finite(array, column_name(name), picked)
        return arrays[_NO_NAME] if list(arrays) == [_NO_NAME] else arrays

    def _resolve(self, rows: Rows) -> Rows:
        count = len(self)
        outside = rows[(rows < -count) | (rows >= count)]
        if len(outside):
            raise IndexError(
                f"This ArraySet has {count} rows. Received: row {outside[0]}."
            )
        return np.where(rows < 0, rows + count, rows)

    def called(self, row: int) -> str:
        sole = self.columns.get(_NO_NAME)
        if self.ids is None and sole is not None and is_text(sole.dtype):
            text = sole[np.array([row])][0]
            return text.decode() if isinstance(text, bytes) else str(text)
        return super().called(row)

    def _at(self, rows: Rows | None, about: About) -> "ArraySet":
        columns: dict[str, Any] = dict(self.columns)
        if rows is not None:
            rows = self._resolve(rows)
            columns = {k: select_rows(x, rows) for k, x in columns.items()}
        return ArraySet(columns, about.labels, about.names, about.ids)

    @classmethod
    def _join(cls, sets: Sequence["ArraySet"], about: About) -> "ArraySet":
        kinds = [part._kind() for part in sets]
        if any(kind != kinds[0] for kind in kinds):
            raise ValueError(
                "`sets` of concatenate must contain arrays with the same "
                "names, shapes and types. Received: "
                f"{' and '.join(map(repr, sets))}."
            )
        columns: dict[str, Any] = {
            name: join_rows([part.columns[name] for part in sets])
            for name in sets[0].columns
        }
        return ArraySet(columns, about.labels, about.names, about.ids)

    def _kind(self) -> dict[str, Any]:
        return {k: (x.shape[1:], x.dtype) for k, x in self.columns.items()}

    def __repr__(self) -> str:
        kinds = []
        for name, (shape, dtype) in self._kind().items():
            sizes = "×".join(map(str, shape))
            type_name = "strings" if is_text(dtype) else str(dtype)
            kinds.append(" ".join(x for x in (name, sizes, type_name) if x))
        return describe(self, "examples", *kinds)
