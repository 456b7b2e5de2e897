"""The attention masks of an attention-based ensemble."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_dml.data.pictures import class_name, seen
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.visualization.attention import resize_maps
from keras_dml.visualization.attention_figures import CELL, draw_overlay
from keras_dml.visualization.canvas import (
    head,
    new_figure,
    no_frame,
    show_image,
)
from keras_dml.visualization.outputs import head_outputs

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure


def attention_masks(
    model: keras.Model,
    images: Any,
    rows: Rows,
    *,
    learners: Sequence[int] | None = None,
    channels: Sequence[int] | None = None,
) -> "DataFigure":
    """Masks by learner and channel (ABE, Figure 6).

    A column is an image. Below it, for each channel, the masks of the
    learners, one below the other; and at the bottom the mean of all
    learners' masks over all channels.

    Args:
        model: A `MetricModel` whose head gives `"attention"`,
            (B, M, h, w, C), as of `methods.abe`.
        images: An `ImageSet`.
        rows: (n,) images to show.
        learners: Learners to show, from 0; the first three by default, as
            in the paper.
        channels: Channels to show, from 0; by default the three whose
            masks differ most between the learners on these images.

    Returns:
        A figure; its data are row, channel ("mean" at the bottom),
        learner from 1 ("all" at the bottom), position in the mask (y and
        x, from 0) and value.

    Raises:
        ValueError: If the model has no such masks.

    Reference:
        Kim et al., "Attention-based Ensemble for Deep Metric Learning",
        ECCV 2018, Figure 6.
    """
    rows = np.asarray(rows, np.int64)
    found = head_outputs(model, images.select(rows), ["attention"])
    masks = found.get("attention", np.empty(0))
    if masks.ndim != 5:
        raise ValueError(
            "`model` of attention_masks must give masks by learner and "
            f"channel. Received: {model!r}. Use a model of `methods.abe`."
        )
    if learners is None:
        learners = range(min(3, masks.shape[1]))
    if channels is None:
        channels = most_different_channels(masks)
    shown = {
        (str(channel), str(learner + 1)): masks[:, learner, :, :, channel]
        for channel in channels
        for learner in learners
    }
    shown["mean", "all"] = masks.mean(axis=(1, 4))
    return _draw(images, rows, shown, _view(model))


def most_different_channels(masks: FloatArray, count: int = 3) -> list[int]:
    """The channels whose masks differ most between learners.

    Args:
        masks: (n, M, h, w, C).
        count: How many channels.

    Returns:
        Channels by the standard deviation over learners, averaged over
        images and positions, the largest first.
    """
    spread = masks.std(axis=1).mean(axis=(0, 1, 2))
    order = np.argsort(-spread, kind="stable")[:count]
    return [int(channel) for channel in order]


def _view(model: keras.Model) -> Any:
    from keras_dml.data import View

    return View.of(model)


def _draw(
    images: Any,
    rows: Rows,
    shown: dict[tuple[str, str], FloatArray],
    view: Any,
) -> "DataFigure":
    pictures = seen(images, rows, view)
    figure = new_figure(
        _table(rows, shown),
        width=CELL * len(rows) + 1.3,
        height=CELL * (len(shown) + 1) + 0.6,
    )
    grid = figure.subplots(len(shown) + 1, len(rows), squeeze=False)
    for i, row in enumerate(rows.tolist()):
        show_image(grid[0, i], pictures[i])
        no_frame(grid[0, i])
        grid[0, i].set_title(class_name(images, row, 12), fontsize=9)
    for (channel, learner), axes in zip(shown, grid[1:], strict=True):
        values = shown[channel, learner]
        overlays = resize_maps(values[..., None], pictures.shape[1:3])
        for i, cell in enumerate(axes):
            draw_overlay(cell, pictures[i], overlays[i, ..., 0])
        name = "mean of all" if channel == "mean" else f"channel {channel}"
        other = "" if channel == "mean" else f"\nlearner {learner}"
        axes[0].set_ylabel(name + other, fontsize=9, rotation=0, ha="right",
                           va="center")  # fmt: skip
    head(figure, "Attention masks")
    return figure


def _table(
    rows: Rows, shown: dict[tuple[str, str], FloatArray]
) -> dict[str, Any]:
    stacked = np.stack(list(shown.values()))  # (masks, n, h, w)
    mask, image, y, x = (i.ravel() for i in np.indices(stacked.shape))
    keys = np.array(list(shown))
    return {
        "row": rows[image],
        "channel": keys[mask, 0],
        "learner": keys[mask, 1],
        "y": y,
        "x": x,
        "value": stacked.ravel(),
    }
