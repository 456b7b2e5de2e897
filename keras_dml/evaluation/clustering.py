"""K-means, and metrics of the agreement of clusters and classes."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_dml.embedding import EmbeddingShards
from keras_dml.evaluation.metrics import METRICS
from keras_dml.evaluation.ranking import INFORMATION_RETRIEVAL
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import Rows
from keras_dml.utils.vectors import as_rows, blocks

_BLOCK_NUMBERS = 2**21
"""Numbers of the points that are assigned to centroids together."""


def kmeans(
    points: Any,
    clusters: int,
    *,
    iterations: int = 20,
    seed: int = 0,
    sample: int | None = None,
) -> Rows:
    """Clusters points by K-means, using all of them or a sample.

    Args:
        points: (N, D), or `EmbeddingShards`. Without `sample`, they are read
            into memory.
        clusters: Number of clusters, at most N.
        iterations: Number of iterations of Lloyd's algorithm.
        seed: Seed of the initial centroids, which are random points, and of
            the sample.
        sample: Number of random points from which the centroids are computed;
            all other points are only assigned to the nearest one, block by
            block. 1,000 points per cluster cost less than a change of seed
            does, 256 up to 1 % of the inertia, 100 up to 4 %. None for all
            points.

    Returns:
        Cluster of every point, (N,), from 0.

    Raises:
        ValueError: If `points` are not finite, or there are fewer points than
            clusters.
    """
    import faiss

    if isinstance(points, EmbeddingShards):
        points = points.array()
    points = as_rows(points, "points", "kmeans")
    if not 1 <= clusters <= len(points):
        raise ValueError(
            "`clusters` of kmeans must be from 1 to the number of points. "
            f"Received: clusters={clusters}, {len(points)} points."
        )
    if sample is not None:
        check_count("kmeans", "sample", sample, minimum=clusters)
    if sample is None or sample >= len(points):
        subset = np.asarray(points).astype(np.float32, copy=False)
        rest: Iterable[Any] = [subset]
    else:
        rng = np.random.default_rng(seed)
        picks = rng.choice(len(points), sample, replace=False, shuffle=False)
        subset = points[np.sort(picks)].astype(np.float32, copy=False)
        size = max(1, _BLOCK_NUMBERS // points.shape[1])
        rest = (points[rows] for rows in blocks(len(points), size))
    # By default faiss trains on 256 points a centroid and warns below 39.
    algorithm = faiss.Kmeans(
        points.shape[1],
        int(clusters),
        niter=int(iterations),
        seed=int(seed),
        min_points_per_centroid=1,
        max_points_per_centroid=len(subset),
    )
    algorithm.train(subset)
    nearest = [
        algorithm.index.search(x.astype(np.float32, copy=False), 1)[1][:, 0]
        for x in rest
    ]
    return np.concatenate(nearest).astype(np.int64, copy=False)


@METRICS.register(
    "nmi",
    "what the clusters of K-means, as many as classes, tell about the classes: "
    "mutual information divided by the mean entropy of both",
    INFORMATION_RETRIEVAL,
    of="clusters",
)
def nmi(labels: Rows, clusters: Rows) -> float:
    """Normalized mutual information, 2I(Ω; C) / (H(Ω) + H(C)).

    Clusters are those of K-means on all images, as many as classes, with 20
    iterations from random images; the result is the mean over `seeds`. It grows
    with the number of clusters, so do not compare it between data sets.

    Also known as:
        - scikit-learn: `normalized_mutual_info_score`. Until 0.22 it divided by
          the geometric mean of the entropies, and so do older papers. Also
          `v_measure_score`.
        - pytorch-metric-learning: `NMI`, whose K-means trains on at most 256
          images per cluster and on embeddings as they are.

    Args:
        labels: Class of every point, (N,).
        clusters: Cluster of every point, (N,).
    """
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(labels, clusters))


@METRICS.register(
    "ami",
    "mutual information of classes and clusters, adjusted for chance",
    of="clusters",
)
def ami(labels: Rows, clusters: Rows) -> float:
    """Adjusted mutual information, with the arithmetic mean of entropies.

    Unlike NMI, it does not increase with the number of clusters: random
    clusters score 0. For the arguments, see `nmi`.

    Also known as:
        - scikit-learn: `adjusted_mutual_info_score`, since 0.22.
        - pytorch-metric-learning: `AMI`.

    Reference:
        Vinh et al., "Information Theoretic Measures for Clusterings
        Comparison", JMLR 2010, https://jmlr.org/papers/v11/vinh10a.html
    """
    from sklearn.metrics import adjusted_mutual_info_score

    return float(adjusted_mutual_info_score(labels, clusters))


@METRICS.register(
    "f1",
    "F1 of pairs that share a cluster",
    INFORMATION_RETRIEVAL,
    of="clusters",
)
def f1(labels: Rows, clusters: Rows) -> float:
    """F1 of the decision, for each pair of points, whether they share a class.

    A pair is positive if its points share a class, and predicted positive if
    they share a cluster. It is 0 if there are no pairs of either kind (section
    16.3). For the arguments, see `nmi`.
    """
    from sklearn.metrics.cluster import pair_confusion_matrix

    (_, false), (missed, hits) = pair_confusion_matrix(labels, clusters)
    all_of_both = 2 * hits + false + missed
    return float(2 * hits / all_of_both) if all_of_both else 0.0
