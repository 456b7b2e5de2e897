"""Loading: images by row number, in parallel; errors name files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from keras_dml.data.decode import read_image
from keras_dml.data.encoded import Encoded, of_file
from keras_dml.data.imageset import ImageSet
from keras_dml.data.validation import Pixels
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Rows

Element: TypeAlias = Any
"""A tensor, or a structure of tensors."""

_IN_PIPELINE = re.compile(
    # TensorFlow puts these words around errors of Python code in tf.data.
    r"Error in user-defined function .*?: (ValueError|OSError): (.*?)\n"
    r"Traceback",
    re.DOTALL,
)


@contextmanager
def python_errors() -> Iterator[None]:
    """Raises errors of Python code in a pipeline without TensorFlow's words."""
    try:
        yield
    except Exception as error:
        match = _IN_PIPELINE.search(str(error))
        if match is None:
            raise
        kind = {"ValueError": ValueError, "OSError": OSError}[match[1]]
        raise kind(match[2]) from None


@dataclass(frozen=True)
class Decoded:
    """Pixels of images of different sizes, one image after the other."""

    # All pixels, (M,) uint8. They are aligned to a memory page, because
    # TensorFlow uses them without copying.
    flat: Pixels
    shapes: Rows  # (height, width, channels) of every image, (N, 3).


def _variable(pixels: npt.NDArray[Any] | tf.Tensor) -> tf.Variable:
    """A single variable, even if a pipeline is made within a strategy.

    The strategy's scope, which applies to a thread, would copy the pixels to
    every device.
    """

    def make() -> tf.Variable:
        with tf.device("CPU:0"):
            return tf.Variable(pixels, trainable=False)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


class Loader:
    """Provides the images of a set to tf.data graphs.

    Pixels are held by a variable on the CPU, where tf.data runs even if there
    is a GPU: a tensor would be copied for every epoch. So are files that are
    `decoded`.
    """

    def __init__(
        self, images: ImageSet, decoded: Decoded | None = None
    ) -> None:
        self._images = images
        self._stack = self._flat = None
        self.files: dict[str, tf.Tensor] = {}
        with tf.device("CPU:0"):
            if decoded is not None:
                self._share(decoded)
            elif images.pixels is None:
                self.files["path"] = tf.constant(images.paths, tf.string)
                if images.boxes is not None:
                    self.files["box"] = tf.constant(images.boxes)
            else:
                gray = images.pixels.ndim == 3
                pixels = images.pixels[..., None] if gray else images.pixels
                self._stack = _variable(pixels)

    def _share(self, decoded: Decoded) -> None:
        pixels, shapes = decoded.flat, decoded.shapes
        is_stack = bool((shapes == shapes[0]).all())
        if is_stack:
            pixels = pixels.reshape(len(shapes), *shapes[0])
        capsule = pixels.__dlpack__()
        shared = _variable(tf.experimental.dlpack.from_dlpack(capsule))
        if is_stack:
            self._stack = shared
            return
        sizes = shapes.prod(axis=1)
        self._flat = shared
        self._shapes = tf.constant(shapes)
        self._starts = tf.constant(np.cumsum(sizes) - sizes)
        self._static_shape = (None, None, int(shapes[0, 2]))

    @property
    def is_stack(self) -> bool:
        return self._stack is not None

    def batch(self, rows: tf.Tensor) -> tf.Tensor:
        """Pixels of images in a stack, (B, H, W, C) uint8."""
        return tf.gather(self._stack, rows)

    def image(self, row: tf.Tensor) -> tf.Tensor | Encoded:
        """Pixels of one image, (H, W, C) uint8, or its file."""
        if self.files:
            return of_file(**_at(self.files, row))
        if self.is_stack:
            return self.batch(row)
        shape = self._shapes[row]
        size = tf.reduce_prod(shape, keepdims=True)
        flat = tf.slice(self._flat, self._starts[row][None], size)
        return tf.ensure_shape(tf.reshape(flat, shape), self._static_shape)

    def each(
        self, view: Callable[[tf.Tensor | Encoded], tf.Tensor]
    ) -> Iterator[npt.NDArray[Any]]:
        """Views of all files, in order; a `ValueError` names a bad one."""
        loaded = self._load(
            tf.data.Dataset.range(len(self._images)),
            lambda row: row,
            lambda row, image: view(image),
        )
        expected = 0
        for number, pixels in loaded.prefetch(16).as_numpy_iterator():
            if number != expected:
                break
            yield pixels
            expected += 1
        if expected < len(self._images):
            file = {k: x[expected].numpy() for k, x in self.files.items()}
            raise_unreadable(**file)

    def batches(
        self,
        rows: tf.Tensor,
        inputs: Element,
        view: Callable[[tf.Tensor, Element], Element],
        batch_size: int,
    ) -> tf.data.Dataset:
        """Batches of views that are computed one at a time, in parallel.

        `view` maps the image of each of the rows, (M,), and an item of
        `inputs`, (M, ...), to the model's input, of static shape. A file that
        cannot be decoded raises an error that names it.
        """
        numbers = tf.data.Dataset.range(tf.shape(rows, tf.int64)[0])

        def check(expected: tf.Tensor, loaded: Element) -> Element:
            loaded_numbers, views = loaded
            bad = _explain(loaded_numbers, expected, rows, self.files)
            with tf.control_dependencies([bad]):
                return tf.nest.map_structure(
                    lambda x: x[: tf.shape(expected)[0]], views
                )

        loaded = self._load(
            numbers,
            lambda number: tf.gather(rows, number),
            lambda number, image: view(image, _at(inputs, number)),
        )
        if not self.files or self._images.bad_files is not None:
            return loaded.map(lambda _, views: views).batch(batch_size)
        # An error in the graph cannot say which file it is about. So files
        # that fail are dropped, and a gap in the numbers is explained. An
        # element of zeros, with a number that no image has, shows a gap at
        # the end.
        number, views = tf.nest.map_structure(
            lambda spec: tf.zeros(spec.shape, spec.dtype), loaded.element_spec
        )
        stopper = tf.data.Dataset.from_tensors((number - 1, views))
        loaded = loaded.concatenate(stopper)
        return tf.data.Dataset.zip(
            numbers.batch(batch_size), loaded.batch(batch_size)
        ).map(check)

    def _load(
        self,
        numbers: tf.data.Dataset,
        row_of: Callable[[tf.Tensor], tf.Tensor],
        view: Callable[[tf.Tensor, tf.Tensor | Encoded], Element],
    ) -> tf.data.Dataset:
        """Numbers and their views, without those of files that fail.

        If bad files are skipped, the next file of the class takes the place of
        one that fails.
        """

        def load(number: tf.Tensor) -> Element:
            return number, view(number, self.image(row_of(number)))

        bad_files = self._images.bad_files
        if not self.files:
            return parallel(numbers, load)
        if bad_files is None:
            return parallel(numbers, load).ignore_errors()

        def replace(row: Any) -> Any:
            return np.int64(bad_files.replacement(self._images, int(row)))

        def load_other(number: tf.Tensor) -> Element:
            row = tf.numpy_function(replace, [row_of(number)], tf.int64)
            return number, view(number, self.image(tf.reshape(row, ())))

        def load_one(number: tf.Tensor) -> tf.data.Dataset:
            one = tf.data.Dataset.from_tensors(number)
            other = one.map(plain(load_other))
            return (
                one.map(plain(load)).ignore_errors().concatenate(other).take(1)
            )

        plain = tf.autograph.experimental.do_not_convert
        return numbers.interleave(
            plain(load_one),
            cycle_length=tf.data.AUTOTUNE,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )


def _at(tensors: Element, number: tf.Tensor) -> Element:
    return tf.nest.map_structure(lambda x: tf.gather(x, number), tensors)


def parallel(
    dataset: tf.data.Dataset, function: Callable[..., Element]
) -> tf.data.Dataset:
    return dataset.map(
        tf.autograph.experimental.do_not_convert(function),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _explain(
    numbers: tf.Tensor,
    expected: tf.Tensor,
    rows: tf.Tensor,
    files: dict[str, tf.Tensor],
) -> tf.Tensor:
    """Raises an error that names the file if an expected number is missing."""
    count = tf.size(expected)
    numbers = tf.pad(numbers, [[0, count]], constant_values=-1)[:count]
    is_missing = numbers != expected

    def explain() -> tf.Tensor:
        file = _at(files, rows[expected[tf.argmax(is_missing)]])
        # The path comes first, then the box if there are any.
        return tf.numpy_function(raise_unreadable, [*file.values()], tf.bool)

    return tf.cond(
        tf.reduce_any(is_missing), explain, lambda: tf.constant(True)
    )


def raise_unreadable(path: bytes, box: Rows | None = None) -> None:
    name = os.fsdecode(path)
    read_image(name, box)
    raise ValueError(
        f"The image file {name!r} cannot be loaded by TensorFlow, although "
        "Pillow can decode it. Save it again, as JPEG or PNG."
    )
