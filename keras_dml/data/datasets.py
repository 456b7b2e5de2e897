"""Datasets of `tf.data` that are not ours: checked, and read once."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dml.data.examples import About, Inputs
from keras_dml.data.given import x_and_y


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

    Attributes:
        dataset: The dataset, in batches.
        spec: Of x, in batches.
        count: Number of batches; None if it is not known.

    Raises:
        ValueError: If the dataset is infinite or has ragged elements.
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
        self.spec = self._split(dataset.element_spec)[0]
        count = int(dataset.cardinality())
        self.count = None if count < 0 else count
        self.is_labeled = y is not None
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

    def __iter__(self) -> Iterator[Inputs]:
        """Batches of x, of which there is at least one."""
        self._labels = []
        is_empty = True
        for element in self.dataset:
            x, y = self._split(element)
            if y is not None:
                self._labels.append(y.numpy())
            is_empty = False
            yield x
        if is_empty:
            raise ValueError(
                f"`{self._name}` of {self._owner} must not be empty. Received: "
                "a dataset without elements. Look at its filter, and whether "
                "its generator can be started twice."
            )

    @property
    def about(self) -> About:
        """Labels of what was read, and names if they are strings."""
        labels = np.concatenate(self._labels) if self.is_labeled else None
        return About.of(labels, None, None, self._owner)


def is_batched(x: Any, y: Any, model: Any = None) -> bool:
    """Whether elements with these specs are batches, not examples.

    A label is a number: where y is one, elements are examples. Elements
    whose x has the shape that the model takes of one example are too.
    """
    if y is not None and not y.shape.rank:
        return False
    shape = getattr(model, "input_shape", None)
    if not isinstance(shape, tuple) or not isinstance(x, tf.TensorSpec):
        return True
    return tuple(x.shape) != shape[1:]
