"""Finding the examples that cannot be read, and why."""

import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dml.data import Examples, ImageSet
from keras_dml.data.loading import Loader, parallel, raise_unreadable


def unreadable(examples: Examples, model: keras.Model | None) -> dict[int, str]:
    """The examples of a set that cannot be read.

    Args:
        examples: The set; each of its examples is read.
        model: The model that it is read for.

    Returns:
        Error messages by row.
    """
    if not isinstance(examples, ImageSet):
        return _one_by_one(examples)
    if examples.paths is None or model is None:
        return {}
    found = {}
    for row in _undecoded(examples, examples.view_for(model)):
        box = None if examples.boxes is None else examples.boxes[row]
        try:
            raise_unreadable(os.fsencode(examples.paths[row]), box)
        except (ValueError, OSError) as error:
            found[row] = str(error)
    return found


def _undecoded(images: ImageSet, view: Any) -> list[int]:
    """Rows of files that cannot be decoded."""
    loader = Loader(images)

    def load(row: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([view.cut(loader.image(row))]):
            return tf.identity(row)

    decoded = parallel(tf.data.Dataset.range(len(images)), load)
    rows = [int(x) for x in decoded.ignore_errors().as_numpy_iterator()]
    return np.setdiff1d(np.arange(len(images)), rows).tolist()


def _one_by_one(examples: Examples) -> dict[int, str]:
    found = {}
    for row in range(len(examples)):
        try:
            examples.inputs([row])
        except (ValueError, OSError) as error:
            found[row] = str(error)
    return found
