"""Examples as users pass them: sets, arrays, pairs (x, y), and datasets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_dml.data.arrayset import ArraySet, same_array
from keras_dml.data.examples import About, Examples, Inputs
from keras_dml.data.fields import Names
from keras_dml.data.imageset import ImageSet
from keras_dml.data.relations import Relations
from keras_dml.utils.lazy_rows import ArrayRows
from keras_dml.utils.tensorflow import tf

_UNEQUAL = (
    "Cannot batch tensors with different shapes",
    "Cannot add tensor to the batch",
)
"""TensorFlow's errors for elements that cannot form a batch."""


def as_examples(given: Any, name: str, owner: str) -> Examples:
    """The examples that the argument `name` of `owner` stands for.

    Args:
        given: A set; or arrays x, alone or as `(x, y)`: uint8 pixels become an
            `ImageSet`, everything else an `ArraySet`.
        name: The argument.
        owner: The function or class with that argument.

    Raises:
        ValueError: If it is something else, or does not form a set.
    """
    if isinstance(given, Examples):
        return given
    if isinstance(given, str | bytes) or not hasattr(given, "__len__"):
        raise ValueError(
            f"`{name}` of {owner} must be an ImageSet, an ArraySet, arrays "
            "(x, y) or a finite tf.data.Dataset. Received: "
            f"{name}={given!r:.80}. Use, for example, ArraySet(x, labels)."
        )
    if isinstance(given, Relations):
        raise ValueError(
            f"`{name}` of {owner} must be examples with labels, not relations. "
            f"Received: {given!r}. Use its `examples`, with labels by "
            "examples.with_labels(labels)."
        )
    if isinstance(given, keras.utils.PyDataset) or hasattr(
        given, "element_spec"
    ):
        raise ValueError(
            f"`{name}` of {owner} must be examples that can be read in any "
            f"order. Received: a {type(given).__name__}. Use "
            "keras_dml.data.from_dataset(dataset), which reads it once."
        )
    x, y = given, None
    if isinstance(given, tuple):
        x, y = x_and_y(given, name, owner)
    if isinstance(x, Examples):
        raise ValueError(
            f"`{name}` of {owner} must be only a set, which has labels, or "
            f"arrays (x, y). Received: ({x!r}, …). Use {name}=x."
        )
    kind = ImageSet if _is_pixels(x) else ArraySet
    return kind(x, y)


def same_examples(a: Any, b: Any) -> bool:
    """Whether two values are the same examples, row by row.

    They are if they are the same object, the same files, or the same array.
    """
    if isinstance(a, ImageSet) and isinstance(b, ImageSet):
        boxes, others = np.asarray(a.boxes), np.asarray(b.boxes)  # None, too
        same = a.paths == b.paths and np.array_equal(boxes, others)
        return same and (bool(a.paths) or same_array(a.images, b.images))
    if isinstance(a, ArraySet) and isinstance(b, ArraySet):
        return set(a.columns) == set(b.columns) and all(
            x is y
            or (
                isinstance(x, ArrayRows)
                and isinstance(y, ArrayRows)
                and same_array(x.source, y.source)
            )
            for x, y in ((x, b.columns[k]) for k, x in a.columns.items())
        )
    return same_array(a, b)


def x_and_y(given: tuple[Any, ...], name: str, owner: str) -> tuple[Any, Any]:
    """x and y of Keras tuples: (x,), (x, y) or (x, y, sample_weight)."""
    if not 1 <= len(given) <= 3:
        raise ValueError(
            f"`{name}` of {owner}, if it is a tuple, must be (x, y). Received: "
            f"{len(given)} items."
        )
    x, y = (*given, None)[:2]
    if isinstance(y, dict):
        if "label" not in y:
            raise ValueError(
                f'`{name}` of {owner}, if y is a dict, must contain "label". '
                f"Received: {sorted(y)}."
            )
        y = y["label"]
    return x, y


def _is_pixels(x: Any) -> bool:
    if getattr(x, "dtype", None) != np.uint8:
        return False
    return len(x.shape) == 3 or (len(x.shape) == 4 and x.shape[3] in (1, 3))


class DatasetReader:
    """Reads batches of a finite dataset and keeps their labels.

    Elements are x, (x, y) or (x, y, sample_weight), as for `fit`, batched or
    not: see `is_batched` if `batched` is None. What is not batched becomes
    batches of `batch_size`. In errors it is the argument `name` of `owner`.

    Attributes:
        dataset: The dataset, batched.
        spec: Spec of x, batched.
        count: Number of batches; None if unknown.
        is_labeled: Whether elements have a y.
        has_integer_labels: Whether the labels are integers.

    Raises:
        ValueError: If the dataset is infinite but must be finite, or has
            ragged elements or invalid labels.
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
                f"that repeats without end. Use {name}.take(n), or remove "
                "its repeat()."
            )
        x, y = self._split(dataset.element_spec)
        self._check_specs(x if y is None else (x, y))
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
                    f"one shape. Received: {spec}. Make ragged tensors dense "
                    "with to_tensor(shape=…)."
                )
            if spec.shape.rank is None:
                raise ValueError(
                    f"`{self._name}` of {self._owner} must have elements of "
                    f"known rank. Received: {spec}. Pass an "
                    "`output_signature` with shapes to from_generator."
                )

    def _check_labels(self) -> None:
        """Rejects invalid labels before any are read."""
        x, y = self._split(self.dataset.element_spec)
        if y is None:
            return
        rank, last = y.shape.rank, y.shape[-1]
        if y.dtype == tf.bool and rank == 2:  # Several labels an example.
            return
        is_vector = rank == 1 or (rank == 2 and last in (None, 1))
        if not is_vector:
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
        for x, y in self.pairs():
            if y is not None:
                self._labels.append(y)
            yield x

    def pairs(self) -> Iterator[tuple[Inputs, Any]]:
        """Batches of x and of labels: (B,), (B, 1), or booleans (B, C).

        Labels are None if there are none.
        """
        done = 0
        for element in self._elements():
            x, y = self._split(element)
            done += 1
            given = x if y is None else (x, y)
            counts = [len(array) for array in tf.nest.flatten(given)]
            if len(set(counts)) > 1:
                raise ValueError(
                    f"`{self._name}` of {self._owner} must have one label per "
                    "example in each batch, and the same number of rows in "
                    f"each input. Received: {counts} rows of x and y in batch "
                    f"{done}. Check how it creates y."
                )
            yield x, None if y is None else y.numpy()
        if self.count is not None and done < self.count:
            raise ValueError(
                f"`{self._name}` of {self._owner} must have as many elements "
                f"as its cardinality, {self.count:,}. Received: {done:,}. "
                "Check what it reads, and its assert_cardinality()."
            )
        if not done:
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
            raise ValueError(
                f"`{self._name}` of {self._owner} must be readable to its "
                f"end. Received: {type(error).__name__}: {_brief(error)}. "
                "`for element in dataset: pass` fails as well: check what "
                "the dataset reads, and its assert_cardinality()."
            ) from error

    def about(self, names: Names | None = None) -> About:
        """The labels that were read, and their names."""
        labels = np.concatenate(self._labels) if self.is_labeled else None
        return About.of(labels, names, None, self._owner)


def _brief(error: tf.errors.OpError) -> str:
    """The message of a TensorFlow error, without nodes and stacks."""
    message = re.sub(r"\{\{.*?\}\}\s*", "", error.message)
    message = message.partition("\nTraceback ")[0].partition(" [Op:")[0]
    return message.strip().removesuffix(".")


def of_batches(
    given: keras.utils.PyDataset, name: str, owner: str
) -> tf.data.Dataset:
    """The batches of a `PyDataset`, in their order, as a `tf.data` dataset.

    Raises:
        ValueError: If it, the argument `name` of `owner`, has no length, or
            no batches.
    """
    try:
        count = len(given)
    except (NotImplementedError, TypeError):
        count = None
    if not count:
        raise ValueError(
            f"`{name}` of {owner} must be finite and not empty. Received: a "
            f"{type(given).__name__} of length {count}. Implement `__len__`, "
            "the number of batches."
        )

    def batch(number: int) -> Any:
        # A missing y or sample weight is None.
        parts = given[number]
        if isinstance(parts, list | tuple):
            parts = tuple(x for x in parts if x is not None)
        return tf.nest.map_structure(np.asarray, parts)

    spec = tf.nest.map_structure(
        lambda x: tf.TensorSpec((None, *x.shape[1:]), tf.as_dtype(x.dtype)),
        batch(0),
    )
    found = tf.data.Dataset.from_generator(
        lambda: map(batch, range(count)), output_signature=spec
    )
    return found.apply(tf.data.experimental.assert_cardinality(count))


def is_batched(x: Any, y: Any, model: Any = None) -> bool:
    """Whether elements with these specs are batches, not single examples.

    A label is a number, so elements are single examples if y is a number, or a
    vector of booleans, one per label. They are also single examples if x has
    the shape that the model takes for one example.
    """
    if y is not None and y.shape.rank == (1 if y.dtype == tf.bool else 0):
        return False
    shape = getattr(model, "input_shape", None)
    if not isinstance(shape, tuple) or not isinstance(x, tf.TensorSpec):
        return True
    return tuple(x.shape) != shape[1:]
