"""Compositors: how they weigh learners."""

from typing import TYPE_CHECKING

import numpy as np

from keras_dml.utils.types import FloatArray
from keras_dml.visualization.canvas import new_figure

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure


def compositor_weights(weights: FloatArray) -> "DataFigure":
    """Mean absolute weight of each learner in each composite (Figure 4).

    Args:
        weights: (M, K), for instance of
            `keras_dml.visualization.ensembles.mean_weights(model, images)`.

    Returns:
        A figure; its data are compositor, learner and weight.

    Raises:
        ValueError: If `weights` has another rank.

    Reference:
        Zheng et al., "Deep Compositional Metric Learning", CVPR 2021,
        Figure 4.
    """
    weights = np.asarray(weights)
    if weights.ndim != 2:
        raise ValueError(
            "`weights` of compositor_weights must be (M, K). Received: an "
            f"array of shape {weights.shape}. Use for instance "
            "dcml_analysis.mean_weights(model, images)."
        )
    compositors, learners = weights.shape
    m, k = np.indices(weights.shape)
    figure = new_figure(
        {
            "compositor": m.ravel() + 1,
            "learner": k.ravel() + 1,
            "weight": weights.ravel(),
        },
        width=max(3.4, 0.55 * learners + 1.9),
        height=max(2.4, 0.36 * compositors + 1.2),
    )
    axes = figure.add_subplot()
    picture = axes.imshow(weights, cmap="Blues", vmin=0, aspect="auto")
    axes.set_xticks(range(learners), [str(x + 1) for x in range(learners)])
    axes.set_yticks(
        range(compositors), [str(x + 1) for x in range(compositors)]
    )
    axes.set_xlabel("learner")
    axes.set_ylabel("compositor")
    axes.set_title("Mean absolute weights", fontsize=11)
    for row, column in np.ndindex(weights.shape):
        value = weights[row, column]
        dark = value > 0.55 * weights.max()
        axes.text(
            column,
            row,
            f"{value:.2f}".removeprefix("0"),
            ha="center",
            va="center",
            fontsize=9,
            color="#fefefe" if dark else "#010101",
        )
    figure.colorbar(picture, label="weight (a row sums to 1)")
    return figure
