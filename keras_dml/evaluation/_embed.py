"""Embeddings of a set of images by a model."""

from typing import Any

import keras
import numpy as np

from keras_dml.data import ImageSet, View, eval_batches
from keras_dml.utils.progress import tracked
from keras_dml.utils.types import FloatArray


def embed(
    model: keras.Model,
    images: ImageSet,
    batch_size: int = 256,
    progress: bool | None = None,
) -> FloatArray:
    """Embeds all images in their test view.

    Training goes on undisturbed: no metric is reset, no callback called.

    Args:
        model: From images, (B, H, W, C), pixels in 0 to 255, to
            embeddings, (B, D).
        images: N images.
        batch_size: Images embedded at a time.
        progress: Whether to show progress; None shows it in a terminal.

    Returns:
        (N, D) float32, in the order of the rows.

    Raises:
        ValueError: If there are no images, or the model's output is not
            one embedding for each image.
    """
    if not len(images):
        raise ValueError(
            "`images` of embed must not be empty. Received: 0 images."
        )
    batches = eval_batches(images, View.of(model), batch_size)
    count = -(-len(images) // batch_size)
    return np.concatenate(
        [
            _checked_output(model.predict_on_batch(batch), len(batch))
            for batch in tracked(batches, count, "Embedding", progress)
        ]
    )


def _checked_output(output: Any, count: int) -> FloatArray:
    shape = getattr(output, "shape", None)
    if shape is None or len(shape) != 2 or shape[0] != count:
        received = type(output).__name__ if shape is None else shape
        raise ValueError(
            "`model` of embed must return one embedding for each image, "
            f"(B, D). Received: {received} for a batch of {count}. Use a "
            "model whose only output is the embedding, such as "
            "`keras.Model(model.input, embedding)`."
        )
    return np.asarray(output, np.float32)
