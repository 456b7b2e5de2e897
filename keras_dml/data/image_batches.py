"""Batches of images in tf.data: random views to train on, and test views."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_dml.data.augment import Augment, Crop
from keras_dml.data.augmentations import (
    Augmentations,
    AugmentBy,
    fold_in,
    seeded,
)
from keras_dml.data.caching import Cache, cached
from keras_dml.data.examples import Examples, Planned
from keras_dml.data.loading import Loader, parallel
from keras_dml.data.resizing import ResizeMode
from keras_dml.data.view import View

if TYPE_CHECKING:
    from keras_dml.data.imageset import ImageSet

VIEWS = ("image", "image2")

BATCHED = 112**2
"""Pixels of a view up to which a batch at a time is the faster way."""


@dataclass(frozen=True)
class Views:
    """Random views of images: arguments of `pipeline`, which describes them.

    Raises:
        ValueError: If `num_views` is not 1 or 2.
    """

    size: int | tuple[int, int] | None = None
    channels: int | None = None
    resize: int | None = None
    resize_mode: ResizeMode = "shortest"
    crop: Crop = "random"
    flip: bool = False
    pad: int = 0
    pad_mode: str = "constant"
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    augment: Augmentations | None = None
    augment_by: AugmentBy = "batch"
    num_views: int = 1
    seed: int = 0
    cache: Cache = "none"

    def __post_init__(self) -> None:
        if not 1 <= self.num_views <= len(VIEWS):
            raise ValueError(
                "`num_views` of pipeline must be 1 or 2. Received: "
                f"num_views={self.num_views!r}."
            )

    def check_none(self, examples: Examples) -> None:
        """Raises `ValueError` if anything is asked that only images have."""
        default = Views(seed=self.seed)
        asked = [
            field.name
            for field in fields(self)
            if getattr(self, field.name) != getattr(default, field.name)
        ]
        if asked:
            raise ValueError(
                f"`{asked[0]}` of pipeline is for images. Received: "
                f"{asked[0]}={getattr(self, asked[0])!r} for {examples!r}. "
                "Leave it out, or use ImageSet(pixels, labels), with "
                "pixels=examples.inputs(...) if they are in a file or source."
            )

    def of(self, images: "ImageSet") -> Augment:
        """What makes a random view of an image of a set."""
        if self.size is None:
            raise ValueError(
                "`size` of pipeline must be given for images: (height, width) "
                f"of a view in pixels, or one number. Received: {images!r} "
                "and no size."
            )
        size = self.size
        height, width = (size, size) if isinstance(size, int) else size
        channels = self.channels or images.channels or 3
        return Augment(
            View((height, width), channels, self.resize, self.resize_mode),
            self.crop,
            self.flip,
            self.pad,
            self.pad_mode,
            self.scale,
            self.ratio,
        )


def planned(images: "ImageSet", views: Views) -> Planned:
    """What makes the batches of an epoch from its plan; see `Planned`."""
    augment = views.of(images)
    loader = Loader(images, cached(images, augment, views.cache))
    change = None
    if views.augment is not None:
        shape = (*augment.view.size, augment.view.channels)
        change = seeded(views.augment, shape, views.augment_by)

    def batches(rows: tf.Tensor, steps: tf.Tensor) -> tf.data.Dataset:
        draws = tf.map_fn(
            lambda step: tf.random.stateless_uniform(
                (rows.shape[1], views.num_views, augment.draws),
                [views.seed, step],
                alg="philox",
            ),
            steps,
            fn_output_signature=tf.float32,
        )
        x = _batches(loader, augment, rows, draws)
        return x if change is None else _changed(x, change, views.seed, steps)

    return batches


def in_order(
    images: "ImageSet", view: View, batch_size: int
) -> tf.data.Dataset:
    """All images in the test view, in the order of the rows."""
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
    """Views of an epoch's images, a whole batch at a time where that pays."""
    height, width = augment.view.size
    is_small = augment.is_batched and height * width <= BATCHED
    if loader.is_stack and is_small:
        return parallel(
            tf.data.Dataset.from_tensor_slices((rows, draws)),
            lambda rows, draws: _as_float(
                _each_view(augment.apply_batch, loader.batch(rows), draws)
            ),
        )
    size = rows.shape[1]
    views = loader.batches(
        tf.reshape(rows, [-1]),
        tf.reshape(draws, [-1, *draws.shape[2:]]),
        lambda image, draws: _each_view(augment.apply, image, draws),
        size,
    )
    return views.map(
        lambda views: tf.nest.map_structure(
            lambda x: tf.ensure_shape(x, (size, *x.shape[1:])),
            _as_float(views),
        )
    )


def _changed(
    x: tf.data.Dataset,
    change: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    seed: int,
    steps: tf.Tensor,
) -> tf.data.Dataset:
    """Batches in which every view is changed, by a seed of its own."""

    def change_views(views: Any, step: tf.Tensor) -> Any:
        key = tf.stack([tf.constant(seed, tf.int64), step])
        changed = [
            tf.ensure_shape(change(view, fold_in(key, number)), view.shape)
            for number, view in enumerate(tf.nest.flatten(views))
        ]
        return tf.nest.pack_sequence_as(views, changed)

    steps = tf.data.Dataset.from_tensor_slices(steps)
    return parallel(tf.data.Dataset.zip(x, steps), change_views)


def _as_float(views: Any) -> Any:
    """As models take them; until they are in a batch, views are uint8."""
    return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), views)


def _each_view(
    apply: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    images: tf.Tensor,
    draws: tf.Tensor,
) -> Any:
    """One view, or a dict of two: `draws` is (..., views, numbers)."""
    views = [apply(images, x) for x in tf.unstack(draws, axis=-2)]
    return views[0] if len(views) == 1 else dict(zip(VIEWS, views, strict=True))
