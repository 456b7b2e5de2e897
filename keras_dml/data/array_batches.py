"""Batches of arrays in tf.data: NumPy reads the rows, one batch at a time."""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_dml.data.augmentations import changed, seeded
from keras_dml.data.columns import is_text
from keras_dml.data.examples import WHOLE, Examples, Inputs, Planned
from keras_dml.data.image_batches import VIEWS, Views
from keras_dml.data.planned import parts_of


def planned(examples: Examples) -> Planned:
    """A function that makes the batches of a planned epoch; see `Planned`."""
    return _planned(_Reader(examples))


def augmented(examples: Examples, views: Views) -> Planned:
    """Like `planned`, with one or two augmented views of every example.

    Raises:
        ValueError: If options for images are used, or two views that would be
            equal.
    """
    if views.augment is None:
        views.check_none(examples)
        return planned(examples)
    views.check_none(examples, "augment", "augment_by", "num_views")
    reader = _Reader(examples)
    change = seeded(views.augment, reader.example, views.augment_by)
    batches = _planned(reader)
    if views.num_views == 2:
        batches = twice(batches)

    def augmented_batches(
        rows: tf.Tensor, steps: tf.Tensor, part: slice
    ) -> tf.data.Dataset:
        # What changes a batch draws for all of it.
        x = batches(rows, steps, WHOLE)
        x = changed(x, change, views.num_views, views.seed, steps)
        return parts_of(x, part)

    return augmented_batches


def twice(batches: Planned) -> Planned:
    """Batches with two equal views of every example."""

    def both(rows: tf.Tensor, steps: tf.Tensor, part: slice) -> tf.data.Dataset:
        x = batches(rows, steps, part)
        return x.map(lambda x: dict.fromkeys(VIEWS, x))

    return both


def in_order(examples: Examples, batch_size: int) -> tf.data.Dataset:
    """All examples, in the order of the rows; the last batch may be short."""
    read = tf.autograph.experimental.do_not_convert(_Reader(examples))
    rows = tf.data.Dataset.range(len(examples)).batch(batch_size)
    return rows.map(read).prefetch(tf.data.AUTOTUNE)


def _planned(reader: "_Reader") -> Planned:
    read = tf.autograph.experimental.do_not_convert(reader)

    def batches(
        rows: tf.Tensor, steps: tf.Tensor, part: slice
    ) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(rows[:, part]).map(read)

    return batches


class _Reader:
    """Reads the inputs of rows, (B,), from inside a graph."""

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        # What one example is like says what all are.
        first = examples.inputs(np.arange(min(1, len(examples))))
        self._structure = first
        self._specs = [_spec(array) for array in tf.nest.flatten(first)]

    @property
    def example(self) -> Any:
        """The `tf.TensorSpec` of an example, or a dict of specs."""
        specs = [tf.TensorSpec(*spec) for spec in self._specs]
        return tf.nest.pack_sequence_as(self._structure, specs)

    def __call__(self, rows: tf.Tensor) -> Inputs:
        types = [dtype for _, dtype in self._specs]
        found = tf.numpy_function(self._read, [rows], types)
        for tensor, (shape, _) in zip(found, self._specs, strict=True):
            tensor.set_shape((rows.shape[0], *shape))
        return tf.nest.pack_sequence_as(self._structure, found)

    def _read(self, rows: Any) -> list[Any]:
        inputs = tf.nest.flatten(self._examples.inputs(rows))
        return [_as_bytes(x) for x in inputs]


def _spec(array: Any) -> tuple[tuple[int, ...], tf.DType]:
    dtype = tf.string if is_text(array.dtype) else tf.as_dtype(array.dtype)
    return array.shape[1:], dtype


def _as_bytes(array: Any) -> Any:
    """Strings in the form that TensorFlow takes; everything else unchanged."""
    if not is_text(array.dtype):
        return array
    texts = [x.encode() if isinstance(x, str) else x for x in array.flat]
    encoded = np.empty(array.size, object)
    encoded[:] = texts
    return encoded.reshape(array.shape)
