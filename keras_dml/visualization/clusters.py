"""Clusters: how hard negatives are within and between them."""

from typing import TYPE_CHECKING

import numpy as np

from keras_dml.evaluation.pairs import negative_pairs
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.visualization.similarities import histogram_figure

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure


def cluster_distances(
    embeddings: FloatArray,
    labels: Rows,
    clusters: Rows,
    *,
    bins: int = 60,
    pairs: int = 200_000,
    seed: int = 0,
) -> "DataFigure":
    """Distances of negative pairs in and between clusters (D&C, Figure 8).

    Args:
        embeddings: (N, D).
        labels: Class of every image, (N,).
        clusters: Cluster of every image, (N,), for instance of
            `keras_dml.evaluation.kmeans(embeddings, learners)`.
        bins: Bins from 0 to the largest distance.
        pairs: Negative pairs, at most; of more, a random selection.
        seed: Seed of the selection.

    Returns:
        A figure; its data are the density of the Euclidean distances of
        "intra-cluster" and "inter-cluster" pairs of images of different
        classes, by bin.

    Raises:
        ValueError: If there is no negative pair.

    Reference:
        Sanakoyeu et al., "Divide and Conquer the Embedding Space for
        Metric Learning", CVPR 2019, Figure 8.
    """
    labels, clusters = np.asarray(labels), np.asarray(clusters)
    first, second = negative_pairs(labels, pairs, seed)
    distances = np.concatenate(
        [
            np.linalg.norm(
                embeddings[i].astype(np.float64) - embeddings[j], axis=1
            )
            for i, j in zip(_parts(first), _parts(second), strict=True)
        ]
    )
    within = clusters[first] == clusters[second]
    largest = float(distances.max()) if len(distances) else 0.0
    return histogram_figure(
        {
            "intra-cluster": distances[within],
            "inter-cluster": distances[~within],
        },
        np.linspace(0, largest or 1.0, bins + 1),
        "Euclidean distance",
        "Negative pairs within and between clusters",
    )


def _parts(rows: Rows) -> list[Rows]:
    """Cut so that the embeddings of a part fit into memory."""
    return np.array_split(rows, max(1, len(rows) // 20_000))
