"""Reading: examples from arrays, `tf.data` datasets and numbered records."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import FunctionType
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_dml.data.arrayset import ArraySet
from keras_dml.data.caching import available_memory, megabytes
from keras_dml.data.decode import pixels_of
from keras_dml.data.examples import About, Examples, Inputs
from keras_dml.data.imageset import ImageSet
from keras_dml.data.relations import Relations
from keras_dml.data.splits import DataSplits
from keras_dml.data.validation import (
    Array,
    Names,
    check_finite,
    check_type,
    column_name,
    is_text,
)
from keras_dml.utils.arguments import check_arguments, did_you_mean
from keras_dml.utils.lazy_rows import LazyRows, Selection
from keras_dml.utils.progress import with_progress
from keras_dml.utils.tensorflow import is_dataset, tf

logger = logging.getLogger(__name__)

_OWNER, _SOURCE = "from_dataset", "from_source"

_BATCH_SIZE = 256
"""Number of examples that are read at a time, if there are no batches."""

_UNEQUAL = (
    "Cannot batch tensors with different shapes",
    "Cannot add tensor to the batch",
)
"""TensorFlow's errors for elements that cannot form a batch."""

Columns: TypeAlias = dict[str, Array]

Field: TypeAlias = str | int | Callable[[Any], Any]
"""A key of a record, or a function that computes a value from it."""


def check_one_set(value: Any, name: str, owner: str) -> None:
    """Raises `ValueError` for `DataSplits`, or a function that loads them."""
    is_function = isinstance(value, FunctionType)
    if is_function or isinstance(value, DataSplits):
        call = f"data = {value.__name__}(…), and " if is_function else ""
        raise ValueError(
            f"`{name}` of {owner} must be one set. Received: {value!r:.80}. "
            f"Use {call}one of data.train, data.validation and data.test."
        )


def as_examples(value: Any, name: str, owner: str) -> Examples:
    """The examples that the argument `name` of `owner` stands for.

    Arrays x, alone or as (x, y), become an `ImageSet` if they are uint8 pixels,
    otherwise an `ArraySet`.
    """
    if isinstance(value, Examples):
        return value
    check_one_set(value, name, owner)
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        raise ValueError(
            f"`{name}` of {owner} must be an ImageSet, an ArraySet, arrays "
            "(x, y) or a finite tf.data.Dataset. Received: "
            f"{name}={value!r:.80}. Use, for example, ArraySet(x, labels)."
        )
    if isinstance(value, Relations):
        raise ValueError(
            f"`{name}` of {owner} must be examples with labels, not relations. "
            f"Received: {value!r}. Use its `examples`, with labels by "
            "examples.with_labels(labels)."
        )
    if isinstance(value, keras.utils.PyDataset) or hasattr(
        value, "element_spec"
    ):
        raise ValueError(
            f"`{name}` of {owner} must be examples that can be read in any "
            f"order. Received: a {type(value).__name__}. Use "
            "keras_dml.data.from_dataset(dataset), which reads it once."
        )
    x, y = value, None
    if isinstance(value, tuple):
        x, y = x_and_y(value, name, owner)
    if isinstance(x, Examples):
        raise ValueError(
            f"`{name}` of {owner} must be only a set, which has labels, or "
            f"arrays (x, y). Received: ({x!r}, …). Use {name}=x."
        )
    if getattr(x, "dtype", None) == np.uint8 and (
        len(x.shape) == 3 or (len(x.shape) == 4 and x.shape[3] in (1, 3))
    ):
        return ImageSet(x, y)
    return ArraySet(x, y)


def x_and_y(parts: tuple[Any, ...], name: str, owner: str) -> tuple[Any, Any]:
    """x and y of Keras tuples: (x,), (x, y) or (x, y, sample_weight)."""
    if not 1 <= len(parts) <= 3:
        raise ValueError(
            f"`{name}` of {owner}, if it is a tuple, must be (x, y). Received: "
            f"{len(parts)} items."
        )
    x, y = (*parts, None)[:2]
    if isinstance(y, dict):
        if "label" not in y:
            raise ValueError(
                f'`{name}` of {owner}, if y is a dict, must contain "label". '
                f"Received: {sorted(y)}."
            )
        y = y["label"]
    return x, y


@check_arguments
def from_dataset(
    dataset: tf.data.Dataset | keras.utils.PyDataset,
    *,
    names: Names | None = None,
    labeled: bool = True,
    batched: bool | None = None,
    progress: bool | None = None,
) -> Examples:
    """Reads a finite dataset once and keeps its examples in memory.

    They can then be sampled by class, evaluated and indexed, in any order.
    After the first batch, the log (level INFO) and the progress bar report the
    total size. For more than fits into memory, write arrays to files, and use
    `ArraySet(numpy.load(path, mmap_mode="r"), labels)`.

    Args:
        dataset: A dataset of (x, y), batched or not. x is a tensor or a dict
            of tensors, of one shape; y is an integer or a string. A third
            item, the sample weight, is ignored. Or a `PyDataset` of these.
        names: Class names, see `ArraySet`.
        labeled: Whether elements have a y. Examples without one can be
            embedded and indexed.
        batched: Whether elements are batches; by default they are, unless y is
            a single number or string. Required if there is no y.
        progress: Whether to show progress; None shows it in a terminal.

    Returns:
        An `ImageSet` for uint8 pixels; otherwise an `ArraySet`.

    Raises:
        ValueError: If the dataset is empty, infinite, without y, has ragged
            elements, labels that are neither integers nor strings, or numbers
            that are not finite; if it ends with an error, or earlier than its
            cardinality; or if there is not enough memory.
    """
    reader = _reader(dataset, labeled, batched)
    parts = list(_batches(reader, progress))
    columns = {
        name: np.concatenate([part[name] for part in parts])
        for name in parts[0]
    }
    about = reader.about(names)
    x = columns.get("", columns)
    return as_examples((x,), "dataset", _OWNER).with_labels(
        about.labels, about.names
    )


def _reader(dataset: Any, labeled: bool, batched: bool | None) -> DatasetReader:
    if isinstance(dataset, keras.utils.PyDataset):
        dataset, batched = of_batches(dataset, "dataset", _OWNER), True
    if not is_dataset(dataset):
        raise ValueError(
            f"`dataset` of {_OWNER} must be a tf.data.Dataset. Received: "
            f"{type(dataset).__name__}. For arrays, use ArraySet(x, y)."
        )
    if batched is None and not labeled:
        raise ValueError(
            f"`batched` of {_OWNER} must state whether elements are batches "
            "if there is no y. Received: labeled=False, batched=None."
        )
    reader = DatasetReader(dataset, "dataset", _OWNER, _BATCH_SIZE, batched)
    if reader.is_labeled != labeled:
        form = "(x, y)" if labeled else "x alone"
        way_out = (
            "Use labeled=False if there are no labels; for records, use "
            "dataset.map(lambda r: (r['image'], r['label'])) or, with "
            "tfds.load, as_supervised=True."
            if labeled
            else "Use dataset.map(lambda x, y: x), or omit it."
        )
        raise ValueError(
            f"`dataset` of {_OWNER} must have elements {form} with labeled="
            f"{labeled}. Received: {dataset.element_spec}. {way_out}"
        )
    for tensor in _columns(reader.spec).values():
        if not hasattr(tensor, "shape"):
            raise ValueError(
                f"`dataset` of {_OWNER} must have an x that is a tensor or a "
                f"dict of tensors. Received: {reader.spec}."
            )
    return reader


def _batches(reader: DatasetReader, progress: bool | None) -> Iterator[Columns]:
    """Checked batches of columns, whose total size the first one shows."""
    batches = _checked_batches(reader)
    first = next(batches)
    read = _size(first)
    total = read * (reader.count or 1)
    bound = "at most" if reader.count else "at least"
    _check_room(total)
    size = f"{bound} {megabytes(total)}"
    logger.info("Reading examples into memory: %s.", size)
    yield first
    rest = reader.count and reader.count - 1
    for batch in with_progress(batches, rest, f"Reading {size}", progress):
        read += _size(batch)
        if read > total:
            _check_room(read)
        yield batch


def _size(batch: Columns) -> int:
    return sum(
        sum(map(len, array.flat)) if is_text(array.dtype) else array.nbytes
        for array in batch.values()
    )


def _check_room(size: int) -> None:
    free = available_memory()
    if size > free:
        raise ValueError(
            f"`dataset` of {_OWNER} must fit into memory. Received: "
            f"{megabytes(size)} of examples, with {megabytes(free)} free. "
            "Write arrays to files, and use ArraySet(numpy.load(path, "
            'mmap_mode="r"), labels).'
        )


def _checked_batches(reader: DatasetReader) -> Iterator[Columns]:
    start, shapes = 0, None
    for x in reader:
        columns = {name: value.numpy() for name, value in _columns(x).items()}
        new_shapes = {name: array.shape[1:] for name, array in columns.items()}
        shapes = shapes or new_shapes
        if new_shapes != shapes:
            raise ValueError(
                f"`dataset` of {_OWNER} must have elements of one shape. "
                f"Received: {shapes} and {new_shapes}. Pass the "
                "`padded_shapes` of all examples to padded_batch."
            )
        rows = start + np.arange(len(next(iter(columns.values()))))
        for name, array in columns.items():
            input_name = f"x[{name!r}]" if name else "x"
            check_finite(array, f"{input_name} in `dataset`", rows, _OWNER)
        start += len(rows)
        yield columns


def _columns(x: Any) -> dict[str, Any]:
    return dict(x) if isinstance(x, dict) else {"": x}


class DatasetReader:
    """Reads batches of a finite dataset and keeps their labels.

    Elements are x, (x, y) or (x, y, sample_weight), as for `fit`, batched or
    not. If `batched` is None, they are single examples if y is a number, or a
    vector of booleans, or if x has the shape that the model takes for one.
    Others are batched by `batch_size`. The attribute `spec` is that of x,
    batched, and `count` the number of batches, or None if unknown.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        name: str,
        owner: str,
        batch_size: int,
        batched: bool | None = None,
        model: Any = None,
    ) -> None:
        self._name, self._owner = name, owner
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError(
                f"`{name}` of {owner} must be finite. Received: a dataset "
                f"that repeats without end. Use {name}.take(n), or remove "
                "its repeat()."
            )
        x, y = self._split(dataset.element_spec)
        self._check_specs(x if y is None else (x, y))
        if batched is None:
            batched = _are_batches(x, y, model)
        self.dataset = dataset if batched else dataset.batch(batch_size)
        self.spec, y = self._split(self.dataset.element_spec)
        self.is_labeled = y is not None
        if self.is_labeled:
            self._check_labels(y)
        count = int(self.dataset.cardinality())
        self.count = None if count < 0 else count
        self._labels: list[Any] = []

    def _split(self, element: Any) -> tuple[Any, Any]:
        items = element if isinstance(element, tuple) else (element,)
        return x_and_y(items, self._name, self._owner)

    def _check_specs(self, specs: Any) -> None:
        for spec in tf.nest.flatten(specs):
            if not isinstance(spec, tf.TensorSpec):
                raise ValueError(
                    f"`{self._name}` of {self._owner} must have elements of "
                    f"one shape. Received: {spec}. Make ragged tensors dense "
                    "with to_tensor(shape=…)."
                )
            if spec.shape.rank is None:
                raise ValueError(
                    f"`{self._name}` of {self._owner} must have elements of "
                    f"known rank. Received: {spec}. Pass an "
                    "`output_signature` with shapes to from_generator."
                )

    def _check_labels(self, y: tf.TensorSpec) -> None:
        rank, last = y.shape.rank, y.shape[-1]
        if y.dtype == tf.bool and rank == 2:  # Several labels per example.
            return
        if rank != 1 and (rank != 2 or last not in (None, 1)):
            raise ValueError(
                f"y in `{self._name}` of {self._owner} must be one label per "
                f"example. Received: {y}. Convert one-hot labels to integers "
                "with tf.argmax(y, -1), and several labels per example "
                "to booleans with tf.cast(y, tf.bool)."
            )
        if not (y.dtype.is_integer or y.dtype == tf.string):
            raise ValueError(
                f"y in `{self._name}` of {self._owner} must be integers or "
                f"strings. Received: {y}. Convert whole numbers to integers "
                "with tf.cast(y, tf.int64)."
            )

    def __iter__(self) -> Iterator[Inputs]:
        """Batches of x, at least one."""
        self._labels = []
        number = 0
        for number, element in enumerate(self._elements(), start=1):
            x, y = self._split(element)
            arrays = tf.nest.flatten(x if y is None else (x, y))
            counts = [len(array) for array in arrays]
            if len(set(counts)) > 1:
                raise ValueError(
                    f"`{self._name}` of {self._owner} must have one label per "
                    "example in each batch, and the same number of rows in "
                    f"each input. Received: {counts} rows of x and y in batch "
                    f"{number}. Check how it creates y."
                )
            if y is not None:
                self._labels.append(y.numpy())
            yield x
        if self.count is not None and number < self.count:
            raise ValueError(
                f"`{self._name}` of {self._owner} must have as many elements "
                f"as its cardinality, {self.count:,}. Received: {number:,}. "
                "Check what it reads, and its assert_cardinality()."
            )
        if not number:
            raise ValueError(
                f"`{self._name}` of {self._owner} must not be empty. Received: "
                "a dataset without elements. Check its filter, and whether its "
                "generator can be started twice."
            )

    def _elements(self) -> Iterator[Any]:
        """Elements; failures inside the dataset raise `ValueError`."""
        try:
            yield from self.dataset
        except tf.errors.OpError as error:
            if any(text in error.message for text in _UNEQUAL):
                raise ValueError(
                    f"`{self._name}` of {self._owner} must have elements of "
                    f"one shape. Received: {self.dataset.element_spec}, with "
                    "rows of different shapes. Resize or pad them in its map()."
                ) from error
            # TensorFlow adds nodes and stacks to the message.
            reason = re.sub(r"\{\{.*?\}\}\s*", "", error.message)
            reason = reason.partition("\nTraceback ")[0].partition(" [Op:")[0]
            raise ValueError(
                f"`{self._name}` of {self._owner} must be readable to its "
                f"end. Received: {type(error).__name__}: "
                f"{reason.strip().removesuffix('.')}. "
                "`for element in dataset: pass` fails as well: check what "
                "the dataset reads, and its assert_cardinality()."
            ) from error

    def about(self, names: Names | None = None) -> About:
        labels = np.concatenate(self._labels) if self.is_labeled else None
        return About.of(labels, names, None, self._owner)


def _are_batches(x: Any, y: Any, model: Any) -> bool:
    """Whether elements with these specs are batches, not single examples."""
    if y is not None and y.shape.rank == (1 if y.dtype == tf.bool else 0):
        return False
    shape = getattr(model, "input_shape", None)
    if not isinstance(shape, tuple) or not isinstance(x, tf.TensorSpec):
        return True
    return tuple(x.shape) != shape[1:]


def of_batches(
    source: keras.utils.PyDataset, name: str, owner: str
) -> tf.data.Dataset:
    """The batches of a `PyDataset`, in their order, as a `tf.data` dataset."""
    try:
        count = len(source)
    except (NotImplementedError, TypeError):
        count = None
    if not count:
        raise ValueError(
            f"`{name}` of {owner} must be finite and not empty. Received: a "
            f"{type(source).__name__} of length {count}. Implement `__len__`, "
            "the number of batches."
        )

    def batch(number: int) -> Any:
        # A missing y or sample weight is None.
        parts = source[number]
        if isinstance(parts, list | tuple):
            parts = tuple(x for x in parts if x is not None)
        return tf.nest.map_structure(np.asarray, parts)

    spec = tf.nest.map_structure(
        lambda x: tf.TensorSpec((None, *x.shape[1:]), tf.as_dtype(x.dtype)),
        batch(0),
    )
    batches = tf.data.Dataset.from_generator(
        lambda: map(batch, range(count)), output_signature=spec
    )
    return batches.apply(tf.data.experimental.assert_cardinality(count))


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
            f"`source` of {_SOURCE} must have a length and numbered records. "
            f"Received: {type(source).__name__}. For a dict of splits, select "
            'one: source["train"]; for a stream, use from_dataset.'
        )
    count = len(source)
    if not count:
        raise ValueError(
            f"`source` of {_SOURCE} must not be empty. Received: a "
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
            # Hugging Face returns a column without decoding images.
            labels = list(source[label])
            if names is None:
                names = getattr(features[label], "names", None)
        else:
            rows = with_progress(range(count), count, "Labels", progress)
            labels = [_value(source[row], label) for row in rows]
    about = About.of(labels, names, None, _SOURCE)
    return ArraySet(columns, about.labels, about.names)


def _value(record: Any, field: Field) -> Any:
    if callable(field):
        return field(record)
    try:
        return record[field]
    except (KeyError, IndexError, TypeError) as error:
        keys = list(record) if isinstance(record, Mapping) else None
        has = f"keys {keys}" if keys else f"a {type(record).__name__}"
        raise ValueError(
            f"Records of {_SOURCE} must have the field {field!r}. Received: "
            f"{has}.{did_you_mean(field, keys or ())} For anything else, use "
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
        for i, record in enumerate(records):
            value = _as_array(_value(record, self._field))
            are_pixels = self.dtype == np.uint8 and len(self.shape) == 4
            in_color = are_pixels and self.shape[-1] == 3
            if in_color and value.shape == (*self.shape[1:-1], 1):
                # Gray images become RGB, like those of `image_folder`.
                value = np.broadcast_to(value, self.shape[1:])
            # A cast would truncate floats, and wrap large integers around.
            is_float = value.dtype.kind == self.dtype.kind == "f"
            if not is_float and not np.can_cast(value.dtype, self.dtype):
                raise ValueError(
                    f"{self._name} of {_SOURCE} must have one type. Received: "
                    f"{self.dtype} in row 0 and {value.dtype} in row "
                    f"{rows[i]}. Use a function of the record that "
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
                    f"{self._name} of {_SOURCE} must have one shape. Received: "
                    f"{self.shape[1:]} in row 0 and {value.shape} in row "
                    f"{rows[i]}. Use a function of the record that "
                    f"{way_out}"
                )
            values[i] = value
        return values


def _as_array(value: Any) -> Array:
    from PIL.Image import Image

    if isinstance(value, Image):
        return pixels_of(value)
    if isinstance(value, str | bytes):
        return np.array(value, object)
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"`x` of {_SOURCE} must be numbers in rows of equal length, or "
            f"texts. Received: {error}. Use a function of the record that "
            "pads it."
        ) from error
