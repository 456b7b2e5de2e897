"""Pipelines of tf.data: batches for training and for evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from keras_dml.data.augmentations import Augmentations, AugmentBy
from keras_dml.data.batches import Views, batches_in_order, planned_batches
from keras_dml.data.caching import Cache
from keras_dml.data.examples import WHOLE_BATCH, Examples, check_examples
from keras_dml.data.planned import check_made_from, parts_of, planned_by
from keras_dml.data.resizing import ResizeMode
from keras_dml.data.samplers import RelationSampler, Sampler
from keras_dml.data.view import Crop, PadMode, View
from keras_dml.utils.arguments import check_arguments
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import AnyInteger, Count, Side

AUTOTUNE = -1
"""The value of `tf.data.AUTOTUNE`."""


@check_arguments
def pipeline(
    examples: Examples,
    sampler: Sampler,
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    resize: Side | None = None,
    resize_mode: ResizeMode = "shortest",
    crop: Crop = "random",
    flip: bool = False,
    pad: Annotated[int, Ge(0), Le(2**15)] = 0,
    pad_mode: PadMode = "constant",
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    augment: Augmentations | None = None,
    augment_by: AugmentBy = "batch",
    num_views: Literal[1, 2] = 1,
    seed: AnyInteger = 0,
    prefetch: int = AUTOTUNE,
    cache: Cache = "none",
) -> tf.data.Dataset:
    """Training batches as planned by a sampler.

    Every iteration is one epoch: when it starts, it requests
    `sampler.plan(sampler.epoch)` and increments `sampler.epoch`, so changes
    that a callback makes in `on_epoch_begin` apply to that epoch. Do not pass
    `steps_per_epoch` to `fit`, which would span epochs with one iteration.
    Pass it to the sampler.

    Views are a function of the seed, the epoch and the position in the epoch:
    two runs are bit-identical, and a run that is resumed by setting
    `sampler.epoch` continues as if it had not been interrupted.

    Of a JPEG file, only the part that a view shows is decoded, and of a large
    one at a half, a quarter or an eighth of its size, which leaves at least
    twice the pixels that the view has.

    Args:
        examples: An `ImageSet`, `ArraySet` or other `Examples`, with labels.
        sampler: A sampler of their labels.
        size: For images: (height, width) of a view in pixels, or one number
            for both. This and all further arguments except `augment`,
            `augment_by`, `num_views`, `seed` and `prefetch` apply to images
            only.
        channels: 1 or 3; by default those of the images, 3 for files.
        resize: See `View`.
        resize_mode: See `View`.
        crop: What is cropped from the resized image. "random": a window of
            the view's size. "random_resized": a window of random area and
            aspect ratio, resized to the view's size; without `resize`, it is
            cropped from the original image. "center": the window of the test
            view.
        flip: Whether to mirror half of the views horizontally.
        pad: Pixels added on every side before a "random" crop.
        pad_mode: "constant" (zeros) or "reflect".
        scale: Smallest and largest area of a "random_resized" window, as
            fractions of the image area.
        ratio: Smallest and largest width / height of a "random_resized"
            window.
        augment: Further augmentation of the views, after cropping: a Keras
            layer, a function, a list of these, or a mapping from names of
            Keras layers to their arguments, such as {"random_color_jitter":
            {"brightness_factor": 0.2}, "rand_augment": {}}. Each takes and
            returns float32 pixels, 0..255, of one shape. For arrays, it takes
            and returns the model's input: rows of their own type, or a dict of
            these. A function with an argument `seed` is given a seed, (2,)
            int64, for functions such as `tf.random.stateless_uniform`.
        augment_by: What `augment` takes: a "batch", (B, height, width,
            channels), or one "image" (for arrays, one row) at a time, which is
            slower. Some layers, such as `RandAugment`, choose their
            transformations once per call.
        num_views: 1, or 2 for two independent views of every example. For
            arrays, 2 requires `augment`, because the views would be equal
            without it.
        seed: Seed of the views.
        prefetch: Number of batches to prepare in advance.
        cache: Where to keep decoded and resized files, as uint8, which does
            not change any pixel of a batch (but those of "random_resized"
            windows of large photographs without `resize`, which are kept
            whole). All are decoded before the first epoch. "memory"; "disk",
            in `cache_folder()/decoded`, where the next run finds them, until a
            file changes; "auto", memory if they need at most half of what is
            available, otherwise disk if there is enough space; or "none". The
            log reports the place and the size.

    Returns:
        A dataset of `sampler.steps` batches `(x, y)`. For images, `x` is
        float32 of shape (B, height, width, channels), 0..255; with two views
        it is `{"image": …, "image2": …}`. For arrays, it is their rows, (B,
        ...), of their own type, or a dict of these. `y` is a dict of int64
        (B,): "label", "index" (the row), and the sampler's targets. "label" is
        (B, C) booleans if examples have several labels each, and the relation
        matrix, (B, B), with a `RelationSampler`.

    Raises:
        ValueError: If the examples have no labels, if the sampler was made
            from other labels, or an argument is not as described; with a
            cache, if a file cannot be decoded.
    """
    arguments = dict(locals())
    check_examples(examples, "pipeline")
    if not isinstance(sampler, Sampler):
        raise ValueError(
            "`sampler` of pipeline must be a Sampler. Received: "
            f"{type(sampler).__name__}. Use, for example, "
            "ClassBalanced(examples.labels, classes_per_batch=32)."
        )
    labels_of_rows = _labels_by_rows(examples, sampler)
    # All fields of `Views` are arguments of the same name.
    views = Views(
        **{field.name: arguments[field.name] for field in fields(Views)}
    )
    batches = planned_batches(examples, views)

    def targets_of(rows: tf.Tensor, targets: tf.Tensor) -> dict[str, Any]:
        return {
            "label": labels_of_rows(rows),
            "index": rows,
            **{name: targets[i] for i, name in enumerate(sampler.target_names)},
        }

    def parts(part: slice, first_step: int) -> tf.data.Dataset:
        def epoch(_: tf.Tensor) -> tf.data.Dataset:
            rows, targets, steps = (x[first_step:] for x in _plan(sampler))
            x = batches(rows, steps, part)
            y = tf.data.Dataset.from_tensor_slices((rows, targets)).map(
                targets_of
            )
            return tf.data.Dataset.zip(x, parts_of(y, part))

        count = sampler.steps - first_step
        return (
            tf.data.Dataset.range(1)
            .flat_map(tf.autograph.experimental.do_not_convert(epoch))
            .apply(tf.data.experimental.assert_cardinality(count))
            .prefetch(prefetch)
        )

    return planned_by(sampler, examples, parts(WHOLE_BATCH, 0), parts)


@check_arguments
def eval_batches(
    examples: Examples, view: View | None = None, batch_size: Count = 256
) -> tf.data.Dataset:
    """All examples in the order of the rows, images in their test view.

    Args:
        examples: An `ImageSet`, `ArraySet` or other `Examples`.
        view: How images are prepared for the model, such as `View.of(model)`.
        batch_size: Number of examples per batch; the last one may have fewer.

    Returns:
        A dataset of batches: float32 images, (B, height, width, channels),
        0..255; or rows of arrays, (B, ...), or a dict of these.
    """
    batches = batches_in_order(examples, view, batch_size)
    # An iterator waits at its end for the thread that tunes the pipeline, for
    # up to half a second, which is long for one pass over a few thousand rows.
    options = tf.data.Options()
    options.autotune.enabled = False
    return batches.with_options(options)


def _plan(sampler: Sampler) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The next epoch's rows, (S, B), targets, (S, T, B), and steps, (S,).

    Steps are counted over all epochs.
    """

    def plan() -> tuple[Any, ...]:
        epoch = sampler.epoch
        rows = sampler.plan(epoch)
        targets = sampler.targets(epoch)
        table = np.empty(targets_shape, np.int64)
        for i, name in enumerate(sampler.target_names):
            # One number per batch holds for all of its images.
            table[:, i] = targets[name].reshape(count, -1)
        sampler.epoch = epoch + 1
        return rows, table, epoch * count + np.arange(count)

    count = sampler.steps
    targets_shape = (count, len(sampler.target_names), sampler.batch_size)
    rows, targets, steps = tf.numpy_function(plan, [], [tf.int64] * 3)
    rows.set_shape((count, sampler.batch_size))
    targets.set_shape(targets_shape)
    steps.set_shape((count,))
    return rows, targets, steps


def _labels_by_rows(
    examples: Examples, sampler: Sampler
) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function from the rows of a batch to its labels, within a graph."""
    check_made_from(sampler, examples, "pipeline")
    if isinstance(sampler, RelationSampler):
        shape = sampler.batch_size, sampler.batch_size
        relate = sampler.batch_labels
        return lambda rows: tf.ensure_shape(
            tf.numpy_function(relate, [rows], tf.int64), shape
        )
    with tf.device("CPU:0"):
        constant = tf.constant(examples.labels)
    return lambda rows: tf.gather(constant, rows)
