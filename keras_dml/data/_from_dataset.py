"""`from_dataset`: a `tf.data` dataset, read once, as a set of examples."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_dml.data.caching import available_memory, megabytes
from keras_dml.data.coercion import as_examples
from keras_dml.data.examples import Examples
from keras_dml.data.reading import DatasetReader, of_batches
from keras_dml.data.validation import Array, Names, check_finite, is_text
from keras_dml.utils.arguments import checked
from keras_dml.utils.progress import tracked
from keras_dml.utils.tensorflow import is_dataset, tf

logger = logging.getLogger(__name__)

_OWNER = "from_dataset"

_BATCH = 256
"""Number of examples that are read at a time, if there are no batches."""

Columns: TypeAlias = dict[str, Array]


@checked
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
    reader = DatasetReader(dataset, "dataset", _OWNER, _BATCH, batched)
    if reader.is_labeled != labeled:
        form, way_out = (
            "x alone",
            "Use dataset.map(lambda x, y: x), or omit it.",
        )
        if labeled:
            form = "(x, y)"
            way_out = (
                "Use labeled=False if there are no labels; for records, use "
                "dataset.map(lambda r: (r['image'], r['label'])) or, with "
                "tfds.load, as_supervised=True."
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


def _columns(x: Any) -> dict[str, Any]:
    """Tensors, or their specs, by the names of the model's inputs."""
    return dict(x) if isinstance(x, dict) else {"": x}


def _batches(reader: DatasetReader, progress: bool | None) -> Iterator[Columns]:
    """Checked batches of columns; the first one gives the total size."""
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
    for batch in tracked(batches, rest, f"Reading {size}", progress):
        read += _size(batch)
        if read > total:
            _check_room(read)
        yield batch


def _size(batch: Columns) -> int:
    """Size of a batch in bytes; of strings, the characters count."""
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
