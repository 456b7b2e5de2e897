"""Speed of the input pipeline beside bare tf.data over the same files.

Run from the root of the project; it writes JPEG files of 256×256 into a
temporary folder:

    python tests/benchmarks/pipeline.py            # 2,048 files; 4 minutes
    python tests/benchmarks/pipeline.py --quick    # 512 files; a minute
    python tests/benchmarks/pipeline.py --beside-torch jpg-4000    # 12 MP

An epoch shows every file four times, as starting one costs a tenth of a
second. The contestants take turns; medians of the repeats, relative to the
first, the limit: to decode the same files in order and to do nothing else.
Seconds of all processor cores (CPU) are shown beside the clock's, as other
work on the machine distorts them less. All decode with the accurate cosine
transform, as the package does, but for the line that says otherwise.

With `--beside-torch FORMAT-WIDTH`, files are photographs of that format, three
quarters as high as wide, and contestants "random_resized" views: of files, of
files resized to 256 pixels, of those in the cache, and by torch's DataLoader
with two workers and torchvision. Memory is what the process grew by at most
(Linux).
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

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


def seconds_of(dataset: Any) -> tuple[float, float]:
    """Seconds until the last batch: the clock's, and those of all cores.

    After it, tf.data waits for its tuning thread, which sleeps for up to as
    long as all of it took so far; that is left out.
    """
    start, cpu = time.perf_counter(), time.process_time()
    end, spent = start, cpu
    for _ in dataset:
        end, spent = time.perf_counter(), time.process_time()
    return end - start, spent - cpu


def write_photographs(folder: Path, kind: str) -> list[Path]:
    """Files with detail of all sizes, such as "jpg-4000": 4000×3000 JPEG."""
    extension, width = kind.split("-")
    size = int(width), int(width) * 3 // 4
    rng = np.random.default_rng(0)
    paths = [folder / f"{i}.{extension}" for i in range(16)]
    for path in paths:
        pixels = rng.normal(128, 3, (size[1], size[0], 3)).astype(np.float32)
        for side in (4, 16, 64, 256):
            coarse = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
            layer = Image.fromarray(coarse).resize(size, Image.BICUBIC)
            pixels += (np.asarray(layer) - np.float32(128)) * 2 / side**0.5
        image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        image.save(path, quality=90)
    mean = sum(path.stat().st_size for path in paths) / len(paths)
    print(f"files of {size[0]}×{size[1]}, {mean / 1000:.0f} KB each")
    return paths


class Torch:
    """The views of photographs by torchvision; a data set of torch."""

    def __init__(self, paths: list[Path]) -> None:
        from torchvision import transforms

        self.paths = paths
        self.view = transforms.Compose(
            [
                transforms.RandomResizedCrop(SIZE),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Any:
        with Image.open(self.paths[row]) as image:
            return self.view(image.convert("RGB"))

    def batches(self) -> Any:
        from torch.utils.data import DataLoader

        # To fork a process in which TensorFlow runs may block it.
        return DataLoader(
            self,
            32,
            num_workers=2,
            persistent_workers=True,
            multiprocessing_context="spawn",
            shuffle=True,
        )


def beside_torch(folder: Path, kind: str, repeats: int) -> None:
    paths = write_photographs(folder, kind)
    is_large = int(kind.split("-")[1]) > 1000
    count = 128 if is_large else 2048
    paths = paths * (count // len(paths))
    images = ImageSet(paths, np.arange(count) // IMAGES_A_CLASS)

    def views(times: int = 1, **options: Any) -> tuple[int, Any]:
        sampler = ClassBalanced(
            images.labels,
            classes_per_batch=8,
            images_per_class=4,
            steps_per_epoch=times * count // 32,
        )
        return times * count, pipeline(
            images, sampler, SIZE, crop="random_resized", flip=True, **options
        )

    more = 16 if is_large else 2
    contestants = {
        "pipeline": views(),
        "pipeline, resize=256": views(resize=SIDE),
        "… cached in memory": views(more, resize=SIDE, cache="memory"),
        "… cached on disk": views(more, resize=SIDE, cache="disk"),
        "torch's DataLoader": (count, Torch(paths).batches()),
    }
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, (shown, batches) in contestants.items():
            before = memory("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")
            seconds, _ = seconds_of(batches)
            if repeat:
                rates[name].append(shown / seconds)
            else:  # The first warms up.
                grown = memory("VmHWM") - before
                print(f"{name:<24} memory +{grown / 1024:.0f} MB", flush=True)
    base = statistics.median(rates["torch's DataLoader"])
    for name, runs in rates.items():
        rate = statistics.median(runs)
        print(
            f"{name:<24} {rate:6.0f} images/s, {min(runs):.0f} to "
            f"{max(runs):.0f} ({rate / base:.2f}×)"
        )


def memory(field: str) -> int:
    """A field of the state of this process, in KB."""
    state = Path("/proc/self/status").read_text()
    return int(state.partition(f"{field}:")[2].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--beside-torch", metavar="FORMAT-WIDTH")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KERAS_DML_HOME"] = folder
        kind, repeats = arguments.beside_torch, arguments.repeats
        if kind:
            beside_torch(Path(folder), kind, repeats)
        else:
            beside_bare(Path(folder), 512 if arguments.quick else 2048, repeats)


def beside_bare(folder: Path, count: int, repeats: int) -> None:
    images = write_files(folder, count)
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
        "… the same, cached on disk": lambda: ours(images, balanced, "disk"),
    }
    datasets = {name: make() for name, make in contestants.items()}
    times: dict[str, list[tuple[float, float]]] = {
        name: [] for name in datasets
    }
    for repeat in range(repeats + 1):
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
