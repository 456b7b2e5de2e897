"""Attention on top of the images: what each group looks at."""

from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dml.data.fields import Pixels
from keras_dml.data.pictures import class_name, seen
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.visualization.attention import resize_maps, strongest_images
from keras_dml.visualization.canvas import (
    head,
    new_figure,
    no_frame,
    show_image,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from keras_dml.visualization.data_figure import DataFigure

CELL = 0.95
"""Inches of an image."""


def attention_overlays(
    images: Any,
    maps: FloatArray,
    rows: Rows,
    view: Any,
    *,
    part: str = "group",
) -> "DataFigure":
    """Images, and the attention of every group on them (Figures 2 and 5).

    A row of the figure is an image: as it is, then once for each group,
    bright where the group attends. Each map has its own scale, from its
    smallest weight to its largest, which are printed below it.

    Args:
        images: An `ImageSet` of N images.
        maps: (N, h, w, P) of `attention_maps`.
        rows: (n,) images to show.
        view: A `keras_dml.data.View`, as `View.of(model)`.
        part: What the method calls a group.

    Returns:
        A figure; its data are row, group from 1, position in the map (y
        and x, from 0) and weight.

    Raises:
        ValueError: If there are no images to show.

    Reference:
        Xu et al., "Towards Improved and Interpretable Deep Metric Learning
        via Attentive Grouping", 2020, Figures 2 and 5.
    """
    rows = np.asarray(rows, np.int64)
    if not len(rows):
        raise ValueError(
            "`rows` of attention_overlays must not be empty. Received: none."
        )
    groups = maps.shape[3]
    pictures = seen(images, rows, view)
    overlays = resize_maps(maps[rows], pictures.shape[1:3])
    figure = new_figure(
        _weights_table(maps, rows, part),
        width=CELL * (groups + 1) + 0.2,
        height=1.2 * len(rows) + 0.6,
    )
    grid = figure.subplots(len(rows), groups + 1, squeeze=False)
    for i, row in enumerate(rows.tolist()):
        show_image(grid[i, 0], pictures[i])
        grid[i, 0].set_xlabel(class_name(images, row, 12), fontsize=9)
        no_frame(grid[i, 0])
        for k in range(groups):
            draw_overlay(grid[i, k + 1], pictures[i], overlays[i, ..., k])
            weights = maps[row, ..., k]
            ends = f"{weights.min():.2f} – {weights.max():.2f}"
            grid[i, k + 1].set_xlabel(ends, fontsize=9)
    for k in range(groups):
        grid[0, k + 1].set_title(f"{part} {k + 1}", fontsize=9)
    head(figure, f"Attention of each {part}")
    return figure


def strongest_attention(
    images: Any,
    maps: FloatArray,
    view: Any,
    *,
    count: int = 12,
    part: str = "group",
) -> "DataFigure":
    """The images to which each group attends most (Figures 3 and 4).

    For each group two rows: the images and, below them, its attention.

    Args:
        images: An `ImageSet` of N images.
        maps: (N, h, w, P) of `attention_maps`.
        view: A `keras_dml.data.View`, as `View.of(model)`.
        count: Images of each group.
        part: What the method calls a group.

    Returns:
        A figure; its data are group and place from 1, row, class and the
        largest weight in the map.

    Raises:
        ValueError: If `count` is not a positive integer.

    Reference:
        As `attention_overlays`, Figures 3 and 4.
    """
    check_count("strongest_attention", "count", count)
    strongest = strongest_images(maps, count)  # (P, count)
    groups, count = strongest.shape
    group, place = (x.ravel() for x in np.indices(strongest.shape))
    flat = strongest.ravel()
    figure = new_figure(
        {
            part: group + 1,
            "place": place + 1,
            "row": flat,
            "class": images.labels[flat],
            "largest weight": maps[flat, ..., group].max(axis=(1, 2)),
        },
        width=0.72 * count + 0.4,
        height=1.62 * groups + 0.5,
    )
    head(figure, f"The {count} images to which each {part} attends most")
    for number, (rows, strip) in enumerate(
        zip(
            strongest,
            figure.subfigures(groups, 1, squeeze=False)[:, 0],
            strict=True,
        )  # fmt: skip
    ):
        pictures = seen(images, rows, view)
        overlays = resize_maps(maps[rows], pictures.shape[1:3])[..., number]
        strip.supylabel(f"{part} {number + 1}", fontsize=10)
        grid = strip.subplots(2, count, squeeze=False)
        for at in range(count):
            show_image(grid[0, at], pictures[at])
            no_frame(grid[0, at])
            draw_overlay(grid[1, at], pictures[at], overlays[at])
    return figure


def draw_overlay(axes: "Axes", picture: Pixels, weights: FloatArray) -> None:
    """Draws an image in gray, and on it attention by color and height.

    The contour at half of the height shows the same without color.
    """
    gray = picture.mean(axis=2)
    show_image(axes, gray)
    low, high = float(weights.min()), float(weights.max())
    scaled = (weights - low) / (high - low if high > low else 1.0)
    axes.imshow(
        scaled, cmap="magma", vmin=0, vmax=1, alpha=0.55, interpolation="none"
    )
    if high > low:
        axes.contour(scaled, levels=[0.5], colors="white", linewidths=0.9)
    no_frame(axes)


def _weights_table(maps: FloatArray, rows: Rows, part: str) -> dict[str, Any]:
    shown = maps[rows]
    image, y, x, group = (i.ravel() for i in np.indices(shown.shape))
    return {
        "row": rows[image],
        part: group + 1,
        "y": y,
        "x": x,
        "weight": shown.ravel(),
    }
