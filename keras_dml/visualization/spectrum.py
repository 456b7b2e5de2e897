"""The spectrum of embeddings: how many directions they use."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from keras_dml.evaluation.embedding_space import spectral_decay
from keras_dml.utils.types import FloatArray
from keras_dml.visualization.canvas import (
    add_legend,
    chart,
    look,
    make_logarithmic,
)

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure


def singular_value_spectrum(
    embeddings: Mapping[str, FloatArray],
) -> "DataFigure":
    """Singular values of embeddings, divided by their sum (DiVA, Figure 5).

    A flat line means that all directions are used alike. The legend gives
    the spectral decay ρ, see
    `keras_dml.evaluation.embedding_space.spectral_decay`.

    Args:
        embeddings: (N, D) each, by name of the model. Not centered.

    Returns:
        A figure; its data are the model, the number of the singular value
        from 1, and its share of the sum.

    Raises:
        ValueError: If there are no embeddings.

    Reference:
        Milbich et al., "DiVA: Diverse Visual Feature Aggregation for Deep
        Metric Learning", ECCV 2020, Figure 5.
    """
    if not embeddings:
        raise ValueError(
            "`embeddings` of singular_value_spectrum must hold those of one "
            "model or more, by name. Received: none."
        )
    shares = {name: _shares(x) for name, x in embeddings.items()}
    figure, axes = chart(
        {
            "model": [n for n, x in shares.items() for _ in x],
            "number": [i + 1 for x in shares.values() for i in range(len(x))],
            "share": np.concatenate(list(shares.values())),
        },
        "number of the singular value, by size",
        "share of their sum (log)",
        "Singular values of the embeddings",
    )
    for number, (name, values) in enumerate(shares.items()):
        style = look(number)
        decay = spectral_decay(embeddings[name])
        axes.plot(
            np.arange(len(values)) + 1,
            np.where(values > 0, values, np.nan),
            color=style.color,
            linestyle=style.line,
            marker=style.marker,
            markevery=max(1, len(values) // 12),
            markersize=4,
            label=f"{name} (ρ = {decay:.2f})",
        )
    make_logarithmic(axes)
    add_legend(figure)
    return figure


def _shares(embeddings: FloatArray) -> FloatArray:
    # The factor R of QR has the same singular values, and is small.
    factor = np.linalg.qr(embeddings.astype(np.float64), mode="r")
    values = np.linalg.svd(factor, compute_uv=False)
    shares: FloatArray = values / values.sum()
    return shares
