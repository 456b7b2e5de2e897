"""Attention of groups and learners, as arrays and figures.

The file is longer than others because its three figures draw the same maps, and
each documents its arguments.
"""

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from keras_dml.backbones.tokens import image_shape, patch_grid
from keras_dml.data import View
from keras_dml.data.pictures import (
    class_column,
    class_name,
    only_images,
    pictures_of,
)
from keras_dml.data.validation import Pixels
from keras_dml.layers import TokenMask
from keras_dml.utils.arguments import check_count, check_not_empty
from keras_dml.utils.types import FloatArray, Rows, Tensor
from keras_dml.visualization.canvas import add_title, new_figure, show_image
from keras_dml.visualization.outputs import head_outputs, output_shapes, predict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from keras_dml.visualization.data_figure import DataFigure


def attention_maps(
    model: keras.Model,
    images: Any,
    batch_size: int = 256,
    progress: bool | None = None,
) -> FloatArray:
    """Computes the attention of a model's groups or learners for all images.

    Works for every model whose head has an output `"attention"`: either maps,
    (B, h, w, P), as in attentive grouping with A- and G-grouping, or masks with
    a value for each channel, (B, P, h, w, C), as in attention-based ensembles,
    which are averaged over channels. If the model attends to tokens, (B, T, …)
    instead of (B, h, w, …), the tokens that stand for image patches are
    arranged on their grid; the class token and registers are left out.

    Args:
        model: A `MetricModel`.
        images: An `ImageSet` of N images, seen in their test view.
        batch_size: Number of images processed at a time.
        progress: Whether to show progress; by default, only in a terminal.

    Returns:
        (N, h, w, P) float32: a map for each of the P groups, on the grid of the
        features (Eq. 9). Use `resize_maps` to resize them to the images.

    Raises:
        ValueError: If there are no images, or the model has no attention, or
            attends to tokens that are not on a grid.

    Reference:
        Xu et al., "Towards Improved and Interpretable Deep Metric Learning
        via Attentive Grouping", 2020, Sec. 3.3.
    """
    outputs = output_shapes(model)
    if "attention" not in outputs:
        raise ValueError(
            "`model` of attention_maps must have a head with the output "
            f'"attention". Received: {model!r} with outputs '
            f"{sorted(outputs)}. Use for instance "
            'methods.attentive_grouping(backbone, grouping="A").'
        )
    rank = len(model.backbone.output_shape)
    patches = _patches(model) if rank == 3 else None

    def maps(outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        attention = ops.cast(outputs["attention"], "float32")
        if len(attention.shape) > rank:
            masks = ops.mean(attention, axis=-1)  # (B, P, h, w) or (B, P, T)
            attention = ops.moveaxis(masks, 1, -1)
        if patches is not None:
            prefix, *grid = patches
            shape = -1, *grid, attention.shape[-1]
            attention = ops.reshape(attention[:, prefix:], shape)
        return {"maps": attention}

    return predict(model, images, maps, batch_size, progress)["maps"]


def _patches(model: keras.Model) -> tuple[int, int, int]:
    """Tokens in front of the patches, and the height and width of the grid."""
    count = model.backbone.output_shape[1]
    grid, prefix = None, 0
    for layer in model._flatten_layers():
        if isinstance(layer, TokenMask):
            grid, prefix = layer.grid, layer.num_prefix_tokens
    image = image_shape(model.backbone)
    if grid is None and image is not None:
        grid = patch_grid(count, *image[1:3])
    if grid is None:
        raise ValueError(
            "`model` of attention_maps must attend to a feature map, or to "
            f"tokens that stand for image patches. Received: {model!r} with "
            f"{count} tokens for inputs of shape {model.backbone.input_shape}. "
            "Use `backbones.get(…, num_prefix_tokens=1)` if the first is a "
            'class token, or `head_outputs(model, examples, ["attention"])` '
            "for the numbers."
        )
    height, width = grid
    return prefix, height, width


def resize_maps(maps: FloatArray, size: tuple[int, int]) -> FloatArray:
    """Resizes attention maps to the size of the images, bilinearly (Eq. 10).

    Args:
        maps: (N, h, w, P).
        size: Height and width of the images, in pixels.

    Returns:
        (N, *size, P) float32. Pixel centers are aligned as if the image were
        divided into h × w cells; values are extended beyond the outermost
        centers.

    Raises:
        ValueError: If `maps` has the wrong rank.
    """
    _check_maps("resize_maps", maps)
    resized = ops.image.resize(
        np.asarray(maps, "float32"),
        size,
        interpolation="bilinear",
        data_format="channels_last",
    )
    return ops.convert_to_numpy(resized)


def encoded_maps(maps: FloatArray) -> list[str]:
    """The maps of an image, (h, w, P), for a page: P texts in base 64.

    Of each map, the byte of the smallest weight is 0, of the largest 255.
    """
    low, high = maps.min(axis=(0, 1)), maps.max(axis=(0, 1))
    scaled = (maps - low) / np.where(high > low, high - low, 1)
    levels = np.rint(255 * scaled).astype(np.uint8)
    each = np.moveaxis(levels, -1, 0)
    return [base64.b64encode(x.tobytes()).decode() for x in each]


def strongest_images(maps: FloatArray, num_images: int = 12) -> Rows:
    """The images to which each group attends most (Figures 3 and 4).

    Images are ranked by the largest weight in the group's map, with ties in the
    order of the rows.

    Args:
        maps: (N, h, w, P) attention maps of N images.
        num_images: Number of images per group; all images if there are fewer.

    Returns:
        (P, num_images) rows, strongest first.

    Raises:
        ValueError: If `maps` has the wrong rank or `num_images` is below 1.
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


CELL = 0.95
"""Inches of an image."""


def attention_overlays(
    images: Any, maps: FloatArray, rows: Rows, view: Any, *, part: str = "group"
) -> "DataFigure":
    """Shows images and the attention of every group (Figures 2 and 5).

    Each row of the figure shows one image: first unchanged, then once for each
    group, bright where the group attends. Each map has its own scale, from its
    smallest to its largest weight, which are printed below it.

    Args:
        images: An `ImageSet` of N images.
        maps: (N, h, w, P), from `attention_maps`.
        rows: (n,) rows of the images to show.
        view: A `keras_dml.data.View`, such as `View.of(model)`.
        part: The method's name for a group.

    Returns:
        A figure. Its data columns are row, group (from 1), position in the map
        (y and x, from 0) and weight.

    Raises:
        ValueError: If there are no images to show.

    Reference:
        As `attention_maps`, Figures 2 and 5.
    """
    rows = np.asarray(rows, np.int64)
    check_not_empty("attention_overlays", "rows", rows)
    only_images(images, "attention_overlays")
    groups = maps.shape[3]
    pictures = pictures_of(images, rows, view)
    overlays = resize_maps(maps[rows], pictures.shape[1:3])
    image, y, x, group = (i.ravel() for i in np.indices(maps[rows].shape))
    figure = new_figure(
        {
            "row": rows[image],
            part: group + 1,
            "y": y,
            "x": x,
            "weight": maps[rows].ravel(),
        },
        width=CELL * (groups + 1) + 0.2,
        height=1.2 * len(rows) + 0.6,
    )
    grid = figure.subplots(len(rows), groups + 1, squeeze=False)
    for i, row in enumerate(rows.tolist()):
        show_image(grid[i, 0], pictures[i])
        grid[i, 0].set_xlabel(class_name(images, row, 12), fontsize=9)
        for k in range(groups):
            draw_overlay(grid[i, k + 1], pictures[i], overlays[i, ..., k])
            weights = maps[row, ..., k]
            ends = f"{weights.min():.2f} – {weights.max():.2f}"
            grid[i, k + 1].set_xlabel(ends, fontsize=9)
    for k in range(groups):
        grid[0, k + 1].set_title(f"{part} {k + 1}", fontsize=9)
    add_title(figure, f"Attention of each {part}")
    return figure


def strongest_attention(
    images: Any,
    maps: FloatArray,
    view: Any,
    *,
    num_images: int = 12,
    part: str = "group",
) -> "DataFigure":
    """The images to which each group attends most (Figures 3 and 4).

    There are two rows for each group: the images and, below them, its
    attention.

    Args:
        images: An `ImageSet` of N images.
        maps: (N, h, w, P), from `attention_maps`.
        view: A `keras_dml.data.View`, such as `View.of(model)`.
        num_images: Number of images per group.
        part: The method's name for a group.

    Returns:
        A figure. Its data columns are group and rank (from 1), row, class and
        the largest weight in the map.

    Raises:
        ValueError: If `num_images` is not a positive integer.

    Reference:
        As `attention_maps`, Figures 3 and 4.
    """
    check_count("strongest_attention", "num_images", num_images)
    only_images(images, "strongest_attention")
    strongest = strongest_images(maps, num_images)  # (P, count)
    groups, count = strongest.shape
    group, place = (x.ravel() for x in np.indices(strongest.shape))
    flat = strongest.ravel()
    figure = new_figure(
        {
            part: group + 1,
            "place": place + 1,
            "row": flat,
            "class": class_column(images, flat),
            "largest weight": maps[flat, ..., group].max(axis=(1, 2)),
        },
        width=0.72 * count + 0.4,
        height=1.62 * groups + 0.5,
    )
    add_title(figure, f"The {count} images to which each {part} attends most")
    strips = figure.subfigures(groups, 1, squeeze=False)[:, 0]
    for number, strip in enumerate(strips):
        rows = strongest[number]
        pictures = pictures_of(images, rows, view)
        overlays = resize_maps(maps[rows], pictures.shape[1:3])[..., number]
        strip.supylabel(f"{part} {number + 1}", fontsize=10)
        grid = strip.subplots(2, count, squeeze=False)
        for at in range(count):
            show_image(grid[0, at], pictures[at])
            draw_overlay(grid[1, at], pictures[at], overlays[at])
    return figure


def draw_overlay(axes: "Axes", picture: Pixels, weights: FloatArray) -> None:
    """Draws an image in gray, and on it attention by color and height.

    The contour at half of the height shows the same without color.
    """
    show_image(axes, picture.mean(axis=2))
    low, high = float(weights.min()), float(weights.max())
    scaled = (weights - low) / (high - low if high > low else 1.0)
    axes.imshow(
        scaled, cmap="magma", vmin=0, vmax=1, alpha=0.55, interpolation="none"
    )
    if high > low:
        axes.contour(scaled, levels=[0.5], colors="white", linewidths=0.9)


def attention_masks(
    model: keras.Model,
    images: Any,
    rows: Rows,
    *,
    learners: Sequence[int] | None = None,
    channels: Sequence[int] | None = None,
) -> "DataFigure":
    """Shows attention masks by learner and channel (ABE, Figure 6).

    Each column shows an image, below it the learners' masks for each channel,
    and at the bottom the mean of all masks over learners and channels.

    Args:
        model: A `MetricModel` whose head has the output `"attention"`,
            (B, M, h, w, C), such as one from `methods.abe`.
        images: An `ImageSet`.
        rows: (n,) rows of the images to show.
        learners: Learners to show, counted from 0; by default the first three,
            as in the paper.
        channels: Channels to show, counted from 0; by default the three whose
            masks differ most between learners on these images.

    Returns:
        A figure. Its data columns are row, channel ("mean" at the bottom),
        learner (from 1; "all" at the bottom), position in the mask (y and x,
        from 0) and value.

    Raises:
        ValueError: If the model does not have these masks.

    Reference:
        Kim et al., "Attention-based Ensemble for Deep Metric Learning",
        ECCV 2018, Figure 6.
    """
    rows = np.asarray(rows, np.int64)
    only_images(images, "attention_masks")
    outputs = head_outputs(model, images.select(rows), ["attention"])
    masks = outputs.get("attention", np.empty(0))
    if masks.ndim != 5:
        raise ValueError(
            "`model` of attention_masks must have masks by learner and "
            f"channel. Received: {model!r}. Use a model from `methods.abe`."
        )
    if learners is None:
        learners = range(min(3, masks.shape[1]))
    if channels is None:
        channels = most_different_channels(masks)
    panels = {
        (str(channel), str(learner + 1)): masks[:, learner, :, :, channel]
        for channel in channels
        for learner in learners
    }
    panels["mean", "all"] = masks.mean(axis=(1, 4))
    return _draw_masks(images, rows, panels, View.of(model))


def most_different_channels(
    masks: FloatArray, num_channels: int = 3
) -> list[int]:
    """The channels of (n, M, h, w, C) masks that differ most by learner.

    They have the largest standard deviation over learners, averaged over images
    and positions; the largest comes first.
    """
    spread = masks.std(axis=1).mean(axis=(0, 1, 2))
    order: Rows = np.argsort(-spread, kind="stable")[:num_channels]
    return order.tolist()


def _draw_masks(
    images: Any,
    rows: Rows,
    panels: dict[tuple[str, str], FloatArray],
    view: View,
) -> "DataFigure":
    """Draws masks, (n, h, w), by channel and learner."""
    pictures = pictures_of(images, rows, view)
    stacked = np.stack(list(panels.values()))  # (masks, n, h, w)
    mask, image, y, x = (i.ravel() for i in np.indices(stacked.shape))
    channels, learners = np.array(list(panels)).T
    figure = new_figure(
        {
            "row": rows[image],
            "channel": channels[mask],
            "learner": learners[mask],
            "y": y,
            "x": x,
            "value": stacked.ravel(),
        },
        width=CELL * len(rows) + 1.3,
        height=CELL * (len(panels) + 1) + 0.6,
    )
    grid = figure.subplots(len(panels) + 1, len(rows), squeeze=False)
    for i, row in enumerate(rows.tolist()):
        show_image(grid[0, i], pictures[i])
        grid[0, i].set_title(class_name(images, row, 12), fontsize=9)
    for (channel, learner), axes in zip(panels, grid[1:], strict=True):
        values = panels[channel, learner]
        overlays = resize_maps(values[..., None], pictures.shape[1:3])
        for i, cell in enumerate(axes):
            draw_overlay(cell, pictures[i], overlays[i, ..., 0])
        name = f"channel {channel}\nlearner {learner}"
        axes[0].set_ylabel(
            "mean of all" if channel == "mean" else name,
            fontsize=9,
            rotation=0,
            ha="right",
            va="center",
        )
    add_title(figure, "Attention masks")
    return figure
