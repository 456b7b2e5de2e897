"""Examples as users pass them: sets, arrays, and pairs (x, y)."""

from typing import Any

import keras
import numpy as np

from keras_dml.data.arrayset import ArraySet
from keras_dml.data.examples import Examples
from keras_dml.data.imageset import ImageSet
from keras_dml.data.relations import Relations
from keras_dml.utils.lazy_rows import ArrayRows


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
    if getattr(x, "dtype", None) == np.uint8 and (
        len(x.shape) == 3 or (len(x.shape) == 4 and x.shape[3] in (1, 3))
    ):
        return ImageSet(x, y)
    return ArraySet(x, y)


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


def same_array(a: Any, b: Any) -> bool:
    """Whether two values are the same array, or the same view of its memory."""
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return a is b
    first, second = (
        (x.__array_interface__["data"][0], x.shape, x.strides, x.dtype)
        for x in (a, b)
    )
    return first == second
