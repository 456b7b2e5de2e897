"""`from_source`: records by number, as in Hugging Face and Grain."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from keras_dml.data.arrayset import ArraySet
from keras_dml.data.examples import About
from keras_dml.data.validation import Array, Names, check_type, column_name
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.lazy_rows import LazyRows, Selection
from keras_dml.utils.progress import tracked

Field: TypeAlias = str | int | Callable[[Any], Any]
"""A key of a record, or a function that computes a value from it."""

_OWNER = "from_source"


def from_source(
    source: Any,
    x: Field | Mapping[str, Field],
    label: Field | None = None,
    names: Names | None = None,
    *,
    progress: bool | None = None,
) -> ArraySet:
    """Examples from a source of records, read when they are needed.

    A source has a length, and `source[i]` is its record number i: a data set
    of Hugging Face (`datasets`) or PyTorch, a Grain source or `MapDataset`, a
    list. Labels are read immediately, all other fields whenever a row is
    needed.

    Args:
        source: The records.
        x: The model's input: a key of the record or a function of it; or a
            dict of these by the names of the model's inputs. Pillow images
            become uint8 pixels, (H, W, 1) or (H, W, 3), with their EXIF
            orientation applied; gray ones get three channels if the first
            image has them.
        label: Key or function of the label, an integer or a string. None: the
            examples have no labels.
        names: Class names. By default those that a Hugging Face data set
            defines for its label.
        progress: Whether to show progress while labels are read; None shows it
            in a terminal.

    Returns:
        An `ArraySet`. If records differ in shape, the function must make the
        rows equal: `lambda record: np.asarray(record["image"].resize((96,
        96)))`.

    Raises:
        ValueError: If the source is empty or lacks a length or numbered
            records, or a record does not have the field; when rows are read,
            if the shape of one differs from that of the first.

    Example:

    ```python
    pets = datasets.load_dataset("imagefolder", data_dir="pets")["train"]
    examples = from_source(pets, "image", "label")
    ```
    """
    has_items = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    if not has_items or isinstance(source, str | bytes | Mapping):
        raise ValueError(
            f"`source` of {_OWNER} must have a length and numbered records. "
            f"Received: {type(source).__name__}. For a dict of splits, select "
            'one: source["train"]; for a stream, use from_dataset.'
        )
    count = len(source)
    if not count:
        raise ValueError(
            f"`source` of {_OWNER} must not be empty. Received: a "
            f"{type(source).__name__} with 0 records."
        )
    records = lru_cache(maxsize=2)(lambda rows: [source[row] for row in rows])
    fields = dict(x) if isinstance(x, Mapping) else {"": x}
    columns = {
        name: _Column(records, count, field, name)
        for name, field in fields.items()
    }
    labels = None
    if label is not None:
        features = getattr(source, "features", None)
        if isinstance(features, Mapping) and label in features:
            # Hugging Face: a column alone, without decoding images.
            labels = list(source[label])
            if names is None:
                names = getattr(features[label], "names", None)
        else:
            rows = tracked(range(count), count, "Labels", progress)
            labels = [_value(source[row], label) for row in rows]
    about = About.of(labels, names, None, _OWNER)
    return ArraySet(columns, about.labels, about.names)


def _value(record: Any, field: Field) -> Any:
    if callable(field):
        return field(record)
    try:
        return record[field]
    except (KeyError, IndexError, TypeError) as error:
        known = list(record) if isinstance(record, Mapping) else None
        has = f"keys {known}" if known else f"a {type(record).__name__}"
        raise ValueError(
            f"Records of {_OWNER} must have the field {field!r}. Received: "
            f"{has}.{did_you_mean(field, known or ())} For anything else, use "
            "a function of the record."
        ) from error


Records: TypeAlias = Callable[[tuple[int, ...]], list[Any]]
"""Reads the records of some rows; columns of a batch share the reading."""


class _Column(LazyRows):
    def __init__(
        self, records: Records, count: int, field: Field, name: str
    ) -> None:
        first = _as_array(_value(records((0,))[0], field))
        super().__init__((count, *first.shape), first.dtype)
        self._records, self._field = records, field
        self._name = column_name(name)
        check_type(first[None], first, self._name)

    def __getitem__(self, which: Selection) -> Array:
        rows = np.arange(len(self))[which]
        values = np.empty((len(rows), *self.shape[1:]), self.dtype)
        records = self._records(tuple(rows.tolist()))
        for place, record in enumerate(records):
            value = _as_array(_value(record, self._field))
            are_pixels = self.dtype == np.uint8 and len(self.shape) == 4
            in_color = are_pixels and self.shape[-1] == 3
            if in_color and value.shape == (*self.shape[1:-1], 1):
                # A gray image, as `image_folder` shows it to a model of color.
                value = np.broadcast_to(value, self.shape[1:])
            # A float would be cut off, and a large integer wrap around.
            is_float = value.dtype.kind == self.dtype.kind == "f"
            if not is_float and not np.can_cast(value.dtype, self.dtype):
                raise ValueError(
                    f"{self._name} of {_OWNER} must have one type. Received: "
                    f"{self.dtype} in row 0 and {value.dtype} in row "
                    f"{rows[place]}. Use a function of the record that "
                    'converts it: np.asarray(record["x"], "float32").'
                )
            if value.shape != self.shape[1:]:
                way_out = "resizes, crops or pads it."
                if are_pixels and value.shape == (*self.shape[1:-1], 3):
                    way_out = (
                        'converts it: lambda record: record["image"]'
                        '.convert("RGB").'
                    )
                raise ValueError(
                    f"{self._name} of {_OWNER} must have one shape. Received: "
                    f"{self.shape[1:]} in row 0 and {value.shape} in row "
                    f"{rows[place]}. Use a function of the record that "
                    f"{way_out}"
                )
            values[place] = value
        return values


def _as_array(value: Any) -> Array:
    from PIL.Image import Image

    from keras_dml.data.decode import pixels_of

    if isinstance(value, Image):
        return pixels_of(value)
    if isinstance(value, str | bytes):
        return np.array(value, object)
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"`x` of {_OWNER} must be numbers in rows of equal length, or "
            f"texts. Received: {error}. Use a function of the record that "
            "pads it."
        ) from error
