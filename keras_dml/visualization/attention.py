"""Attention: what groups and learners of a model look at, as arrays."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import FloatArray, Rows, Tensor
from keras_dml.visualization.outputs import output_shapes, predict


def attention_maps(
    model: keras.Model,
    images: Any,
    batch_size: int = 256,
    progress: bool | None = None,
) -> FloatArray:
    """The attention of a model's groups or learners, for all images.

    Works for every model whose head has an output `"attention"`, either
    maps, (B, h, w, P), as of attentive grouping with A- and G-grouping, or
    masks with a value for each channel, (B, P, h, w, C), as of
    attention-based ensembles; these count with their mean over channels.

    Args:
        model: A `MetricModel`.
        images: An `ImageSet` of N images, seen in their test view.
        batch_size: Images computed at a time.
        progress: Whether to show progress; None shows it in a terminal.

    Returns:
        (N, h, w, P) float32: a map for each of P groups, on the grid of
        the features (Eq. 9). `resize_maps` brings them to image size.

    Raises:
        ValueError: If there are no images, or the model gives no
            attention.

    Reference:
        Xu et al., "Towards Improved and Interpretable Deep Metric Learning
        via Attentive Grouping", 2020, Sec. 3.3.
    """
    _check_model(model)
    found = predict(model, images, _maps, batch_size, progress)
    return found["maps"]


def _maps(outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    attention = ops.cast(outputs["attention"], "float32")
    if len(attention.shape) == 5:
        masks = ops.mean(attention, axis=-1)  # (B, P, h, w)
        attention = ops.transpose(masks, (0, 2, 3, 1))
    return {"maps": attention}


def _check_model(model: keras.Model) -> None:
    outputs = output_shapes(model)
    if "attention" not in outputs:
        raise ValueError(
            "`model` of attention_maps must have a head with the output "
            f'"attention". Received: {model!r} with outputs '
            f"{sorted(outputs)}. Use for instance "
            'methods.attentive_grouping(backbone, grouping="A").'
        )


def resize_maps(maps: FloatArray, size: tuple[int, int]) -> FloatArray:
    """Attention maps resized to images, bilinearly (Eq. 10).

    Args:
        maps: (N, h, w, P).
        size: Height and width of the images, in pixels.

    Returns:
        (N, *size, P) float32. Pixel centers are aligned as if the image
        were cut into h × w cells; beyond the outermost centers the border
        continues.

    Raises:
        ValueError: If `maps` has another rank.
    """
    _check_maps("resize_maps", maps)
    resized = ops.image.resize(
        np.asarray(maps, "float32"),
        size,
        interpolation="bilinear",
        data_format="channels_last",
    )
    return ops.convert_to_numpy(resized)


def strongest_images(maps: FloatArray, num_images: int = 12) -> Rows:
    """The images to which each group attends most (Figures 3 and 4).

    Images are ranked by the largest weight in the group's map, equals in
    the order of their rows.

    Args:
        maps: (N, h, w, P) attention maps of N images.
        num_images: Images of each group; all if there are fewer.

    Returns:
        (P, num_images) rows, the strongest first.

    Raises:
        ValueError: If `maps` has another rank or `num_images` is below 1.
    """
    _check_maps("strongest_images", maps)
    check_count("strongest_images", "num_images", num_images)
    strongest = np.asarray(maps).max(axis=(1, 2))  # (N, P)
    order = np.argsort(-strongest, axis=0, kind="stable")
    return order[:num_images].T.astype(np.int64)


def _check_maps(owner: str, maps: FloatArray) -> None:
    if np.ndim(maps) != 4:
        raise ValueError(
            f"`maps` of {owner} must be attention maps, (N, h, w, P). "
            f"Received: an array of shape {np.shape(maps)}."
        )
