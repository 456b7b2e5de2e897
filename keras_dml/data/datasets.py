"""Datasets of `tf.data` that are not ours: checked, and read once."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dml.data.examples import About, Inputs
from keras_dml.data.fields import Names
from keras_dml.data.given import x_and_y

_UNEQUAL = (
    "Cannot batch tensors with different shapes",
    "Cannot add tensor to the batch",
)
"""What TensorFlow says of elements that make no batch."""


class DatasetReader:
    """Reads batches of a finite dataset, and keeps their labels.

    Elements are x, (x, y) or (x, y, sample_weight), as `fit` takes them, in
    batches or not.

    Args:
        dataset: The dataset.
        name: What errors call it: an argument of `owner`.
        owner: The function that it is of.
        batch_size: Examples in a batch, if it is not in batches.
        batched: Whether it is in batches; None: see `is_batched`.
        model: A model that takes x, which helps to tell.
        finite: Whether it must end.

    Attributes:
        dataset: The dataset, in batches.
        spec: Of x, in batches.
        count: Number of batches; None if it is not known.
        is_labeled: Whether elements have a y.
        has_integer_labels: Whether these are integers.

    Raises:
        ValueError: If the dataset is infinite and must not be, has elements
            that are ragged, or labels that cannot be.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        name: str,
        owner: str,
        batch_size: int,
        batched: bool | None = None,
        model: Any = None,
        finite: bool = True,
    ) -> None:
        self._name, self._owner = name, owner
        endless = dataset.cardinality() == tf.data.INFINITE_CARDINALITY
        if endless and finite:
            raise ValueError(
                f"`{name}` of {owner} must be finite. Received: a dataset "
                f"that repeats without end. Use {name}.take(n), or leave out "
                "its repeat()."
            )
        x, y = self._split(dataset.element_spec)
        self._check_specs(x)
        if y is not None:
            self._check_specs(y)
        if batched is None:
            batched = is_batched(x, y, model)
        if not batched:
            dataset = dataset.batch(batch_size)
        self.dataset = dataset
        self._check_labels()
        self.spec = self._split(dataset.element_spec)[0]
        count = int(dataset.cardinality())
        self.count = None if count < 0 else count
        self.is_labeled = y is not None
        self.has_integer_labels = self.is_labeled and y.dtype.is_integer
        self._labels: list[Any] = []

    def _split(self, element: Any) -> tuple[Any, Any]:
        given = element if isinstance(element, tuple) else (element,)
        return x_and_y(given, self._name, self._owner)

    def _check_specs(self, specs: Any) -> None:
        for spec in tf.nest.flatten(specs):
            if not isinstance(spec, tf.TensorSpec):
                raise ValueError(
                    f"`{self._name}` of {self._owner} must have elements of "
                    f"one shape. Received: {spec}. Ragged tensors become "
                    "dense by to_tensor(shape=…)."
                )
            if spec.shape.rank is None:
                raise ValueError(
                    f"`{self._name}` of {self._owner} must have elements of "
                    f"known rank. Received: {spec}. Give from_generator an "
                    "`output_signature` with shapes."
                )

    def _check_labels(self) -> None:
        """Refuses labels that cannot be, before any is read."""
        x, y = self._split(self.dataset.element_spec)
        if y is None:
            return
        rank, last = y.shape.rank, y.shape[-1]
        if y.dtype == tf.bool and rank == 2:  # Several labels an example.
            return
        is_vector = rank == 1 or (rank == 2 and last in (None, 1))
        if not is_vector:
            raise ValueError(
                f"y in `{self._name}` of {self._owner} must be one label for "
                f"each example. Received: {y}. One-hot labels become integers "
                "by tf.argmax(y, -1), and several labels per example "
                "booleans by tf.cast(y, tf.bool)."
            )
        if not (y.dtype.is_integer or y.dtype == tf.string):
            raise ValueError(
                f"y in `{self._name}` of {self._owner} must be integers or "
                f"strings. Received: {y}. Whole numbers become integers by "
                "tf.cast(y, tf.int64)."
            )

    def __iter__(self) -> Iterator[Inputs]:
        """Batches of x, of which there is at least one."""
        self._labels = []
        for x, y in self.pairs():
            if y is not None:
                self._labels.append(y)
            yield x

    def pairs(self) -> Iterator[tuple[Inputs, Any]]:
        """Batches of x and of labels: (B,), (B, 1), or booleans (B, C).

        None without labels.
        """
        done = 0
        for element in self._elements():
            x, y = self._split(element)
            done += 1
            given = x if y is None else (x, y)
            counts = [len(array) for array in tf.nest.flatten(given)]
            if len(set(counts)) > 1:
                raise ValueError(
                    f"`{self._name}` of {self._owner} must have as many "
                    "labels as examples in each batch, and as many rows of "
                    f"each input. Received: {counts} rows of x and y in batch "
                    f"{done}. Look at how it makes y."
                )
            yield x, None if y is None else y.numpy()
        if self.count is not None and done < self.count:
            raise ValueError(
                f"`{self._name}` of {self._owner} must have as many elements "
                f"as it says, {self.count:,}. Received: {done:,}. Look at what "
                "it reads, and at its assert_cardinality()."
            )
        if not done:
            raise ValueError(
                f"`{self._name}` of {self._owner} must not be empty. Received: "
                "a dataset without elements. Look at its filter, and whether "
                "its generator can be started twice."
            )

    def _elements(self) -> Iterator[Any]:
        """Elements; what fails inside of the dataset is a `ValueError`."""
        try:
            yield from self.dataset
        except tf.errors.OpError as error:
            if any(text in error.message for text in _UNEQUAL):
                raise ValueError(
                    f"`{self._name}` of {self._owner} must have elements of "
                    f"one shape. Received: {self.dataset.element_spec}, "
                    "whose rows differ. Resize or pad them by its map()."
                ) from error
            raise ValueError(
                f"`{self._name}` of {self._owner} must be readable to its "
                f"end. Received: {type(error).__name__}: {_brief(error)}. "
                "`for element in dataset: pass` fails as well: look at what "
                "the dataset reads, and at its assert_cardinality()."
            ) from error

    def about(self, names: Names | None = None) -> About:
        """Labels of what was read, and their names."""
        labels = np.concatenate(self._labels) if self.is_labeled else None
        return About.of(labels, names, None, self._owner)


def _brief(error: tf.errors.OpError) -> str:
    """What an error of TensorFlow says, without nodes and stacks."""
    message = re.sub(r"\{\{.*?\}\}\s*", "", error.message)
    message = message.partition("\nTraceback ")[0].partition(" [Op:")[0]
    return message.strip().removesuffix(".")


def is_batched(x: Any, y: Any, model: Any = None) -> bool:
    """Whether elements with these specs are batches, not examples.

    A label is a number: where y is one, elements are examples; and so they
    are where it is a vector of booleans, one for each label. Elements
    whose x has the shape that the model takes of one example are too.
    """
    if y is not None and y.shape.rank == (1 if y.dtype == tf.bool else 0):
        return False
    shape = getattr(model, "input_shape", None)
    if not isinstance(shape, tuple) or not isinstance(x, tf.TensorSpec):
        return True
    return tuple(x.shape) != shape[1:]
