"""Pixels as a model expects them: from 0 to 255, with channels last."""

from __future__ import annotations

import logging
import weakref
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data.planned import map_batches
from keras_dml.utils.tensorflow import is_dataset, tf

logger = logging.getLogger(__name__)

_LARGEST_SCORE = 32.0
"""Standardized pixels are smaller; a photograph has some that are larger."""

_CENTERED = (-64.0, 160.0)
"""Pixels from 0 to 255 minus a mean are smaller, and none are larger."""

_LOOKED_AT = 4096
"""Number of images that are looked at."""

WRONG_PIXELS = (
    "Pixels of %s range from %.3g to %.3g, and the model scales pixels itself, "
    "so it %s. Pass pixels from 0 to 255."
)

_told: weakref.WeakSet[keras.Model] = weakref.WeakSet()


def expects_bytes(model: keras.Model) -> bool:
    """Whether a model scales pixels itself and so expects 0 to 255."""
    return any(
        layer.name == "preprocessing"
        or (
            isinstance(layer, keras.layers.Rescaling)
            and 0 < np.max(np.abs(layer.scale)) <= 1 / 32
        )
        or (
            isinstance(layer, keras.layers.Normalization)
            and layer.input_mean is not None
            and np.max(np.abs(layer.input_mean)) > _LARGEST_SCORE
        )
        for layer in model._flatten_layers()
    )


def wrong_range(images: npt.NDArray[Any]) -> tuple[float, float, str] | None:
    """How pixels differ from those of 0 to 255, if they clearly do.

    Args:
        images: (B, H, W, C).

    Returns:
        Their least and largest value, and what a model sees that divides them
        by 255; None if they may range from 0 to 255.
    """
    is_pixels = images.ndim == 4 and images.shape[-1] in (1, 3)
    if not is_pixels or images.dtype.kind not in "fiu" or not images.size:
        return None
    # Most images tell by their first one.
    if images[0].min() >= 0 and images[0].max() > 1:
        return None
    lowest, highest = float(images.min()), float(images.max())
    if _are_unit(lowest, highest):
        return lowest, highest, "sees almost nothing"
    if _are_moved(lowest, highest):
        return lowest, highest, "sees other images than it should"
    return None


def _are_unit(lowest: Any, highest: Any) -> Any:
    """Whether pixels, numbers or tensors, range from 0 to 1."""
    return (lowest >= 0) & (highest > 0) & (highest <= 1)


def _are_moved(lowest: Any, highest: Any) -> Any:
    """Whether pixels, numbers or tensors, are standardized or centered."""
    is_standardized = (lowest < 0) & (highest <= _LARGEST_SCORE)
    return is_standardized | (lowest < _CENTERED[0]) & (highest < _CENTERED[1])


def print_wrong_range(images: tf.Tensor, owner: str) -> tf.Operation:
    """Like `warn_of_range`, each time that a graph runs, to standard error.

    Args:
        images: (B, H, W, C), of any floating dtype.
        owner: What was given them.

    Returns:
        The operation that prints, if there is a reason.
    """
    lowest, highest = tf.reduce_min(images), tf.reduce_max(images)
    is_wrong = _are_unit(lowest, highest) | _are_moved(lowest, highest)
    return tf.cond(
        # Without images there are neither.
        is_wrong & (tf.size(images) > 0),
        lambda: tf.print(
            f"Pixels of {owner} range from", lowest, "to", highest,
            "and should range from 0 to 255: the embeddings are wrong.",
        ),
        tf.no_op,
    )  # fmt: skip


def warn_of_range(model: Any, x: Any, owner: str) -> None:
    """Warns, once per model, of pixels in a range that it does not expect.

    Args:
        model: A model.
        x: A batch of its inputs, of any kind.
        owner: The function that was given them.
    """
    is_model = isinstance(model, keras.Model) and model not in _told
    shape = getattr(x, "shape", ())
    if not is_model or len(shape) != 4 or not expects_bytes(model):
        return
    found = wrong_range(np.asarray(x[:_LOOKED_AT]))
    if found is not None:
        _told.add(model)
        logger.warning(WRONG_PIXELS, owner, *found)


def watched(model: keras.Model, data: Any, owner: str) -> Any:
    """Inputs, of which `warn_of_range` sees the first batch on its way.

    A dataset may give its batches only once. Generators are not looked at.

    Args:
        model: A model.
        data: Arrays, a `tf.data.Dataset`, a generator or a `PyDataset`, with
            or without labels.
        owner: The function that was given them.
    """

    def look_first(step: Any, batch: Any) -> Any:
        def on_host(x: npt.NDArray[Any]) -> bool:
            warn_of_range(model, x, owner)
            return True

        seen = tf.cond(
            step == 0,
            lambda: tf.numpy_function(on_host, [_inputs_of(batch)], tf.bool),
            lambda: True,
        )
        with tf.control_dependencies([seen]):
            return tf.nest.map_structure(tf.identity, batch)

    if model in _told or not expects_bytes(model):
        return data
    if isinstance(data, keras.utils.PyDataset):
        # Keras reads it more than once, too.
        warn_of_range(model, _inputs_of(data[0]), owner)
    elif not is_dataset(data):
        warn_of_range(model, data, owner)
    elif _is_tensor(_inputs_of(data.element_spec)):
        whole = tf.autograph.experimental.do_not_convert(look_first)
        return map_batches(data, lambda batches: batches.enumerate().map(whole))
    return data


def _inputs_of(batch: Any) -> Any:
    return keras.utils.unpack_x_y_sample_weight(batch)[0]


def _is_tensor(spec: Any) -> bool:
    return isinstance(spec, tf.TensorSpec) and spec.shape.rank in (4, None)


def check_channels_last(model: Any, x: Any, name: str, owner: str) -> None:
    """Raises `ValueError` for images, (3, H, W), of a model of RGB images.

    They would be taken for three gray images.

    Args:
        model: A model.
        x: The argument `name` of `owner`, of any kind, or with labels, (x, y).
        name: The argument.
        owner: The function that has it.
    """
    if isinstance(x, tuple) and x:
        x, name = x[0], f"{name}[0]"
    wanted: Any = getattr(model, "input_shape", None)
    given: tuple[int, ...] = getattr(x, "shape", ())
    is_rgb = isinstance(wanted, tuple) and len(wanted) == 4 and wanted[3] == 3
    is_first = len(given) in (3, 4) and given[-3] == 3 and given[-1] != 3
    if is_rgb and is_first and given[-1] != 1:
        raise ValueError(
            f"`{name}` of {owner} must be images with channels last, (H, W, "
            f"C). Received: shape {tuple(given)}. Use numpy.moveaxis({name}, "
            "-3, -1); for three gray images, add an axis: (3, H, W, 1)."
        )
