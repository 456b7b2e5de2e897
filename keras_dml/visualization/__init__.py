"""Figures of the papers, and the arrays behind them.

Every figure is a `matplotlib.figure.Figure` with an attribute `data`, which
holds its numbers, and a method `save`, which writes both.

Open first: `data_figure`, what every figure is, then `retrieval` or
`attention`, a figure of a paper each. `outputs` computes what a figure
shows, `canvas` places pictures and has the palette of figures and pages.

Imports: `evaluation` and below.
"""

from keras_dml.visualization.attention import (
    attention_maps,
    attention_masks,
    attention_overlays,
    resize_maps,
    strongest_attention,
    strongest_images,
)
from keras_dml.visualization.canvas import dark
from keras_dml.visualization.curves import (
    loss_curves,
    metric_curves,
    read_history,
    recall_curves,
)
from keras_dml.visualization.embeddings import (
    cluster_distances,
    cosine_histograms,
    embedding_map,
    singular_value_spectrum,
)
from keras_dml.visualization.ensembles import compositor_weights
from keras_dml.visualization.outputs import head_outputs
from keras_dml.visualization.retrieval import nearest, retrieval_grid

__all__ = [
    "attention_maps",
    "attention_masks",
    "attention_overlays",
    "cluster_distances",
    "compositor_weights",
    "cosine_histograms",
    "dark",
    "embedding_map",
    "head_outputs",
    "loss_curves",
    "metric_curves",
    "nearest",
    "read_history",
    "recall_curves",
    "resize_maps",
    "retrieval_grid",
    "singular_value_spectrum",
    "strongest_attention",
    "strongest_images",
]
