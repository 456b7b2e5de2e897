"""preview: a sheet of images, to look at a data set."""

from typing import TYPE_CHECKING

import numpy as np

from keras_dml.data.fields import Pixels
from keras_dml.data.imageset import ImageSet

if TYPE_CHECKING:
    from PIL.Image import Image

_GAP = 2
_BACKGROUND = 128


def preview(
    images: ImageSet, rows: int = 10, columns: int = 12, cell: int = 64
) -> "Image":
    """A sheet of images: every row a class, every column an image of it.

    The classes are spread evenly over all classes, in ascending order; of
    each the first images are shown. Where a class has fewer, the rest of
    its row stays empty.

    Args:
        images: The images.
        rows: Classes to show, at most.
        columns: Images of each class to show, at most.
        cell: Longer side of an image on the sheet, in pixels.

    Returns:
        A `PIL.Image.Image` in RGB.

    Raises:
        ValueError: If there are no images, or a number is not positive.
    """
    from PIL import Image

    if len(images) == 0 or min(rows, columns, cell) < 1:
        raise ValueError(
            "preview needs images, and positive `rows`, `columns` and `cell`. "
            f"Received: {images!r}, rows={rows}, columns={columns}, "
            f"cell={cell}."
        )
    rows = min(rows, images.num_classes)
    spread = np.linspace(0, images.num_classes - 1, rows).round().astype(int)
    step = cell + _GAP
    size = (columns * step + _GAP, rows * step + _GAP)
    sheet = Image.new("RGB", size, (_BACKGROUND,) * 3)
    for i, label in enumerate(images.classes[spread]):
        shown = np.flatnonzero(images.labels == label)[:columns]
        for j, row in enumerate(shown):
            tile = _tile(images.read(int(row)), cell)
            left = _GAP + j * step + (cell - tile.width) // 2
            top = _GAP + i * step + (cell - tile.height) // 2
            sheet.paste(tile, (left, top))
    return sheet


def _tile(pixels: Pixels, cell: int) -> "Image":
    from PIL import Image

    image = Image.fromarray(
        pixels.squeeze(2) if pixels.shape[2] == 1 else pixels
    )
    scale = cell / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    return image.convert("RGB").resize((width, height))
