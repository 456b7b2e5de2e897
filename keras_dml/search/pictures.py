"""Pictures: images in all the forms that users have them, as sets."""

import io
import os
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import PIL.Image

from keras_dml.data import Examples, ImageSet
from keras_dml.data.decode import pixels_of, read_image
from keras_dml.data.thumbnails import row_thumbnail, thumbnail
from keras_dml.data.validation import Pixels
from keras_dml.search.rows import label_values
from keras_dml.utils.progress import track
from keras_dml.utils.types import Rows

THUMBNAIL = "thumbnail"
"""The column of small pictures, data URIs; see `row_thumbnail`."""


def image_sets(items: Any, who: str) -> list[tuple[Rows, Examples]] | None:
    """Sets of what a user hands over, each with its rows in that.

    Items are examples; a path, bytes of a file, a PIL image, pixels, or a list
    of these; for anything else, the result is None. There are several sets
    where images differ in size. Messages call the items `who`.

    Raises:
        ValueError: If an image cannot be decoded, or pixels are not such.
    """
    images = as_image_set(items)
    if images is None and getattr(items, "dtype", None) == np.uint8:
        images = ImageSet(_batch(np.asarray(items), who))
    if images is not None:
        return [(np.arange(len(images)), images)]
    pictures = _pictures(items, who)
    if pictures is None:
        return None
    rows = defaultdict(list)
    for row, pixels in enumerate(pictures):
        rows[pixels.shape].append(row)
    return [
        (np.array(its), ImageSet(np.stack([pictures[i] for i in its])))
        for its in rows.values()
    ]


def thumbnail_column(
    sets: Sequence[tuple[Rows, Examples]],
) -> dict[str, list[str]]:
    """A column with the thumbnail of each image of `image_sets`, for pages.

    It has data URIs, in the order of the rows; there is no column unless all
    sets are of images.

    Raises:
        ValueError: If a file cannot be decoded.
    """
    thumbnails: dict[int, str] = {}
    for rows, images in sets:
        if not isinstance(images, ImageSet):
            return {}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = pool.map(partial(_thumbnail, images), range(len(images)))
            shown = track(results, len(images), "Making thumbnails")
            thumbnails.update(zip(rows.tolist(), shown, strict=True))
    column = [thumbnails[row] for row in sorted(thumbnails)]
    return {THUMBNAIL: column} if sets else {}


def _thumbnail(images: ImageSet, row: int) -> str:
    if images.paths is None:
        return thumbnail(images.read(row))
    box = None if images.boxes is None else images.boxes[row].tolist()
    return row_thumbnail({"path": images.paths[row], "box": box}) or ""


def _batch(pixels: Pixels, who: str) -> Pixels:
    """Pixels of several images, (N, H, W) or (N, H, W, C)."""
    shape = pixels.shape
    has_channels = len(shape) in (3, 4) and shape[-1] in (1, 3)
    # A batch of gray images that are 2 or 4 wide would be a rare one.
    is_gray = len(shape) in (2, 3) and shape[-1] not in (2, 4)
    is_one = len(shape) == 2 or (len(shape) == 3 and has_channels)
    batch = pixels[None] if is_one else pixels
    if not (has_channels or is_gray) or 0 in batch.shape[1:]:
        raise ValueError(
            f"{who} must be pixels, (H, W), (H, W, C) or (N, H, W, C), with C "
            f"1 or 3. Received: uint8 of shape {shape}. Use PIL images for "
            "images with an alpha channel, and floats for embeddings."
        )
    return batch


def _pictures(items: Any, who: str) -> list[Pixels] | None:
    """Pixels of each image, (H, W, C); None if `items` are not images."""
    if isinstance(items, PIL.Image.Image | bytes):
        return [_pixels(items, who)]
    if isinstance(items, list | tuple):
        are_images = items and all(map(_is_image, items))
        return [_pixels(item, who) for item in items] if are_images else None
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
            f"{who} must be complete image files if they are bytes. Received: "
            f"{len(item)} bytes, {item[:8]!r}…: {error}"
        ) from error


def _as_uint8(pixels: Any, who: str) -> Pixels:
    """Pixels, (H, W, C); numbers in 0 to 255 are rounded."""
    if pixels.dtype.kind not in "uif" or not pixels.size:
        raise ValueError(
            f"{who} must be pixels, numbers from 0 to 255. Received: "
            f"{pixels.dtype} of shape {pixels.shape}."
        )
    if pixels.dtype == np.uint8:
        return np.atleast_3d(pixels)
    numbers = np.asarray(pixels, np.float32)
    least, most = numbers.min(initial=0), numbers.max(initial=0)
    # NaN is not in a range.
    if not (least >= 0 and most <= 255):
        raise ValueError(
            f"{who} must be pixels from 0 to 255. Received: pixels of dtype "
            f"{pixels.dtype} from {least:.3g} to {most:.3g}."
        )
    if 0 < most <= 1:
        raise ValueError(
            f"{who} must be pixels from 0 to 255. Received: pixels of dtype "
            f"{pixels.dtype} up to {most:.3g}, which look scaled to 0…1. "
            "Multiply them by 255."
        )
    return np.rint(numbers).astype(np.uint8)


def as_image_set(x: Any) -> Examples | None:
    """Examples unchanged, a set of one or several paths, or None.

    Images from paths have no labels.
    """
    if isinstance(x, Examples):
        return x
    if isinstance(x, str | os.PathLike):
        x = [x]
    if not isinstance(x, list | tuple) or not x:
        return None
    if not all(isinstance(path, str | os.PathLike) for path in x):
        return None
    for path in x:  # A graph would wait for a pipe for ever.
        if not os.path.isfile(path) and os.path.exists(path):
            raise ValueError(
                f"The image file {os.fspath(path)!r} cannot be read: it is a "
                "folder, a pipe or a device. Use regular files."
            )
    return ImageSet(x)


def image_columns(items: Any) -> dict[str, list[Any]]:
    """Index columns that come from images, if `items` are images.

    "path", absolute, for files; for a set also "label", "name", "source" and
    "box". With several labels per example, "label" lists their numbers.
    """
    columns: dict[str, list[Any]] = {}
    if (images := as_image_set(items)) is None:
        return columns
    paths = images.paths if isinstance(images, ImageSet) else None
    if paths is not None:
        columns["path"] = [os.path.abspath(path) for path in paths]
    if not isinstance(items, Examples):
        return columns
    if images.labels is not None:
        columns["label"] = label_values(images.labels)
        if images.names and images.has_label_sets:
            rows = range(len(images))
            columns["name"] = [images.class_called(row) for row in rows]
        elif images.names:
            columns["name"] = [images.names.get(x) for x in columns["label"]]
    if images.ids is not None:
        columns["source"] = list(images.ids)
    if isinstance(images, ImageSet) and images.boxes is not None:
        columns["box"] = images.boxes.tolist()
    return columns
