"""Files of images of several sizes, and epochs of them."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from keras_dml.data import ClassBalanced, ImageSet, pipeline

LABELS = np.repeat([5, 6, 7], 4)
CACHES = ("memory", "disk")


def write(folder: Path, sizes: list[tuple[int, int]]) -> ImageSet:
    """Photographs, so to speak: smooth, of several sizes and formats."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(len(LABELS)):
        coarse = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize(sizes[i % len(sizes)])
        if i % 5 == 4:
            image = image.convert("L")
        paths.append(folder / f"{i}.{('jpg', 'png', 'bmp')[i % 3]}")
        image.save(paths[-1])
    return ImageSet(paths, LABELS)


def epochs_of(images: ImageSet, count: int = 2, **options: Any) -> list[Any]:
    sampler = ClassBalanced(
        images.labels, classes_per_batch=2, images_per_class=3
    )
    dataset = pipeline(images, sampler, **{"size": 16, **options})
    return [
        batch for _ in range(count) for batch in dataset.as_numpy_iterator()
    ]


def check_equal(first: list[Any], second: list[Any]) -> None:
    assert len(first) == len(second) > 0
    tf.nest.map_structure(np.testing.assert_array_equal, first, second)
