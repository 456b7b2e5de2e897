"""Contents: the bytes of examples, for digests that tell them apart."""

from collections.abc import Iterator

import keras
import numpy as np

from keras_dml.data.examples import Examples
from keras_dml.utils.vectors import blocks

_ROWS = 1024


def contents(examples: Examples) -> Iterator[bytes]:
    """The inputs of examples, a part of them in memory at a time."""
    for rows in blocks(len(examples), _ROWS):
        inputs = examples.inputs(np.arange(rows.start, rows.stop))
        for path, array in keras.tree.flatten_with_path(inputs):
            yield f"{path}{array.dtype.str}{array.shape}".encode()
            yield (
                repr(array.tolist()).encode()
                if array.dtype.hasobject
                else array.tobytes()
            )
