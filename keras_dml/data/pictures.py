"""Pictures of examples, as the model sees them, and sheets of images."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from keras_dml.data._pipeline import eval_batches
from keras_dml.data.examples import Examples, any_labels_of
from keras_dml.data.imageset import ImageSet
from keras_dml.data.loading import python_errors
from keras_dml.data.validation import Pixels
from keras_dml.data.view import View
from keras_dml.utils.arguments import check_arguments
from keras_dml.utils.types import Count, Rows, Side

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

_GAP = 2
_BACKGROUND = 128

_TILE_SIDE = 96
_MAX_CHARACTERS = 1000

_CAPTION_WIDTH = 128
"""Width of the column of names, in pixels."""


def only_images(images: Examples, owner: str) -> ImageSet:
    """The argument `images` of `owner`; `ValueError` unless images."""
    if not isinstance(images, ImageSet):
        raise ValueError(
            f"`images` of {owner} must be an ImageSet, because other examples "
            f"have no pictures. Received: {images!r}."
        )
    return images


def pictures_of(images: Examples, rows: Rows, view: View | None) -> Pixels:
    """Pictures of some examples, (n, H, W, C) uint8; see `each_seen`."""
    return np.stack(list(each_picture(images, rows, view)))


def each_picture(
    images: Examples, rows: Rows, view: View | None
) -> Iterator[Pixels]:
    """The test view of each of some images, or the names of other examples."""
    rows = np.asarray(rows, np.int64)
    if not isinstance(images, ImageSet):
        yield from (text_tile(images.called(row)) for row in rows.tolist())
        return
    with python_errors():
        for batch in eval_batches(images.select(rows), view):
            yield from np.rint(batch.numpy()).clip(0, 255).astype(np.uint8)


def class_name(images: Examples, row: int, longest: int = 18) -> str:
    """The name of an image's class, short; its label if it has none."""
    return short_name(images.class_called(row), longest)


def class_column(images: Examples, rows: Rows) -> npt.NDArray[Any]:
    """Classes of some images in a table: labels, or names if several."""
    if not images.has_label_sets:
        return images.known_labels[rows]
    return np.array([images.class_called(row) for row in rows.tolist()])


def text_tile(text: str) -> Pixels:
    """A text as a picture, (96, 96, 1), cut off where it does not fit."""
    from PIL import Image, ImageDraw

    tile = Image.new("L", (_TILE_SIDE, _TILE_SIDE), 255)
    lines = textwrap.wrap(text[:_MAX_CHARACTERS], 14, max_lines=6) or [""]
    draw = ImageDraw.Draw(tile)
    draw.text((4, 4), "\n".join(lines), 0, _font(11))
    return np.asarray(tile)[..., None]


def short_name(name: str, longest: int = 18) -> str:
    if len(name) > longest:
        name = name[: longest - 1] + "…"
    # Matplotlib renders text between dollars as mathematics.
    return name.replace("$", r"\$")


@check_arguments
def preview(
    images: Examples, rows: Count = 10, columns: Count = 12, cell: Side = 64
) -> "Image":
    """A sheet in RGB, with one class per row and one image per column.

    The classes are spread evenly over all classes, in ascending order, and the
    first images of each are shown. If classes have names, rows begin with
    them.

    Args:
        images: The images.
        rows: Maximum number of classes to show.
        columns: Maximum number of images to show per class.
        cell: Longer side of an image on the sheet, in pixels.

    Raises:
        ValueError: If there are no images, or a number is not positive.
    """
    from PIL import Image, ImageDraw

    images = only_images(images, "preview")
    if not len(images):
        raise ValueError(
            f"`images` of preview must not be empty. Received: {images!r}."
        )
    labels = any_labels_of(images, "images.labels", "preview")
    rows = min(rows, images.num_classes)
    spread = np.linspace(0, images.num_classes - 1, rows).round().astype(int)
    step = cell + _GAP
    start = _GAP + (_CAPTION_WIDTH if images.names else 0)
    size = (start + columns * step, rows * step + _GAP)
    sheet = Image.new("RGB", size, (_BACKGROUND,) * 3)
    draw = ImageDraw.Draw(sheet)
    font = _font(max(6, min(14, cell // 2)))
    for i, label in enumerate(images.classes[spread]):
        name = caption = images.names.get(int(label), "")
        while font.getlength(caption) > _CAPTION_WIDTH - 4 * _GAP:
            name = name[:-1]
            caption = f"{name}…"
        middle = _GAP + i * step + cell / 2
        draw.text((2 * _GAP, middle), caption, "black", font, anchor="lm")
        of_class = labels == label
        if labels.ndim == 2:
            of_class = labels[:, label]
        class_rows = np.flatnonzero(of_class)[:columns]
        for j, row in enumerate(class_rows):
            tile = _tile(images.read(int(row)), cell)
            x = start + j * step + (cell - tile.width) // 2
            y = _GAP + i * step + (cell - tile.height) // 2
            sheet.paste(tile, (x, y))
    return sheet


def _font(size: int) -> "FreeTypeFont":
    """A font with Latin, Greek and Cyrillic letters, and some others."""
    import matplotlib
    from PIL import ImageFont

    path = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
    return ImageFont.truetype(path, size)


def _tile(pixels: Pixels, cell: int) -> "Image":
    from PIL import Image

    is_gray = pixels.shape[2] == 1
    image = Image.fromarray(pixels[..., 0] if is_gray else pixels)
    scale = cell / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    return image.convert("RGB").resize((width, height))
