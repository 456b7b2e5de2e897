"""Examples as users pass them: sets, arrays, or pairs (x, y)."""

from typing import Any

import numpy as np

from keras_dml.data.arrayset import ArraySet
from keras_dml.data.examples import Examples
from keras_dml.data.imageset import ImageSet


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


def x_and_y(given: tuple[Any, ...], name: str, owner: str) -> tuple[Any, Any]:
    """x and y of Keras tuples: (x,), (x, y) or (x, y, sample_weight)."""
    if not 1 <= len(given) <= 3:
        raise ValueError(
            f"`{name}` of {owner}, if it is a tuple, must be (x, y). "
            "Received: "
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
