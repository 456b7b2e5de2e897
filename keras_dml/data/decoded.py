"""Decoded: images that were decoded and resized once, in one array."""

import json
import logging
import math
import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_dml.data.fields import Pixels
from keras_dml.utils.files import atomic_file, write_atomically
from keras_dml.utils.types import Rows

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decoded:
    """Pixels of images of different sizes, one image after the other.

    Attributes:
        flat: All pixels, (M,) uint8. They are aligned to a memory page,
            because TensorFlow uses them without copying.
        shapes: (height, width, channels) of every image, (N, 3).
    """

    flat: Pixels
    shapes: Rows

    @property
    def starts(self) -> Rows:
        """Where in `flat` each image starts, (N,)."""
        sizes = self.shapes.prod(axis=1)
        return np.cumsum(sizes) - sizes

    @property
    def stack(self) -> Pixels | None:
        """The images as (N, H, W, C) if all have one size, otherwise None."""
        if (self.shapes != self.shapes[0]).any():
            return None
        return self.flat.reshape(len(self.shapes), *self.shapes[0])


def in_memory(images: Iterable[Pixels], shapes: Rows) -> Decoded:
    """Stores images of these shapes, (N, 3), in memory."""
    memory = mmap.mmap(-1, size_of(shapes))
    decoded = Decoded(np.frombuffer(memory, np.uint8), shapes)
    for start, image in zip(decoded.starts, images, strict=True):
        decoded.flat[start : start + image.size] = image.reshape(-1)
    return decoded


def on_disk(path: Path, images: Iterable[Pixels], shapes: Rows) -> Decoded:
    """Stores images of these shapes in a file; the .json index comes last."""
    with atomic_file(path) as partial, partial.open("wb") as file:
        for image in images:
            file.write(image.tobytes())
    index = json.dumps({"shapes": shapes.tolist()})
    write_atomically(path.with_suffix(".json"), index)
    return _mapped(path, shapes)


def from_disk(path: Path, count: int) -> Decoded | None:
    """Opens the result of `on_disk`; pixels are read when they are needed.

    It returns None if there is no complete file of `count` images.
    """
    try:
        index = json.loads(path.with_suffix(".json").read_text("utf-8"))
        shapes = np.array(index["shapes"], np.int64)
        size = path.stat().st_size
        if shapes.shape != (count, 3) or size != size_of(shapes):
            raise ValueError("its size differs from that in its index")
        return _mapped(path, shapes)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("%s is damaged and is created again: %s", path, error)
        return None


def size_of(shapes: Rows) -> int:
    """Number of bytes of images with these shapes."""
    return int(shapes.prod(axis=1).sum())


def megabytes(size: float) -> str:
    """A number of bytes, for people."""
    return f"{math.ceil(size / 1e6):,} MB"


def _mapped(path: Path, shapes: Rows) -> Decoded:
    # Copy on write: TensorFlow takes no memory that is read-only.
    return Decoded(np.memmap(path, np.uint8, "c"), shapes)
