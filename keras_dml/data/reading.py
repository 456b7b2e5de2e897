"""Reading: batches of `tf.data` datasets, and of what becomes one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_dml.data.coercion import x_and_y
from keras_dml.data.examples import About, Inputs
from keras_dml.data.validation import Names
from keras_dml.utils.tensorflow import tf

_UNEQUAL = (
    "Cannot batch tensors with different shapes",
    "Cannot add tensor to the batch",
)
"""TensorFlow's errors for elements that cannot form a batch."""


class DatasetReader:
    """Reads batches of a finite dataset and keeps their labels.

    Elements are x, (x, y) or (x, y, sample_weight), as for `fit`, batched or
    not. What is not batched becomes batches of `batch_size`. If `batched` is
    None, elements are single examples if y is a number, or a vector of
    booleans, or if x has the shape that the model takes for one example. In
    errors it is the argument `name` of `owner`.

    Attributes:
        dataset: The dataset, batched.
        spec: Spec of x, batched.
        count: Number of batches; None if unknown.
        is_labeled: Whether elements have a y.

    Raises:
        ValueError: If the dataset is infinite, or has ragged elements or
            invalid labels.
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
        """Rejects invalid labels before any are read."""
        rank, last = y.shape.rank, y.shape[-1]
        if y.dtype == tf.bool and rank == 2:  # Several labels an example.
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
            counts = [
                len(array)
                for array in tf.nest.flatten(x if y is None else (x, y))
            ]
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
        """The labels that were read, and their names."""
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
    """The batches of a `PyDataset`, in their order, as a `tf.data` dataset.

    Raises:
        ValueError: If it, the argument `name` of `owner`, has no length, or
            no batches.
    """
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
