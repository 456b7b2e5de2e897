"""Given images: what a user hands over, as a set and as columns."""

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from keras_dml.data.imageset import ImageSet

PathLike: TypeAlias = str | os.PathLike[str]

GivenImages: TypeAlias = (
    ImageSet | PathLike | Sequence[PathLike] | npt.NDArray[np.uint8]
)
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


def image_columns(given: Any, images: ImageSet) -> dict[str, list[Any]]:
    """Columns that images bring along, if what was given has them.

    "path", absolute, of files; of an `ImageSet` also "label", "name",
    "source" and "box".
    """
    columns: dict[str, list[Any]] = {}
    if images.paths is not None:
        columns["path"] = [os.path.abspath(path) for path in images.paths]
    if not isinstance(given, ImageSet):
        return columns
    columns["label"] = images.labels.tolist()
    if images.names:
        columns["name"] = [images.names.get(x) for x in columns["label"]]
    if images.ids is not None:
        columns["source"] = list(images.ids)
    if images.boxes is not None:
        columns["box"] = images.boxes.tolist()
    return columns
