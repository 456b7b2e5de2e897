"""Requests for a served model, from images."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_dml.data import View
from keras_dml.export.signatures import PIXELS, Served
from keras_dml.utils.types import Tensor

Batch = npt.NDArray[np.uint8]
"""Images of one size, (B, H, W, C)."""


def generated_batches(view: View) -> list[Batch]:
    """Two images each of the view's size, of a smaller and a larger one."""
    # Coarse blocks, because fine noise averages out to gray in the view.
    blocks = np.random.default_rng(0).integers(
        256, size=(2, 5, 5, view.channels), dtype=np.uint8
    )
    batches = []
    h, w = view.size
    for height, width in ((h, w), (h // 2 + 1, w // 3 + 1), (2 * h + 1, 3 * w)):
        rows = np.arange(height) * 5 // height
        columns = np.arange(width) * 5 // width
        batches.append(blocks[:, rows][:, :, columns])
    return batches


def given_batches(
    images: Sequence[npt.NDArray[np.uint8]], view: View
) -> list[Batch]:
    """A batch for each image of `check`, which must be as the model's are."""
    for i, image in enumerate(images):
        fits = image.ndim == 3 and image.shape[-1] == view.channels
        if not (fits and image.dtype == np.uint8):
            raise ValueError(
                "`check` of export must hold uint8 images of shape "
                f"(H, W, {view.channels}). Received: check[{i}] with "
                f"shape={image.shape}, dtype={image.dtype}."
            )
    return [image[None] for image in images]


def requests(
    served: Served, name: str, batches: Sequence[Batch]
) -> Iterator[tuple[Tensor, Tensor]]:
    """What a signature takes, and the views that the model sees of it."""
    view = served.view
    if name != PIXELS:
        files = [tf.io.encode_png(image) for x in batches for image in x]
        yield tf.stack(files), tf.concat([view.apply(x) for x in batches], 0)
        return
    for batch in batches:
        yield tf.cast(batch, served.input_dtype), view.apply(batch)
