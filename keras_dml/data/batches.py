"""Batches in tf.data: rows of arrays, random views of images, test views."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import singledispatch
from typing import Any, Literal

import numpy as np

from keras_dml.data.augmentations import (
    Augmentations,
    AugmentBy,
    Change,
    augment_batches,
    make_change,
)
from keras_dml.data.caching import Cache, preload
from keras_dml.data.examples import WHOLE_BATCH, Examples, Inputs, Planned
from keras_dml.data.imageset import ImageSet
from keras_dml.data.loading import Loader, parallel
from keras_dml.data.planned import parts_of
from keras_dml.data.resizing import ResizeMode
from keras_dml.data.validation import is_text
from keras_dml.data.view import Augment, Crop, PadMode, View
from keras_dml.utils.arguments import Checked
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import AnyInteger

VIEWS = ("image", "image2")

MAX_BATCHED_PIXELS = 112**2
"""Largest number of pixels in a view for which whole batches are faster."""


@dataclass(frozen=True)
class Views(Checked):
    """Random views of images; see `pipeline` for the arguments."""

    size: int | tuple[int, int] | None = None
    channels: int | None = None
    resize: int | None = None
    resize_mode: ResizeMode = "shortest"
    crop: Crop = "random"
    flip: bool = False
    pad: int = 0
    pad_mode: PadMode = "constant"
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    augment: Augmentations | None = None
    augment_by: AugmentBy = "batch"
    num_views: Literal[1, 2] = 1
    seed: AnyInteger = 0
    cache: Cache = "none"

    def check_none(self, examples: Examples, *allowed: str) -> None:
        """Raises `ValueError` if other options than these are used."""
        default = Views()
        options = [
            field.name
            for field in fields(self)
            if field.name not in ("seed", *allowed)
            and getattr(self, field.name) != getattr(default, field.name)
        ]
        if options:
            raise ValueError(
                f"`{options[0]}` of pipeline is for images only. Received: "
                f"{options[0]}={getattr(self, options[0])!r} for {examples!r}. "
                "Omit it, or use ImageSet(pixels, labels), with "
                "pixels=examples.inputs(...) if they are in a file or source."
            )

    def of(self, images: ImageSet) -> Augment:
        if self.size is None:
            raise ValueError(
                "`size` of pipeline must be given for images: (height, width) "
                "of a view in pixels, or one number. Received: size=None for "
                f"{images!r}."
            )
        return self.with_channels(images.channels or 3)

    def with_channels(self, channels: int) -> Augment:
        """The augmentation, with this number of channels by default."""
        size: Any = self.size
        if not isinstance(size, tuple | list):
            size = (size, size)
        view_channels: Any = self.channels or channels
        return Augment(
            View(size, view_channels, self.resize, self.resize_mode),
            self.crop,
            self.flip,
            self.pad,
            self.pad_mode,
            self.scale,
            self.ratio,
        )


@singledispatch
def planned_batches(examples: Examples, views: Views) -> Planned:
    """A function that makes the batches of a planned epoch; see `Planned`.

    By default NumPy reads the rows of a batch, with one or two augmented views
    of every example. Other kinds of examples register their own function.
    """
    if views.augment is None:
        views.check_none(examples)
        return rows_of(examples)
    views.check_none(examples, "augment", "augment_by", "num_views")
    change = make_change(views.augment, _spec_of(examples), views.augment_by)
    batches = rows_of(examples)
    if views.num_views == 2:
        batches = duplicate_views(batches)
    return _augment(batches, change, views)


def _augment(batches: Planned, change: Change, views: Views) -> Planned:
    # Whole batches are augmented, because numbers are drawn per batch.
    def augmented_batches(
        rows: tf.Tensor, steps: tf.Tensor, part: slice
    ) -> tf.data.Dataset:
        x = batches(rows, steps, WHOLE_BATCH)
        x = augment_batches(x, change, views.num_views, views.seed, steps)
        return parts_of(x, part)

    return augmented_batches


def duplicate_views(batches: Planned) -> Planned:
    """Batches with two equal views of every example."""

    def both(rows: tf.Tensor, steps: tf.Tensor, part: slice) -> tf.data.Dataset:
        x = batches(rows, steps, part)
        return x.map(lambda x: dict.fromkeys(VIEWS, x))

    return both


def rows_of(examples: Examples) -> Planned:
    read = _reader_of(examples)

    def batches(
        rows: tf.Tensor, steps: tf.Tensor, part: slice
    ) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(rows[:, part]).map(read)

    return batches


@singledispatch
def batches_in_order(
    examples: Examples, view: View | None, batch_size: int
) -> tf.data.Dataset:
    """All examples, in the order of the rows; the last batch may be short."""
    read = _reader_of(examples)
    rows = tf.data.Dataset.range(len(examples)).batch(batch_size)
    return rows.map(read).prefetch(tf.data.AUTOTUNE)


@planned_batches.register(ImageSet)
def _planned_images(images: ImageSet, views: Views) -> Planned:
    augment = views.of(images)
    loader = Loader(images, preload(images, augment, views.cache))

    def batches(
        rows: tf.Tensor, steps: tf.Tensor, part: slice
    ) -> tf.data.Dataset:
        count, size = rows.shape
        shape = (size, views.num_views, augment.draws)
        draws = tf.numpy_function(_draws(views.seed, shape), [steps], "float32")
        draws.set_shape((count, *shape))
        return _batches(loader, augment, rows[:, part], draws[:, part])

    if views.augment is None:
        return batches
    shape = (*augment.view.size, augment.view.channels)
    image = tf.TensorSpec(shape, "float32")
    change = make_change(views.augment, image, views.augment_by)
    return _augment(batches, change, views)


@batches_in_order.register(ImageSet)
def _images_in_order(
    images: ImageSet, view: View | None, batch_size: int
) -> tf.data.Dataset:
    if view is None:
        raise ValueError(
            "`view` of eval_batches must be given for images. Received: "
            f"view=None for {images!r}. Use View.of(model)."
        )
    loader = Loader(images)
    rows = tf.range(len(images), dtype=tf.int64)
    if loader.is_stack:
        batches = parallel(
            tf.data.Dataset.from_tensor_slices(rows).batch(batch_size),
            lambda rows: view.apply(loader.batch(rows)),
        )
    else:
        batches = loader.batches(
            rows, (), lambda image, _: view.cut(image), batch_size
        ).map(_as_float)
    return batches.prefetch(tf.data.AUTOTUNE)


def _batches(
    loader: Loader, augment: Augment, rows: tf.Tensor, draws: tf.Tensor
) -> tf.data.Dataset:
    """Views of an epoch's images, in whole batches if that is faster."""
    height, width = augment.view.size
    is_small = augment.is_batched and height * width <= MAX_BATCHED_PIXELS
    if loader.is_stack and is_small:
        return parallel(
            tf.data.Dataset.from_tensor_slices((rows, draws)),
            lambda rows, draws: _as_float(
                _name_views(
                    augment.apply_batch(loader.batch(rows), x)
                    for x in tf.unstack(draws, axis=1)
                )
            ),
        )
    size = rows.shape[1]
    views = loader.batches(
        tf.reshape(rows, [-1]),
        tf.reshape(draws, [-1, *draws.shape[2:]]),
        lambda image, draws: _name_views(augment.each(image, draws)),
        size,
    )
    return views.map(
        lambda views: tf.nest.map_structure(
            lambda x: tf.ensure_shape(x, (size, *x.shape[1:])),
            _as_float(views),
        )
    )


def _draws(seed: int, shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """A function from steps to uniform random numbers, (S, *shape).

    The numbers of a step depend on it alone. They are computed on the host by a
    function that is traced once: in the graph of an epoch, the operations
    would be set up again whenever it starts.
    """

    @tf.function(
        input_signature=[tf.TensorSpec((None,), tf.int64)], autograph=False
    )
    def draw(steps: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(
            lambda step: tf.random.stateless_uniform(
                shape, [seed, step], alg="philox"
            ),
            steps,
            fn_output_signature=tf.float32,
        )

    def on_host(steps: Any) -> Any:
        with tf.device("CPU:0"):
            return draw(steps).numpy()

    return on_host


def _as_float(views: Any) -> Any:
    """Floats, as models take them; before batching, views are uint8."""
    return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), views)


def _name_views(views: Iterable[tf.Tensor]) -> Any:
    first, *rest = views
    return dict(zip(VIEWS, (first, *rest), strict=True)) if rest else first


def _spec_of(examples: Examples) -> Any:
    def spec_of(array: Any) -> tf.TensorSpec:
        dtype = tf.string if is_text(array.dtype) else array.dtype
        return tf.TensorSpec(array.shape[1:], dtype)

    # All examples have the shapes and types of the first one.
    first = examples.inputs(np.arange(min(1, len(examples))))
    return tf.nest.map_structure(spec_of, first)


def _reader_of(examples: Examples) -> Callable[[tf.Tensor], Inputs]:
    """A function from rows, (B,), to their inputs, from inside a graph."""
    example = _spec_of(examples)
    specs = tf.nest.flatten(example)

    def read(rows: Any) -> list[Any]:
        return [_as_bytes(x) for x in tf.nest.flatten(examples.inputs(rows))]

    def read_in_graph(rows: tf.Tensor) -> Inputs:
        tensors = tf.numpy_function(read, [rows], [x.dtype for x in specs])
        for tensor, spec in zip(tensors, specs, strict=True):
            tensor.set_shape((rows.shape[0], *spec.shape))
        return tf.nest.pack_sequence_as(example, tensors)

    function: Callable[[tf.Tensor], Inputs]
    function = tf.autograph.experimental.do_not_convert(read_in_graph)
    return function


def _as_bytes(array: Any) -> Any:
    if not is_text(array.dtype):
        return array
    encoded = np.empty(array.size, object)
    encoded[:] = [x.encode() if isinstance(x, str) else x for x in array.flat]
    return encoded.reshape(array.shape)
