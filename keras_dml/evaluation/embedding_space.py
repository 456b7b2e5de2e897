"""Metrics of the embedding space: its spectrum and its density."""

import numpy as np

from keras_dml.evaluation.metrics import METRICS
from keras_dml.utils.lazy_rows import EmbeddingRows
from keras_dml.utils.registry import Paper
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import Vectors, blocks

_BLOCK_ROWS = 4096
"""Number of rows that are processed together."""

ROTH = Paper(
    "Revisiting Training Strategies and Generalization Performance in Deep "
    "Metric Learning",
    "Roth et al.",
    "ICML 2020",
    "https://arxiv.org/abs/2002.08473",
)


@METRICS.register(
    "spectral_decay",
    "KL of the uniform distribution to the singular values",
    ROTH,
    of="embeddings",
)
def spectral_decay(
    embeddings: EmbeddingRows, labels: Rows | None = None
) -> float:
    """ρ = KL(U ‖ S), where S are the singular values, divided by their sum.

    It is 0 if all directions are used equally, large if few are, and infinite
    if the embeddings span fewer dimensions than they have. The released code
    leaves out the smallest value, and is finite in that case.

    Args:
        embeddings: (N, D), not centered.
        labels: Not used.
    """
    # The factor R of QR is small and has the same singular values, so it can
    # stand for its rows when more rows follow.
    count, size = embeddings.shape
    factor: FloatArray = np.empty((0, size))
    for rows in blocks(count, _BLOCK_ROWS):
        wide = np.concatenate([factor, embeddings[rows]])
        factor = np.asarray(np.linalg.qr(wide, mode="r"))
    values = np.linalg.svd(factor, compute_uv=False)
    rounding = max(count, size) * np.finfo(np.float64).eps * values[0]
    if len(values) < size or values[-1] <= rounding:
        return float("inf")
    shares = values / values.sum()
    return float(-np.log(shares * len(shares)).mean())


@METRICS.register(
    "density",
    "mean distance within classes / between class means",
    ROTH,
    of="embeddings",
)
def density(embeddings: EmbeddingRows, labels: Rows | None) -> float:
    """π = mean distance within classes / mean distance between classes.

    Within: Euclidean distance over all pairs of images that share a class.
    Between: distance of mean embeddings over all pairs of classes. The released
    code uses cosine distances, gives every class the same weight and scales the
    means to unit length: compare its numbers only with its own.

    Args:
        embeddings: (N, D).
        labels: Class of every row, (N,).

    Returns:
        The ratio; NaN if no two images share a class, or no two classes have
        different means.

    Raises:
        ValueError: If `labels` is None because examples have several.
    """
    if labels is None:
        raise ValueError(
            "The metric 'density' must have one class per example. "
            "Received: several labels per example. Omit it."
        )
    order = np.argsort(labels, kind="stable")
    _, starts = np.unique(labels[order], return_index=True)
    centers = np.empty((len(starts), embeddings.shape[1]))
    total, pairs = 0.0, 0
    for number, rows in enumerate(np.split(order, starts[1:])):
        points = embeddings[rows].astype(np.float64)
        centers[number] = points.mean(axis=0)
        distances, count = _pair_distances(points)
        total, pairs = total + distances, pairs + count
    total_between, pairs_between = _pair_distances(centers)
    if not pairs or not total_between:
        return float("nan")
    return float((total / pairs) / (total_between / pairs_between))


@METRICS.register(
    "pcf@x",
    "fraction of the principal components that explain more than x of the "
    "variance",
    of="embeddings",
)
def pcf(
    embeddings: EmbeddingRows, labels: Rows | None = None, x: float = 0.9
) -> float:
    """Principal components fraction: n / D, for the fewest n that explain x.

    It is small if embeddings lie near a space of few dimensions. n is the
    smallest number of components whose share of the variance exceeds x, as in
    `PCA(n_components=x)` of scikit-learn. Open Metric Learning has the metric
    under this name, for embeddings without normalization.

    Args:
        embeddings: (N, D).
        labels: Not used.
        x: Share of the variance.

    Returns:
        The fraction; NaN if all embeddings are equal.
    """
    size = embeddings.shape[1]
    mean = Vectors(embeddings, 1.0).mean()
    covariance = np.zeros((size, size))
    for rows in blocks(len(embeddings), _BLOCK_ROWS):
        centered = embeddings[rows] - mean
        covariance += centered.T @ centered
    variances = np.linalg.eigvalsh(covariance)[::-1].clip(0)
    total = variances.sum()
    rounding = len(embeddings) * (8 * np.finfo(np.float64).eps) ** 2
    if total <= rounding * (mean @ mean):
        return float("nan")
    explained = np.cumsum(variances) / total
    return float((np.searchsorted(explained, x, side="right") + 1) / size)


def _pair_distances(points: FloatArray) -> tuple[float, int]:
    """Sum and number of the distances between distinct points."""
    from scipy.spatial.distance import cdist

    total = sum(
        float(cdist(points[rows], points).sum())
        for rows in blocks(len(points), 256)
    )
    return total, len(points) * (len(points) - 1)
