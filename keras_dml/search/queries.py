"""Queries: images in all the forms that users have them, embedded."""

import io
import os
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import PIL.Image

from keras_dml.data.decode import pixels_of, read_image
from keras_dml.data.fields import Pixels
from keras_dml.data.imageset import ImageSet, as_image_set
from keras_dml.search.encoder import embed_images
from keras_dml.utils.types import FloatArray


def embed_given(
    model: Callable[[], keras.Model],
    items: Any,
    name: str,
    owner: str,
    batch_size: int,
) -> FloatArray | None:
    """Embeddings of what a user hands over, (N, D); None if not images.

    Args:
        model: Gives the model; called if there are images.
        items: Any examples; a path, bytes of a file, a PIL image, pixels,
            or a list of these; anything else is not images.
        name: The name of the argument `items`.
        owner: Whose argument it is.
        batch_size: Images embedded at a time.

    Raises:
        ValueError: If an image cannot be decoded, or pixels are not such.
    """
    images = as_image_set(items)
    if images is not None:
        return embed_images(model(), images, batch_size)
    pictures = _pictures(items, f"`{name}` of {owner}")
    if pictures is None:
        return None
    # A set has pixels of one size.
    rows = defaultdict(list)
    for row, pixels in enumerate(pictures):
        rows[pixels.shape].append(row)
    parts = [
        embed_images(
            model(), ImageSet(np.stack([pictures[i] for i in some])), batch_size
        )
        for some in rows.values()
    ]
    order = np.argsort(np.concatenate(list(rows.values())))
    result: FloatArray = np.concatenate(parts)[order]
    return result


def _pictures(items: Any, who: str) -> list[Pixels] | None:
    """Pixels of each image, (H, W, C); None if `items` are not images."""
    if isinstance(items, PIL.Image.Image | bytes):
        return [_pixels(items, who)]
    if isinstance(items, list | tuple):
        if items and all(map(_is_image, items)):
            return [_pixels(item, who) for item in items]
        return None
    if not _are_pixels(items):
        return None
    array = np.asarray(items)
    batch = array if array.ndim == 4 else array[None]
    return [_as_uint8(pixels, who) for pixels in batch]


def _is_image(item: Any) -> bool:
    kinds = str | os.PathLike | bytes | PIL.Image.Image
    is_gray = getattr(item, "dtype", None) == np.uint8 and item.ndim == 2
    has_channels = _are_pixels(item) and np.ndim(item) == 3
    return isinstance(item, kinds) or is_gray or has_channels


def _are_pixels(x: Any) -> bool:
    """Whether this is (H, W, C), or several of those."""
    shape: Any = getattr(x, "shape", ())
    return len(shape) in (3, 4) and shape[-1] in (1, 3)


def _pixels(item: Any, who: str) -> Pixels:
    if isinstance(item, str | os.PathLike):
        return read_image(item)
    if isinstance(item, PIL.Image.Image):
        return pixels_of(item)
    if not isinstance(item, bytes):
        return _as_uint8(np.asarray(item), who)
    try:
        return read_image(io.BytesIO(item))
    except ValueError as error:
        raise ValueError(
            f"{who} must be whole image files where they are bytes. "
            f"Received: {len(item)} bytes, {item[:8]!r}…: {error}"
        ) from error


def _as_uint8(pixels: Any, who: str) -> Pixels:
    """Pixels, (H, W, C); numbers in 0 to 255 are rounded."""
    if pixels.dtype == np.uint8:
        return np.atleast_3d(pixels)
    numbers = np.asarray(pixels, np.float32)
    least, most = numbers.min(initial=0), numbers.max(initial=0)
    # NaN is not in a range.
    if not (least >= 0 and most <= 255):
        raise ValueError(
            f"{who} must be pixels in 0 to 255. Received: pixels of dtype "
            f"{pixels.dtype} from {least:.3g} to {most:.3g}."
        )
    if 0 < most <= 1:
        raise ValueError(
            f"{who} must be pixels in 0 to 255. Received: pixels of dtype "
            f"{pixels.dtype} up to {most:.3g}, as if white were 1. Multiply "
            "them by 255."
        )
    return np.rint(numbers).astype(np.uint8)
