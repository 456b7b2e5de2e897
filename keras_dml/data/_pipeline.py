"""Pipelines of tf.data: batches for training and for evaluation."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
import tensorflow as tf
from annotated_types import Ge

from keras_dml.data.augment import Augment, Crop
from keras_dml.data.caching import Cache, cached
from keras_dml.data.imageset import ImageSet
from keras_dml.data.loading import Loader, parallel
from keras_dml.data.resizing import ResizeMode
from keras_dml.data.samplers import Sampler
from keras_dml.data.view import View
from keras_dml.utils.types import Count

VIEWS = ("image", "image2")

BATCHED = 112**2
"""Pixels of a view up to which a batch at a time is the faster way."""


def pipeline(
    images: ImageSet,
    sampler: Sampler,
    size: int | tuple[int, int],
    channels: int | None = None,
    resize: Count | None = None,
    resize_mode: ResizeMode = "shortest",
    crop: Crop = "random",
    flip: bool = False,
    pad: Annotated[int, Ge(0)] = 0,
    pad_mode: str = "constant",
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    num_views: Literal[1, 2] = 1,
    seed: int = 0,
    prefetch: int = tf.data.AUTOTUNE,
    cache: Cache = "none",
) -> tf.data.Dataset:
    """Training batches as a sampler plans them.

    Every iteration is one epoch: it asks for `sampler.plan(sampler.epoch)`
    when it starts and counts `sampler.epoch` up, so that what a callback
    changes in `on_epoch_begin` holds for that epoch. Do not give `fit` a
    `steps_per_epoch`: it would keep one iteration going. Give it to the
    sampler.

    Views are a function of the seed, the epoch and the place in the epoch:
    two runs are equal to the last bit, and a run that is resumed by setting
    `sampler.epoch` goes on as if it had not stopped.

    Args:
        images: The images.
        sampler: A sampler of their labels.
        size: (height, width) of a view in pixels, or one number for both.
        channels: 1 or 3; by default those of the images, 3 for files.
        resize: As for `View`, and so is `resize_mode`.
        crop: "random", "random_resized" or "center": see `Augment`.
        flip: Whether to mirror half of the views, left to right.
        pad: Pixels added on every side before a "random" cut.
        pad_mode: "constant" (zeros) or "reflect".
        scale: Smallest and largest area of a "random_resized" window, as
            fractions of the image's.
        ratio: Smallest and largest width / height of such a window.
        num_views: 1, or 2 for two independent views of every image.
        seed: Seed of the views.
        prefetch: Batches made ahead.
        cache: Where files are kept decoded and resized, as uint8, which
            changes no pixel of a batch. All are decoded before the first
            epoch. "memory"; "disk", in `cache_folder()/decoded`, from where
            the next run takes them, until a file changes; "auto", memory
            if they take at most half of what is available, otherwise disk
            if there is room; or "none". The log says which, and how large.

    Returns:
        A dataset of `sampler.steps` batches `(x, y)`. `x` is float32 of
        shape (B, height, width, channels), 0..255; with two views it is
        `{"image": …, "image2": …}`. `y` is a dict of int64 (B,): "label",
        "index" (the row), and the sampler's targets.

    Raises:
        ValueError: If the sampler is for other labels, or an argument is
            not as described; with a cache, if a file cannot be decoded.
    """
    _check(images, sampler, num_views)
    height, width = (size, size) if isinstance(size, int) else size
    channels = channels or images.channels or 3
    view = View((height, width), channels, resize, resize_mode)
    augment = Augment(view, crop, flip, pad, pad_mode, scale, ratio)
    loader = Loader(images, cached(images, augment, cache))
    with tf.device("CPU:0"):
        labels = tf.constant(images.labels)

    def epoch(_: tf.Tensor) -> tf.data.Dataset:
        rows, targets, steps = _plan(sampler)
        draws = tf.map_fn(
            lambda step: tf.random.stateless_uniform(
                (sampler.batch_size, num_views, augment.draws),
                [seed, step],
                alg="philox",
            ),
            steps,
            fn_output_signature=tf.float32,
        )
        x = _batches(loader, augment, rows, draws)
        y = tf.data.Dataset.from_tensor_slices((rows, targets)).map(
            lambda rows, targets: {
                "label": tf.gather(labels, rows),
                "index": rows,
                **{
                    name: tf.fill([sampler.batch_size], targets[i])
                    for i, name in enumerate(sampler.target_names)
                },
            }
        )
        return tf.data.Dataset.zip(x, y)

    return (
        tf.data.Dataset.range(1)
        .flat_map(tf.autograph.experimental.do_not_convert(epoch))
        .apply(tf.data.experimental.assert_cardinality(sampler.steps))
        .prefetch(prefetch)
    )


def eval_batches(
    images: ImageSet, view: View, batch_size: int = 256
) -> tf.data.Dataset:
    """All images in the test view, in the order of the rows.

    Args:
        images: The images.
        view: What the model sees of them, as `View.of(model)`.
        batch_size: Images in a batch; the last one may have fewer.

    Returns:
        A dataset of float32 batches (B, height, width, channels), 0..255.
    """
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


def _plan(sampler: Sampler) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Plans the sampler's next epoch, whenever the graph runs.

    Rows, (S, B); targets, (S, T); the steps' numbers in all epochs, (S,).
    """

    def plan() -> tuple[Any, ...]:
        epoch = sampler.epoch
        rows = sampler.plan(epoch)
        targets = sampler.targets(epoch)
        columns = [targets[name] for name in sampler.target_names]
        steps = epoch * count + np.arange(count)
        sampler.epoch = epoch + 1
        table = np.stack([steps, *columns], axis=1)
        return rows, table[:, 1:], steps

    count = sampler.steps
    rows, targets, steps = tf.numpy_function(plan, [], [tf.int64] * 3)
    rows.set_shape((count, sampler.batch_size))
    targets.set_shape((count, len(sampler.target_names)))
    steps.set_shape((count,))
    return rows, targets, steps


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


def _check(images: ImageSet, sampler: Sampler, num_views: int) -> None:
    if not np.array_equal(sampler.labels, images.labels):
        raise ValueError(
            "`sampler` of pipeline must be made from the labels of "
            f"`images`. Received: {sampler!r} for {images!r}. Use for "
            "instance ClassBalanced(images.labels, classes_per_batch=32)."
        )
    if not 1 <= num_views <= len(VIEWS):
        raise ValueError(
            "`num_views` of pipeline must be 1 or 2. Received: "
            f"num_views={num_views!r}."
        )
