"""Loading: images by row number, in parallel, in order, named if bad."""

import os
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from keras_dml.data.decode import decode_file, read_image
from keras_dml.data.imageset import ImageSet

Element: TypeAlias = Any
"""A tensor, or a structure of tensors."""


class Loader:
    """Gives the images of a set to tf.data graphs.

    Args:
        images: The set. Pixels are copied once, to a tensor on the CPU,
            where tf.data runs even if there is a GPU.
    """

    def __init__(self, images: ImageSet) -> None:
        with tf.device("CPU:0"):
            if images.pixels is None:
                self.paths = tf.constant(images.paths, tf.string)
                self.pixels = None
            else:
                gray = images.pixels.ndim == 3
                pixels = images.pixels[..., None] if gray else images.pixels
                self.pixels = tf.constant(pixels)

    @property
    def in_memory(self) -> bool:
        """Whether whole batches can be had at once."""
        return self.pixels is not None

    def batch(self, rows: tf.Tensor) -> tf.Tensor:
        """Pixels of images in memory, (B, H, W, C) uint8."""
        return tf.gather(self.pixels, rows)

    def each(
        self,
        rows: tf.Tensor,
        inputs: tf.data.Dataset,
        view: Callable[[tf.Tensor, Element], Element],
    ) -> tf.data.Dataset:
        """Views of images, one element an image, made in parallel.

        Args:
            rows: Rows of the images, in order, (M,) int64.
            inputs: What `view` takes beside each image, M elements.
            view: Maps pixels (H, W, C) and an element of `inputs` to what
                the model gets, of static shape.

        Returns:
            M elements, in order. A file that cannot be decoded is an error
            that names it.
        """
        if self.in_memory:
            return _parallel(
                tf.data.Dataset.zip(_slices(rows), inputs),
                lambda row, extra: view(self.batch(row), extra),
            )
        paths = tf.gather(self.paths, rows)

        def load(number: tf.Tensor, path: tf.Tensor, extra: Element) -> Element:
            return number, view(decode_file(path), extra)

        def check(
            expected: tf.Tensor, path: tf.Tensor, loaded: Element
        ) -> Element:
            number, views = loaded
            with tf.control_dependencies([_explain(number, expected, path)]):
                return tf.nest.map_structure(tf.identity, views)

        # An error in the graph cannot say which file it is about. So files
        # that fail are dropped, and a gap in the numbers is explained. The
        # element that is appended shows a gap at the end.
        numbers = tf.data.Dataset.range(tf.shape(rows, tf.int64)[0])
        wanted = tf.data.Dataset.zip(numbers, _slices(paths), inputs)
        loaded = _parallel(wanted, load).ignore_errors()
        loaded = loaded.concatenate(_stopper(loaded.element_spec))
        return tf.data.Dataset.zip(numbers, _slices(paths), loaded).map(check)


def _slices(tensor: tf.Tensor) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(tensor)


def _parallel(
    dataset: tf.data.Dataset, function: Callable[..., Element]
) -> tf.data.Dataset:
    return dataset.map(
        function, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _stopper(spec: Element) -> tf.data.Dataset:
    """One element of zeros whose number no image has."""
    number, views = spec
    zeros = tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), views)
    return tf.data.Dataset.from_tensors((tf.constant(-1, number.dtype), zeros))


def _explain(
    number: tf.Tensor, expected: tf.Tensor, path: tf.Tensor
) -> tf.Tensor:
    return tf.cond(
        number == expected,
        lambda: tf.constant(True),
        lambda: tf.numpy_function(_raise_unreadable, [path], tf.bool),
    )


def _raise_unreadable(path: bytes) -> None:
    name = os.fsdecode(path)
    read_image(name)
    raise ValueError(
        f"The image file {name!r} cannot be loaded by TensorFlow, though "
        "Pillow can decode it. Save it again, as JPEG or PNG."
    )
