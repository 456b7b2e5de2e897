"""Ensembles: the weights of compositors and the distances of learners."""

from typing import TYPE_CHECKING, Any

import numpy as np
from keras import ops

from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.types import FloatArray, Tensor
from keras_dml.visualization.canvas import chart
from keras_dml.visualization.outputs import head_outputs, predict

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure


def mean_weights(
    model: MetricModel, images: Any, batch_size: int = 256
) -> FloatArray:
    """Computes how strongly each compositor weights each learner (Figure 4).

    Args:
        model: A model from `methods.dcml` with compositors.
        images: An `ImageSet`, seen in its test view.
        batch_size: Number of images processed at a time.

    Returns:
        |c_m^k| averaged over the images, (M, K); rows sum to 1.

    Raises:
        ValueError: If the model has no compositors.
    """
    compositor = getattr(model.objective, "compositor", None)
    if compositor is None:
        raise ValueError(
            "`model` of mean_weights must have compositors. Received: "
            f"{model!r}, whose objective is {model.objective!r}. Use a model "
            "from `methods.dcml` with num_compositors=1 or more."
        )

    def weights(outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"weights": ops.abs(compositor(outputs["sub_embeddings"])[1])}

    sizes = predict(model, images, weights, batch_size)["weights"]
    return sizes.mean(axis=0, dtype=np.float64)


def part_distance(
    model: MetricModel, images: Any, batch_size: int = 256
) -> float:
    """Computes the mean distance between learners for the same image.

    This is the mean Euclidean distance between the unit-length sub-embeddings
    of an image, over all pairs of learners and all images. The paper reports
    0.823 for a model with self-reinforcement and 0.534 for one without
    (Sec. 4.3), but does not say how its "normalized distance" is normalized.

    Args:
        model: A model whose head has the output `"parts"`, (B, K, d), K > 1.
        images: An `ImageSet`, seen in its test view.
        batch_size: Number of images processed at a time.

    Returns:
        A distance in [0, 2]; √2 for sub-embeddings at right angles.

    Raises:
        ValueError: If there is only one learner.
    """
    parts = head_outputs(model, images, ["parts"], batch_size)["parts"]
    learners = parts.shape[1]
    if learners < 2:
        raise ValueError(
            "`model` of part_distance must have at least two learners. "
            f"Received: {model!r}, with {learners}."
        )
    first, second = np.triu_indices(learners, k=1)
    differences = parts[:, first] - parts[:, second]
    return float(np.linalg.norm(differences, axis=-1).mean(dtype=np.float64))


def compositor_weights(weights: FloatArray) -> "DataFigure":
    """Plots the mean absolute weights of learners in composites (Figure 4).

    Args:
        weights: (M, K), for instance from
            `keras_dml.visualization.ensembles.mean_weights(model, images)`.

    Returns:
        A figure. Its data columns are compositor, learner and weight.

    Raises:
        ValueError: If `weights` has the wrong rank.

    Reference:
        Zheng et al., "Deep Compositional Metric Learning", CVPR 2021,
        Figure 4.
    """
    weights = np.asarray(weights)
    if weights.ndim != 2:
        raise ValueError(
            "`weights` of compositor_weights must be (M, K). Received: an "
            f"array of shape {weights.shape}. Use for instance "
            "visualization.ensembles.mean_weights(model, images)."
        )
    compositors, learners = weights.shape
    m, k = np.indices(weights.shape)
    table = {
        "compositor": m.ravel() + 1,
        "learner": k.ravel() + 1,
        "weight": weights.ravel(),
    }
    figure, axes = chart(
        table,
        "learner",
        "compositor",
        "Mean absolute weights",
        width=max(3.4, 0.55 * learners + 1.9),
        height=max(2.4, 0.36 * compositors + 1.2),
    )
    picture = axes.imshow(weights, cmap="magma", vmin=0, aspect="auto")
    axes.set_xticks(range(learners), [str(x + 1) for x in range(learners)])
    axes.set_yticks(
        range(compositors), [str(x + 1) for x in range(compositors)]
    )
    for (row, column), value in np.ndenumerate(weights):
        dark = value < 0.6 * weights.max()
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
