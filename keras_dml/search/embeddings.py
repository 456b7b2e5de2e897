"""From what a user has to embeddings."""

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data import ImageSet
from keras_dml.evaluation import embed
from keras_dml.utils.types import FloatArray

Path: TypeAlias = str | os.PathLike[str]

Images: TypeAlias = ImageSet | Path | Sequence[Path] | npt.NDArray[np.uint8]
"""A set, one or several files, or uint8 pixels (H, W), (H, W, C) or
(B, H, W, C), C being 1 or 3."""


def as_image_set(x: Any) -> ImageSet | None:
    """A set of the images that `x` is; None if it is not images.

    Images that are no set have no labels; theirs in the set mean nothing.
    """
    if isinstance(x, ImageSet):
        return x
    if isinstance(x, np.ndarray) and x.dtype != np.uint8:
        return None
    if isinstance(x, str | os.PathLike):
        x = [x]
    if isinstance(x, list | tuple) and all(
        isinstance(path, str | os.PathLike) for path in x
    ):
        return ImageSet(x, np.zeros(len(x), np.int64)) if x else None
    if getattr(x, "dtype", None) != np.uint8:
        return None
    is_batch = x.ndim == 4 or (x.ndim == 3 and x.shape[-1] not in (1, 3))
    pixels = x if is_batch else x[None]
    return ImageSet(pixels, np.zeros(len(pixels), np.int64))


def embed_images(
    model: keras.Model, images: ImageSet, batch_size: int
) -> FloatArray:
    """Embeddings of images, (N, D); none of no images.

    Raises:
        ValueError: If a file cannot be decoded.
    """
    if not len(images):
        return np.empty((0, model.output_shape[-1]), np.float32)
    try:
        return embed(model, images, batch_size)
    except Exception:
        # TensorFlow's errors are long; if a file is at fault, name it.
        for row in range(len(images)):
            images.read(row)
        raise
