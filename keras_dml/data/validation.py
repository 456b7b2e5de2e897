"""Validation of images, labels, names, boxes and rows of examples."""

import os
from collections.abc import Iterable, Mapping, Sequence, Sized
from types import EllipsisType, MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from keras_dml.utils.lazy_rows import ArrayRows, LazyRows
from keras_dml.utils.types import Labels, Rows
from keras_dml.utils.vectors import blocks

Array: TypeAlias = npt.NDArray[Any]
Pixels: TypeAlias = npt.NDArray[np.uint8]
Names: TypeAlias = Mapping[int, str] | Sequence[str]
Table: TypeAlias = npt.NDArray[np.bool_]

_CHECKED_VALUES = 2**22
"""Number of values that are checked at a time."""


def encode_labels(
    labels: Any, names: Names | None, owner: str
) -> tuple[Labels, Mapping[int, str]]:
    """Read-only class labels, and the names of classes.

    Strings are numbered: first by `names`, then the others in alphabetical
    order. Floats are rejected even if they could be converted, because 1.0 and
    1.5 would become the same class.
    """
    if are_label_sets(labels):
        return as_table(labels, dict(_pairs(names)), owner)
    return as_labels(labels, owner, names)


def check_known(labels: Any, name: str, owner: str) -> None:
    """Raises `ValueError` unless all labels are known and of one kind."""
    if labels is None:
        return  # Callers know what to do if all are missing.
    # NumPy converts NaN to a text, and `astype(int)` to a number.
    is_list = isinstance(labels, list | tuple)
    items: Any = labels if is_list else np.ravel(labels)
    if getattr(items, "dtype", np.dtype(object)).kind in "biuSU":
        return
    lengths = [
        len(x)
        for x in items
        if isinstance(x, list | tuple) or getattr(x, "shape", False)
    ]
    # Lists of one length are a table, unless an array holds them as objects.
    is_table = is_list and len(lengths) == len(items) and len(set(lengths)) == 1
    if lengths and not is_table:
        raise ValueError(
            f"`{name}` of {owner} must have one label per example. Received: "
            f"lists as labels, of {min(lengths)} to {max(lengths)} items. For "
            "several labels per example, use sets: [set(x) for x in labels]."
        )

    def is_missing(label: Any) -> bool:
        if label is None or type(label).__name__ in ("NAType", "NaTType"):
            return True
        is_number = isinstance(label, float | np.floating | np.datetime64)
        return is_number and bool(label != label)

    missing = [i for i, x in enumerate(items) if is_missing(x)]
    if missing:
        raise ValueError(
            f"`{name}` of {owner} must have a label for every example. "
            f"Received: none ({items[missing[0]]}) for {len(missing)} of "
            f"{len(items)} examples, first for example {missing[0]}. Leave "
            "these examples out, for instance by the mask pandas.notna(labels)."
        )
    numbers = [x for x in items if isinstance(x, int | float | np.number)]
    if numbers and any(isinstance(x, str | bytes) for x in items):
        raise ValueError(
            f"`{name}` of {owner} must be all integers or all strings. "
            f"Received: strings, and {numbers[0]!r}. Use str(x) for numbers."
        )


def as_labels(
    labels: Any, owner: str, names: Names | None = None
) -> tuple[Rows, Mapping[int, str]]:
    if labels is None:
        raise ValueError(
            f"`labels` of {owner} must be one label per example. "
            "Received: labels=None. Examples without labels can be embedded "
            "and indexed, but not sampled or evaluated."
        )
    check_known(labels, "labels", owner)
    array = np.asarray(labels)
    if not array.ndim:
        raise ValueError(
            f"`labels` of {owner} must be a vector with one label per "
            f"example. Received: {labels!r:.80}. For a set of examples, use "
            "examples.labels; pass the levels of a hierarchy one at a time."
        )
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(
            f"`labels` of {owner} must be a vector with one label per "
            f"example. Received: labels of dtype {array.dtype} and shape "
            f"{array.shape}. Convert one-hot labels to integers with "
            "labels.argmax(-1). For several labels per example, use sets, or "
            "booleans: labels.astype(bool) in an ImageSet or ArraySet with "
            "MultiLabelBalanced."
        )
    if array.dtype.kind in "SUO" and all(
        isinstance(x, str | bytes) for x in array
    ):
        return _number_labels(array, names, owner)
    too_large = array.dtype.kind == "u" and np.any(array > 2**63 - 1)
    if array.dtype.kind not in "iu" or too_large:
        raise ValueError(
            f"`labels` of {owner} must be integers that fit int64, or strings. "
            f"Received: labels of dtype {array.dtype}, starting with "
            f"{array[:3].tolist()}. Convert whole numbers to integers with "
            "labels.astype(int); number other classes with np.unique(labels, "
            "return_inverse=True)[1]."
        )
    rows = read_only(array)
    return rows, as_names(names, rows, owner)


def _number_labels(
    labels: npt.NDArray[Any], names: Names | None, owner: str
) -> tuple[Rows, Mapping[int, str]]:
    texts = [x.decode() if isinstance(x, bytes) else str(x) for x in labels]
    known_names = dict(_pairs(names))
    different = len(set(known_names.values()))
    if different < len(known_names):
        raise ValueError(
            f"`names` of {owner} must name each class once if labels are "
            f"strings. Received: {len(known_names)} names, {different} of them "
            "different."
        )
    numbers = _numbers_of(set(texts), known_names)
    present = {numbers[x]: x for x in sorted(set(texts))}
    rows = read_only(np.array([numbers[x] for x in texts]))
    return rows, MappingProxyType(known_names | present)


def _numbers_of(texts: set[str], names: Mapping[int, str]) -> dict[str, int]:
    numbers = {name: number for number, name in names.items()}
    new = sorted(texts - set(numbers))
    first = max(names, default=-1) + 1
    return numbers | {name: first + i for i, name in enumerate(new)}


def are_label_sets(labels: Any) -> bool:
    """Whether each example has a set of labels: booleans (N, C), or sets."""
    if isinstance(labels, np.ndarray) and labels.dtype != object:
        return labels.ndim == 2 and labels.dtype == bool
    if not isinstance(labels, list | tuple | np.ndarray):
        return False
    return len(labels) > 0 and all(
        isinstance(x, set | frozenset) for x in labels
    )


def as_table(
    labels: Any, names: Mapping[int, str], owner: str
) -> tuple[Table, Mapping[int, str]]:
    """A read-only table of examples and labels, (N, C), and label names.

    Sets of strings are numbered as labels are; sets of integers are columns.
    """
    if isinstance(labels, np.ndarray) and labels.dtype == bool:
        table = labels.copy()
        columns = table.shape[1]
        if names and not 0 <= min(names) <= max(names) < columns:
            raise ValueError(
                f"`names` of {owner} must name columns of `labels`. Received: "
                f"names of {min(names)} to {max(names)}, {columns} columns."
            )
    else:
        table, names = _table_of(labels, names, owner)
    table.flags.writeable = False
    return table, names


def _table_of(
    sets: Sequence[Any], names: Mapping[int, str], owner: str
) -> tuple[Table, Mapping[int, str]]:
    items = set().union(*sets)
    odd = [x for x in items if not isinstance(x, int | np.integer) or x < 0]
    if items and all(isinstance(x, str) for x in items):
        numbers = _numbers_of(items, names)
        names = {number: name for name, number in numbers.items()}
    elif odd:
        raise ValueError(
            f"`labels` of {owner}, if they are sets, must contain only "
            "strings or only numbers 0 to C − 1. Received: a set with "
            f"{odd[0]!r} in it. Number the labels, or use strings."
        )
    else:
        numbers = {x: int(x) for x in items}
    columns = 1 + max([*numbers.values(), *names], default=-1)
    if columns > 2**20:
        raise ValueError(
            f"`labels` of {owner}, if they are sets of numbers, must be the "
            "columns of a table. Received: a label of "
            f"{max(numbers.values())}. Number the labels from 0."
        )
    table = np.zeros((len(sets), columns), bool)
    for row, labels in enumerate(sets):
        table[row, [numbers[x] for x in labels]] = True
    return table, names


def read_only(array: npt.NDArray[Any]) -> Rows:
    copy = array.astype(np.int64)
    copy.flags.writeable = False
    return copy


def as_images(
    images: Pixels | Sequence[str | os.PathLike[str]],
) -> Pixels | tuple[str, ...]:
    if isinstance(images, np.ndarray) and images.dtype.kind not in "UO":
        is_color = images.ndim == 4 and images.shape[3] in (1, 3)
        is_image = images.ndim == 3 or is_color
        if images.dtype != np.uint8 or not is_image or 0 in images.shape[1:]:
            raise ValueError(
                "`images` of ImageSet must be uint8 pixels of shape "
                "(N, H, W), (N, H, W, 1) or (N, H, W, 3), or file paths. "
                f"Received: an array of dtype {images.dtype} and shape "
                f"{images.shape}. Convert pixels from 0 to 1 to uint8 with "
                "np.round(255 * images).astype('uint8')."
            )
        view = images.view()
        view.flags.writeable = False
        return view
    if isinstance(images, str | bytes | os.PathLike):
        raise ValueError(
            "`images` of ImageSet must be a sequence of paths, one per "
            f"image. Received: images={images!r}. For a folder of images, use "
            "keras_dml.data.image_folder."
        )
    odd = [x for x in images if not isinstance(x, str | os.PathLike)][:1]
    if odd:
        raise ValueError(
            "`images` of ImageSet must be one uint8 array or a sequence "
            "of paths. Received: a sequence that contains a "
            f"{type(odd[0]).__name__}. Combine images of one size into an "
            "array with np.stack(images)."
        )
    paths = tuple(os.fspath(path) for path in images)
    if bad := next((x for x in paths if not is_utf8(x)), None):
        raise ValueError(
            "`images` of ImageSet must be paths in UTF-8. Received: "
            f"{bad!a}. Rename the file."
        )
    return paths


def is_utf8(path: str) -> bool:
    """Whether a path is a text, which TensorFlow and files of JSON can hold."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_names(
    names: Names | None, labels: Rows, owner: str
) -> Mapping[int, str]:
    is_list = names is not None and not isinstance(names, Mapping)
    count = len(names or ())
    if is_list and len(labels):
        if not 0 <= labels.min() <= labels.max() < count:
            raise ValueError(
                f"`names` of {owner}, if it is a sequence, must have one item "
                f"per label. Received: {count} names, labels from "
                f"{labels.min()} to {labels.max()}. Use a mapping "
                "{label: name}."
            )
    return MappingProxyType(dict(_pairs(names)))


def _pairs(names: Names | None) -> Iterable[tuple[int, str]]:
    if isinstance(names, Mapping):
        return ((int(k), str(v)) for k, v in names.items())
    return ((i, str(name)) for i, name in enumerate(names or ()))


def as_rows(rows: npt.ArrayLike | EllipsisType, count: int, owner: str) -> Rows:
    """Row numbers, from row numbers, a mask of `count` booleans, or `...`."""
    if rows is ...:
        return np.arange(count)
    array = np.asarray(rows)
    if array.dtype == bool and array.shape == (count,):
        return np.flatnonzero(array)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"`rows` of {owner} must be a vector of row numbers or a mask of "
            f"{count} booleans. Received: rows of dtype {array.dtype} and "
            f"shape {array.shape}."
        )
    return array.astype(np.int64)


def check_lengths(
    owner: str, what: str, count: int, **fields: Sized | None
) -> None:
    """Raises `ValueError` unless fields have one item per example."""
    for name, values in fields.items():
        if values is not None and len(values) != count:
            raise ValueError(
                f"`{name}` of {owner} must have one item per "
                f"{what.removesuffix('s')}. Received: {len(values)} {name}, "
                f"{count} {what}."
            )


def as_boxes(boxes: npt.ArrayLike) -> Rows:
    """Boxes of images, all non-empty, as a read-only int64 array, (N, 4)."""
    array: npt.NDArray[Any] = np.asarray(boxes)
    if array.size == 0:
        array = np.empty((0, 4), np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 2 or array.shape[1] != 4:
        raise ValueError(
            "`boxes` of ImageSet must be integers of shape (N, 4): left, "
            f"top, right, bottom. Received: boxes of dtype {array.dtype} and "
            f"shape {array.shape}."
        )
    array = read_only(array)
    is_empty = (array[:, 2:] <= array[:, :2]).any(axis=1)
    bad = np.flatnonzero(is_empty | (array < 0).any(axis=1))
    if len(bad):
        raise ValueError(
            "`boxes` of ImageSet must have 0 <= left < right and 0 <= top < "
            f"bottom. Received: {array[bad[0]].tolist()} in row {bad[0]}. "
            "Convert boxes of (x, y, width, height) to (x, y, x + width, y + "
            "height)."
        )
    return array


def is_text(dtype: np.dtype[Any]) -> bool:
    """Whether an array of this type holds strings; object arrays must."""
    return dtype.kind in "OSU"


def column_name(key: str) -> str:
    """The name of a column in errors; a single array has no key."""
    return f"`x[{key!r}]`" if key else "`x`"


def as_column(value: Any, name: str) -> LazyRows:
    """The rows of an array, called `name` of ArraySet in errors."""
    if isinstance(value, LazyRows):
        return value
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
    # Arrays of h5py and zarr, which are stored in files, have `chunks`.
    is_stored = isinstance(value, np.memmap) or hasattr(value, "chunks")
    array = value
    if hasattr(value, "to_tensor"):
        raise _ragged_error(name, f"a {type(value).__name__}")
    if not is_stored:
        is_list = isinstance(value, list | tuple)
        is_texts = is_list and all(isinstance(x, str) for x in value)
        # In an array of fixed width, all texts would be as wide as the longest.
        dtype = object if is_texts and len(value) else None
        try:
            array = np.asarray(value, dtype)
        except ValueError as error:
            raise _ragged_error(name, str(error)) from error
    if not array.shape:
        raise ValueError(
            f"{name} of ArraySet must have one row per example. Received: "
            f"{type(value).__name__} without rows. For a single example, use "
            "an array of one row: x[None]."
        )
    if is_stored:
        return ArrayRows(array)
    check_type(array, value, name)
    for rows in blocks(
        len(array), max(1, _CHECKED_VALUES // max(1, array[:1].size))
    ):
        check_finite(array[rows], name, np.arange(rows.start, rows.stop))
    view = array.view()
    view.flags.writeable = False
    return ArrayRows(view)


def check_type(array: Array, value: Any, name: str) -> None:
    """Raises `ValueError` unless an array contains numbers or strings."""
    kind = array.dtype.kind
    is_mixed = kind == "U" and isinstance(value, list | tuple)
    if is_mixed or (
        kind == "O" and not all(isinstance(x, str | bytes) for x in array.flat)
    ):
        first = type(next(iter(array.flat))).__name__
        if array.ndim == 1 and hasattr(array.flat[0], "__len__"):
            raise _ragged_error(
                name, f"an array of objects, the first a {first}"
            )
        raise ValueError(
            f"{name} of ArraySet must be numbers or strings. Received: an "
            f"array of objects, the first of type {first}."
        )
    if kind in "mM" or array.dtype.names:
        raise ValueError(
            f"{name} of ArraySet must be numbers or strings. Received: dtype "
            f"{array.dtype}."
        )


def _ragged_error(name: str, received: str) -> ValueError:
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
    # NumPy has no kind for bfloat16.
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
