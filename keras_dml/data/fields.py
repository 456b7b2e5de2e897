"""Fields of an `ImageSet`, checked: images, labels, names, boxes."""

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from keras_dml.utils.types import Rows

Pixels: TypeAlias = npt.NDArray[np.uint8]
Names: TypeAlias = Mapping[int, str] | Sequence[str]


def as_labels(labels: npt.ArrayLike, owner: str) -> Rows:
    """Class labels as a read-only int64 vector.

    Floats and strings are refused even where they could be converted, as
    1.0 and 1.5 would become one class.
    """
    array: npt.NDArray[Any] = np.asarray(labels)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1:
        raise ValueError(
            f"`labels` of {owner} must be a vector, one label an image. "
            f"Received: labels of shape {array.shape}. One-hot labels "
            "become integers by labels.argmax(-1)."
        )
    too_large = array.dtype.kind == "u" and np.any(array > 2**63 - 1)
    if array.dtype.kind not in "iu" or too_large:
        raise ValueError(
            f"`labels` of {owner} must be integers that fit int64. "
            f"Received: labels of dtype {array.dtype}, starting with "
            f"{array[:3].tolist()}. Number the classes by "
            "np.unique(labels, return_inverse=True)[1]."
        )
    return read_only(array)


def read_only(array: npt.NDArray[Any]) -> Rows:
    """A copy in int64 that cannot be changed."""
    copy = array.astype(np.int64)
    copy.flags.writeable = False
    return copy


def as_images(
    images: Pixels | Sequence[str | os.PathLike[str]],
) -> Pixels | tuple[str, ...]:
    if isinstance(images, np.ndarray) and images.dtype.kind not in "UO":
        is_color = images.ndim == 4 and images.shape[3] in (1, 3)
        if images.dtype != np.uint8 or not (images.ndim == 3 or is_color):
            raise ValueError(
                "`images` of ImageSet must be uint8 pixels of shape "
                "(N, H, W), (N, H, W, 1) or (N, H, W, 3), or file paths. "
                f"Received: an array of dtype {images.dtype} and shape "
                f"{images.shape}. Pixels in 0..1 become uint8 by "
                "np.round(255 * images).astype('uint8')."
            )
        view = images.view()
        view.flags.writeable = False
        return view
    if isinstance(images, str | bytes | os.PathLike):
        raise ValueError(
            "`images` of ImageSet must be a sequence of paths, one an "
            f"image. Received: images={images!r}. A folder of images is "
            "read by keras_dml.data.image_folder."
        )
    odd = [x for x in images if not isinstance(x, str | os.PathLike)][:1]
    if odd:
        raise ValueError(
            "`images` of ImageSet must be one uint8 array or a sequence "
            f"of paths. Received: a sequence with a {type(odd[0]).__name__} "
            "in it. Images of one size become an array by np.stack(images)."
        )
    return tuple(os.fspath(path) for path in images)


def as_names(names: Names | None, labels: Rows) -> Mapping[int, str]:
    if names is None:
        return MappingProxyType({})
    if isinstance(names, Mapping):
        return MappingProxyType({int(k): str(v) for k, v in names.items()})
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
        raise ValueError(
            "`names` of ImageSet, when a sequence, must have an item for "
            f"every label. Received: {len(names)} names, labels from "
            f"{labels.min()} to {labels.max()}. Use a mapping {{label: "
            "name}."
        )
    return MappingProxyType({i: str(name) for i, name in enumerate(names)})


def as_boxes(boxes: npt.ArrayLike) -> Rows:
    """Boxes of images, none of them empty, as a read-only int64 (N, 4)."""
    array: npt.NDArray[Any] = np.asarray(boxes)
    if array.size == 0:
        array = np.empty((0, 4), np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 2 or array.shape[1] != 4:
        raise ValueError(
            "`boxes` of ImageSet must be integers of shape (N, 4): left, "
            f"top, right, bottom. Received: boxes of dtype {array.dtype} and "
            f"shape {array.shape}."
        )
    array = read_only(array)
    is_empty = (array[:, 2:] <= array[:, :2]).any(axis=1)
    bad = np.flatnonzero(is_empty | (array < 0).any(axis=1))
    if len(bad):
        raise ValueError(
            "`boxes` of ImageSet must have 0 <= left < right and 0 <= top < "
            f"bottom. Received: {array[bad[0]].tolist()} in row {bad[0]}. "
            "Boxes of (x, y, width, height) become (x, y, x + width, y + "
            "height)."
        )
    return array
