"""Loading: images by row number, in parallel, in order, named if bad."""

import os
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from keras_dml.data.decode import decode_file, read_image
from keras_dml.data.imageset import ImageSet
from keras_dml.types import Rows

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
                self.files = {"path": tf.constant(images.paths, tf.string)}
                if images.boxes is not None:
                    self.files["box"] = tf.constant(images.boxes)
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

    def batches(
        self,
        rows: tf.Tensor,
        inputs: tf.data.Dataset,
        view: Callable[[tf.Tensor, Element], Element],
        batch_size: int,
    ) -> tf.data.Dataset:
        """Batches of views that are made one at a time, in parallel.

        Args:
            rows: Rows of the images, in order, (M,) int64.
            inputs: What `view` takes beside each image, M elements.
            view: Maps pixels (H, W, C) and an element of `inputs` to what
                the model gets, of static shape.
            batch_size: Images in a batch; the last may have fewer.

        Returns:
            Batches of the views, in order. A file that cannot be decoded
            is an error that names it.
        """
        if self.in_memory:
            views = _parallel(
                tf.data.Dataset.zip(_slices(rows), inputs),
                lambda row, extra: view(self.batch(row), extra),
            )
            return views.batch(batch_size)
        files = {name: tf.gather(x, rows) for name, x in self.files.items()}
        numbers = tf.data.Dataset.range(tf.shape(rows, tf.int64)[0])

        def load(number: tf.Tensor, file: Element, extra: Element) -> Element:
            return number, view(decode_file(**file), extra)

        def check(expected: tf.Tensor, loaded: Element) -> Element:
            found, views = loaded
            with tf.control_dependencies([_explain(found, expected, files)]):
                return tf.nest.map_structure(
                    lambda x: x[: tf.shape(expected)[0]], views
                )

        # An error in the graph cannot say which file it is about. So files
        # that fail are dropped, and a gap in the numbers is explained. The
        # element that is appended shows a gap at the end.
        wanted = tf.data.Dataset.zip(numbers, _slices(files), inputs)
        loaded = _parallel(wanted, load).ignore_errors()
        loaded = loaded.concatenate(_stopper(loaded.element_spec))
        return tf.data.Dataset.zip(
            numbers.batch(batch_size), loaded.batch(batch_size)
        ).map(check)


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
    found: tf.Tensor, expected: tf.Tensor, files: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Fails, and names the file, if an expected number is missing."""
    count = tf.size(expected)
    found = tf.pad(found, [[0, count]], constant_values=-1)[:count]
    is_missing = found != expected

    def explain() -> tf.Tensor:
        first = expected[tf.argmax(is_missing)]
        file = {name: x[first] for name, x in files.items()}
        arguments = [file["path"], *([file["box"]] if "box" in file else [])]
        return tf.numpy_function(_raise_unreadable, arguments, tf.bool)

    return tf.cond(
        tf.reduce_any(is_missing), explain, lambda: tf.constant(True)
    )


def _raise_unreadable(path: bytes, box: Rows | None = None) -> None:
    name = os.fsdecode(path)
    read_image(name, box)
    raise ValueError(
        f"The image file {name!r} cannot be loaded by TensorFlow, though "
        "Pillow can decode it. Save it again, as JPEG or PNG."
    )
