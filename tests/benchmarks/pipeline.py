"""Speed of the input pipeline beside bare tf.data over the same files.

Run from the root of the project; it writes JPEG files of 256×256 into a
temporary folder:

    python tests/benchmarks/pipeline.py            # 2,048 files; 4 minutes
    python tests/benchmarks/pipeline.py --quick    # 512 files; a minute

An epoch shows every file four times, as starting one costs a tenth of a
second. The contestants take turns; medians of the repeats, relative to the
first, the limit: to decode the same files in order and to do nothing else.
Seconds of all processor cores (CPU) are shown beside the clock's, as other
work on the machine distorts them less. All decode with the accurate cosine
transform, as the package does, but for the line that says otherwise.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from PIL import Image

from keras_dml.data import ClassBalanced, ImageSet, Sampler, pipeline
from keras_dml.utils.types import Rows

SIDE, SIZE, BATCH, IMAGES_A_CLASS, SHOWN = 256, 224, 128, 16, 4

Times: TypeAlias = dict[str, list[tuple[float, float]]]


class InOrder(Sampler):
    """All images in the order of their rows: what costs no planning."""

    def __init__(self, labels: Rows) -> None:
        super().__init__(labels, BATCH, steps_per_epoch=len(labels) // BATCH)

    def plan(self, epoch: int) -> Rows:
        return np.arange(self.steps * BATCH).reshape(self.steps, BATCH)


def write_files(folder: Path, count: int) -> ImageSet:
    """JPEG files about as smooth as photographs: 20 to 30 KB each."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(count):
        coarse = rng.integers(0, 256, (24, 24, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((SIDE, SIDE), Image.BICUBIC)
        noise = rng.normal(0, 8, (SIDE, SIDE, 3))
        pixels = (np.asarray(image) + noise).clip(0, 255).astype(np.uint8)
        paths.append(folder / f"{i}.jpg")
        Image.fromarray(pixels).save(paths[-1], quality=90)
    labels = np.arange(SHOWN * count) // IMAGES_A_CLASS
    return ImageSet(SHOWN * paths, labels)


def bare(
    images: ImageSet, method: str = "INTEGER_ACCURATE", augment: bool = False
) -> tf.data.Dataset:
    """What one would write by hand, in the order of the files."""

    def load(path: tf.Tensor) -> tf.Tensor:
        contents = tf.io.read_file(path)
        image = tf.io.decode_jpeg(contents, 3, dct_method=method)
        image = tf.ensure_shape(image, (SIDE, SIDE, 3))
        if augment:
            image = tf.image.random_crop(image, (SIZE, SIZE, 3))
            image = tf.image.random_flip_left_right(image)
            image = tf.cast(image, tf.float32)
        return image

    return (
        tf.data.Dataset.from_tensor_slices(list(images.paths or ()))
        .map(load, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(BATCH, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def ours(
    images: ImageSet, sampler: Sampler, cache: str = "none"
) -> tf.data.Dataset:
    return pipeline(images, sampler, SIZE, resize=SIDE, flip=True, cache=cache)


def seconds_of(dataset: tf.data.Dataset) -> tuple[float, float]:
    """Seconds until the last batch: the clock's, and those of all cores.

    After it, tf.data waits for its tuning thread, which sleeps for up to as
    long as all of it took so far; that is left out.
    """
    start, cpu = time.perf_counter(), time.process_time()
    end, spent = start, cpu
    for _ in dataset:
        end, spent = time.perf_counter(), time.process_time()
    return end - start, spent - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    count = 512 if arguments.quick else 2048
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERAS_DML_HOME"] = folder
        images = write_files(Path(folder), count)
        balanced = ClassBalanced(
            images.labels, classes_per_batch=BATCH // 4, images_per_class=4
        )
        contestants: dict[str, Callable[[], tf.data.Dataset]] = {
            "bare decode": lambda: bare(images),
            "bare decode, TensorFlow's default": lambda: bare(images, ""),
            "bare decode + crop + flip": lambda: bare(images, augment=True),
            "pipeline, in order": lambda: ours(images, InOrder(images.labels)),
            "pipeline, class-balanced": lambda: ours(images, balanced),
            "… the same, cached in memory": lambda: ours(
                images, balanced, "memory"
            ),
            "… the same, cached on disk": lambda: ours(
                images, balanced, "disk"
            ),
        }
        datasets = {name: make() for name, make in contestants.items()}
        times: dict[str, list[tuple[float, float]]] = {
            name: [] for name in datasets
        }
        for repeat in range(arguments.repeats + 1):
            for name, dataset in datasets.items():
                spent = seconds_of(dataset)
                if repeat:  # The first warms up.
                    times[name].append(spent)
    report(times, SHOWN * count)


def report(times: Times, count: int) -> None:
    medians = {
        name: [statistics.median(x) for x in zip(*pairs, strict=True)]
        for name, pairs in times.items()
    }
    base = next(iter(medians.values()))
    for name, (wall, cpu) in medians.items():
        print(
            f"{name:<36} {count / wall:6.0f} images/s "
            f"({base[0] / wall:4.2f}×)   CPU {1000 * cpu / count:5.2f} "
            f"ms/image ({base[1] / cpu:4.2f}×)"
        )
    order = medians["pipeline, in order"]
    balanced = medians["pipeline, class-balanced"]
    wall, cpu = (b / a - 1 for a, b in zip(order, balanced, strict=True))
    print(f"class-balanced sampling costs {wall:+.1%}, CPU {cpu:+.1%}")


if __name__ == "__main__":
    main()
