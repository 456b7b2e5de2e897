"""Similarities and distances: histograms of pairs of images."""

from typing import TYPE_CHECKING

import numpy as np

from keras_dml.evaluation.pairs import negative_pairs, positive_pairs
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import unit_rows
from keras_dml.visualization.canvas import add_legend, chart, hundredths, look

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure


def cosine_histograms(
    parts: FloatArray,
    labels: Rows,
    *,
    num_bins: int = 60,
    num_pairs: int = 100_000,
    seed: int = 0,
) -> "DataFigure":
    """Cosines of positive, negative and self pairs (ABE, Figure 5).

    Positive and negative pairs are two images, of one class or of two,
    embedded by the same learner; all learners count alike. A self pair is
    one image, embedded by two learners.

    Args:
        parts: Sub-embeddings, (N, K, d); or embeddings, (N, D), which
            have no self pairs.
        labels: Class of every image, (N,).
        num_bins: Bins from −1 to 1.
        num_pairs: Positive and negative pairs of images, at most so many of
            each; of more, a random selection.
        seed: Seed of the selection.

    Returns:
        A figure; its data are the density of each kind of pair, by bin.
        The densities of a kind integrate to 1.

    Raises:
        ValueError: If there is no pair of any kind.

    Reference:
        Kim et al., "Attention-based Ensemble for Deep Metric Learning",
        ECCV 2018, Figure 5.
    """
    labels = np.asarray(labels)
    if parts.ndim == 2:
        parts = parts[:, None]
    count, learners, dim = parts.shape
    unit = unit_rows(parts.reshape(-1, dim)).reshape(count, learners, dim)
    i, j = positive_pairs(labels, num_pairs, seed)
    k, n = negative_pairs(labels, num_pairs, seed)
    kinds = {
        "positive": _cosines(unit, i, j),
        "negative": _cosines(unit, k, n),
    }
    if learners > 1:
        one, other = np.triu_indices(learners, k=1)
        kinds["self"] = np.concatenate(
            [
                np.einsum("nd,nd->n", unit[:, a], unit[:, b])
                for a, b in zip(one, other, strict=True)
            ]
        )
    edges = np.linspace(-1, 1, num_bins + 1)
    return histogram_figure(
        kinds,
        edges,
        "cosine of the two embeddings",
        "Cosines of pairs" + (" of sub-embeddings" if learners > 1 else ""),
    )


def histogram_figure(
    kinds: dict[str, FloatArray], edges: FloatArray, xlabel: str, title: str
) -> "DataFigure":
    """Densities of several kinds of values in one chart.

    Raises:
        ValueError: If there are no values of any kind.
    """
    kinds = {name: values for name, values in kinds.items() if len(values)}
    if not kinds:
        raise ValueError(
            "`labels` of a histogram of pairs must give a pair to draw. "
            "Received: labels with no pair of images."
        )
    clipped = {
        name: np.clip(values, edges[0], edges[-1])
        for name, values in kinds.items()
    }
    densities = {
        name: np.histogram(values, edges, density=True)[0]
        for name, values in clipped.items()
    }
    figure, axes = chart(
        {"from": edges[:-1], "to": edges[1:], **densities},
        xlabel,
        "density",
        title,
    )
    for number, (name, density) in enumerate(densities.items()):
        style = look(number)
        axes.stairs(
            density,
            edges,
            color=style.color,
            linestyle=style.line,
            linewidth=1.8,
            label=f"{name} (mean {hundredths(kinds[name].mean())})",
        )
        axes.stairs(density, edges, fill=True, color=style.color, alpha=0.15)
    axes.set_ylim(bottom=0)
    axes.locator_params("x", nbins=6)
    add_legend(figure)
    return figure


def _cosines(unit: FloatArray, first: Rows, second: Rows) -> FloatArray:
    """Of all learners, one after the other, (n · K,)."""
    return np.concatenate(
        [
            np.einsum("nd,nd->n", unit[first, k], unit[second, k])
            for k in range(unit.shape[1])
        ]
    )


def cluster_distances(
    embeddings: FloatArray,
    labels: Rows,
    clusters: Rows,
    *,
    num_bins: int = 60,
    num_pairs: int = 200_000,
    seed: int = 0,
) -> "DataFigure":
    """Distances of negative pairs in and between clusters (D&C, Figure 8).

    Args:
        embeddings: (N, D).
        labels: Class of every image, (N,).
        clusters: Cluster of every image, (N,), for instance of
            `keras_dml.evaluation.kmeans(embeddings, learners)`.
        num_bins: Bins from 0 to the largest distance.
        num_pairs: Negative pairs, at most; of more, a random selection.
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
    first, second = negative_pairs(labels, num_pairs, seed)
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
        np.linspace(0, largest or 1.0, num_bins + 1),
        "Euclidean distance",
        "Negative pairs within and between clusters",
    )


def _parts(rows: Rows) -> list[Rows]:
    """Cut so that the embeddings of a part fit into memory."""
    return np.array_split(rows, max(1, len(rows) // 20_000))
