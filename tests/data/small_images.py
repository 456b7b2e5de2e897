"""Small images for tests of the pipelines, in memory and in files."""

from pathlib import Path

import numpy as np
from PIL import Image

from keras_dml.data import ClassBalanced, ImageSet

LABELS = np.repeat([3, 2**24, 2**24 + 1, 2**40], 6)


def noise(height: int = 12, width: int = 10, channels: int = 1) -> np.ndarray:
    rng = np.random.default_rng(0)
    shape = (len(LABELS), height, width, channels)
    return rng.integers(0, 256, shape, dtype=np.uint8)


PIXELS = noise()


def save_all(folder: Path) -> ImageSet:
    """`PIXELS` in files named by their rows."""
    paths = [folder / f"{i}.png" for i in range(len(PIXELS))]
    for path, pixels in zip(paths, PIXELS, strict=True):
        Image.fromarray(pixels[..., 0]).save(path)
    return ImageSet(paths, LABELS)


def sampler_of(images: ImageSet, steps: int | None = None) -> ClassBalanced:
    return ClassBalanced(
        images.labels, classes=3, images=2, steps_per_epoch=steps
    )
