"""Small images for tests of the pipelines, in memory and in files."""

from pathlib import Path

import numpy as np
from PIL import Image

from keras_dml.data import ClassBalanced, ImageSet
from keras_dml.data.decode import ORIENTATION, upright

LABELS = np.repeat([3, 2**24, 2**24 + 1, 2**40], 6)


def noise(height: int = 12, width: int = 10, channels: int = 1) -> np.ndarray:
    rng = np.random.default_rng(0)
    shape = (len(LABELS), height, width, channels)
    return rng.integers(0, 256, shape, dtype=np.uint8)


PIXELS = noise()

# What undoes an orientation: that of the stored pixels of an upright image.
INVERSE = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}


def photo(height, width, channels=3, seed=0) -> np.ndarray:
    """A smooth image with some noise, uint8."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (5, 5, channels), dtype=np.uint8)
    tiles = [
        np.asarray(Image.fromarray(small[..., c]).resize((width, height)))
        for c in range(channels)
    ]
    noise = rng.normal(0, 10, (height, width, channels))
    return (np.stack(tiles, -1) + noise).clip(0, 255).astype(np.uint8)


def save_all(folder: Path) -> ImageSet:
    """`PIXELS` in files named by their rows."""
    paths = [folder / f"{i}.png" for i in range(len(PIXELS))]
    for path, pixels in zip(paths, PIXELS, strict=True):
        Image.fromarray(pixels[..., 0]).save(path)
    return ImageSet(paths, LABELS)


def stored(path, pixels, orientation, **options) -> Path:
    """Writes an image with an EXIF orientation, as cameras do."""
    image = Image.fromarray(upright(pixels, INVERSE[orientation]))
    if path.suffix == ".tif":
        image.save(path, tiffinfo={ORIENTATION: orientation})
        return path
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    image.save(path, exif=exif, **options)
    return path


def sampler_of(images: ImageSet, steps: int | None = None) -> ClassBalanced:
    return ClassBalanced(
        images.labels,
        classes_per_batch=3,
        images_per_class=2,
        steps_per_epoch=steps,
    )
