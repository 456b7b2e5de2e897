"""Images as the model sees them, to be drawn."""

from typing import Any

import numpy as np

from keras_dml.data.fields import Pixels
from keras_dml.utils.types import Rows


def seen(images: Any, rows: Rows, view: Any) -> Pixels:
    """A `View` of some rows of an `ImageSet`, (n, H, W, C) uint8."""
    from keras_dml.data import eval_batches

    batches = eval_batches(images.select(np.asarray(rows, np.int64)), view)
    pixels = np.concatenate([batch.numpy() for batch in batches])
    return np.rint(pixels).clip(0, 255).astype(np.uint8)


def class_name(images: Any, row: int, longest: int = 18) -> str:
    """The name of an image's class, short; its label if it has none."""
    label = int(images.labels[row])
    return short_name(images.names.get(label, str(label)), longest)


def short_name(name: str, longest: int = 18) -> str:
    """A name to be drawn, cut if it is long."""
    if len(name) > longest:
        name = name[: longest - 1] + "…"
    # Between dollars, matplotlib would read mathematics.
    return name.replace("$", r"\$")
