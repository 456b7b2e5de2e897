"""From what a user has to unit embeddings."""

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data import ImageSet
from keras_dml.evaluation import embed
from keras_dml.evaluation.arrays import as_embeddings
from keras_dml.evaluation.vectors import blocks, in_threads, squares
from keras_dml.types import FloatArray

_ELEMENTS = 2**17
"""Float64 numbers at a time: one MB stays in the cache of a core, and does not
go back to the system only to be asked for again."""

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


def as_units(x: Any, dim: int | None, name: str, owner: str) -> FloatArray:
    """Embeddings in unit length.

    Args:
        x: (N, D) or (D,), real numbers.
        dim: D, or None if any will do.
        name: What messages call the argument.
        owner: The method whose argument it is.

    Returns:
        (N, D) float32, C-contiguous.

    Raises:
        ValueError: If the shape is another, or a row is not finite or zero.
    """
    given = np.asarray(x)
    if given.ndim == 1 and given.size:
        given = given[None]
    is_matrix = given.ndim == 2
    if not is_matrix or (dim is not None and given.shape[1] != dim):
        wanted = "D" if dim is None else dim
        raise ValueError(
            f"`{name}` of {owner} must be embeddings, (N, {wanted}) or "
            f"({wanted},), or images: an ImageSet, files or uint8 pixels. "
            f"Received: {name} of shape {np.shape(x)} and dtype "
            f"{given.dtype}."
        )
    if not len(given):
        return np.empty(given.shape, np.float32)
    narrow = given
    if given.dtype != np.float32:
        given = as_embeddings(given, name, owner)
        with np.errstate(over="ignore"):
            narrow = given.astype(np.float32)
    units = np.empty(given.shape, np.float32)

    def normalize(rows: slice) -> None:
        # Squares of float32 stay within the range of float64.
        wide = narrow[rows].astype(np.float64)
        norms = np.sqrt(squares(wide))
        bad = np.flatnonzero(~((norms > 0) & (norms < np.inf)))
        if len(bad):
            raise _refusal(given, rows.start + int(bad[0]), name, owner)
        np.divide(wide, norms[:, None], out=units[rows], casting="same_kind")

    rows_at_a_time = max(1, _ELEMENTS // given.shape[1])
    in_threads(normalize, blocks(len(given), rows_at_a_time))
    return units


def _refusal(given: FloatArray, row: int, name: str, owner: str) -> ValueError:
    as_embeddings(given, name, owner)  # Says what is not finite.
    return ValueError(
        f"`{name}` of {owner} must have a length that float32 can hold and "
        f"that is not zero. Received: {name}[{row}] with numbers up to "
        f"{np.abs(given[row]).max():.3g}."
    )
