"""The retrieval grid that callbacks draw during training."""

from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_dml.data import Examples
from keras_dml.utils.types import FloatArray
from keras_dml.visualization import retrieval_grid

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure


def retrieval_picture(
    model: keras.Model,
    images: Examples,
    embeddings: FloatArray,
    num_queries: int,
    seed: int,
) -> "DataFigure":
    """A few random queries and their nearest images.

    The queries are the same in every epoch.

    Args:
        model: The model that embedded the images in its test view.
        images: The N examples.
        embeddings: (N, D).
        num_queries: The largest number of rows of the grid.
        seed: Seed of the selection.
    """
    rng = np.random.default_rng(seed)
    count = min(num_queries, len(embeddings))
    queries = np.sort(rng.choice(len(embeddings), count, replace=False))
    return retrieval_grid(images, embeddings, queries, images.view_for(model))
