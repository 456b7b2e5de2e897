"""Charts of embeddings: pairs, singular values, and maps of images."""

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dml.data.pictures import short_name
from keras_dml.data.validation import are_label_sets, as_table
from keras_dml.evaluation.embedding_space import spectral_decay
from keras_dml.evaluation.pairs import negative_pairs, positive_pairs
from keras_dml.utils.arguments import check_choice, check_count, check_not_empty
from keras_dml.utils.types import FloatArray, Labels, Rows
from keras_dml.utils.vectors import blocks, unit_rows
from keras_dml.visualization.canvas import (
    STYLES,
    add_grid,
    add_legend,
    chart,
    color,
    draw_curve,
    hundredths,
    make_logarithmic,
    series_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from keras_dml.visualization.data_figure import DataFigure


def cosine_histograms(
    parts: FloatArray,
    labels: Labels,
    *,
    num_bins: int = 60,
    num_pairs: int = 100_000,
    seed: int = 0,
) -> "DataFigure":
    """Plots histograms of cosine similarities of pairs (ABE, Figure 5).

    Positive and negative pairs are two images of the same class or of different
    classes, embedded by the same learner; all learners count equally. A self
    pair is one image, embedded by two learners.

    Args:
        parts: Sub-embeddings, (N, K, d); or embeddings, (N, D), for which there
            are no self pairs.
        labels: Class of every image, (N,); or its labels, (N, C) booleans,
            where pairs that share a label are positive.
        num_bins: Number of bins from −1 to 1.
        num_pairs: The largest number of positive and of negative pairs of
            images; if there are more, they are sampled at random.
        seed: Seed of the random sample.

    Returns:
        A figure. Its data columns are the densities of each kind of pair, by
        bin; the densities of each kind integrate to 1.

    Raises:
        ValueError: If there are no pairs at all.

    Reference:
        Kim et al., "Attention-based Ensemble for Deep Metric Learning",
        ECCV 2018, Figure 5.
    """
    labels = _as_labels(labels, len(parts), "cosine_histograms")
    if parts.ndim == 2:
        parts = parts[:, None]
    count, learners, dim = parts.shape
    unit = unit_rows(parts.reshape(-1, dim)).reshape(count, learners, dim)

    def cosines(first: Rows, second: Rows) -> FloatArray:
        """Cosines of all learners, one after the other, (n · K,)."""
        return np.concatenate(
            [
                np.einsum("nd,nd->n", unit[first, k], unit[second, k])
                for k in range(learners)
            ]
        )

    kinds = {
        "positive": cosines(*positive_pairs(labels, num_pairs, seed)),
        "negative": cosines(*negative_pairs(labels, num_pairs, seed)),
    }
    if learners > 1:
        kinds["self"] = np.concatenate(
            [
                np.einsum("nd,nd->n", unit[:, a], unit[:, b])
                for a, b in combinations(range(learners), 2)
            ]
        )
    return _histograms(
        kinds,
        np.linspace(-1, 1, num_bins + 1),
        "cosine of the two embeddings",
        "Cosines of pairs" + (" of sub-embeddings" if learners > 1 else ""),
    )


def cluster_distances(
    embeddings: FloatArray,
    labels: Labels,
    clusters: Rows,
    *,
    num_bins: int = 60,
    num_pairs: int = 200_000,
    seed: int = 0,
) -> "DataFigure":
    """Plots distances of negative pairs by cluster (D&C, Figure 8).

    Args:
        embeddings: (N, D).
        labels: Class of every image, (N,).
        clusters: Cluster of every image, (N,), for instance from
            `keras_dml.evaluation.kmeans(embeddings, learners)`.
        num_bins: Number of bins from 0 to the largest distance.
        num_pairs: The largest number of negative pairs; if there are more, they
            are sampled at random.
        seed: Seed of the random sample.

    Returns:
        A figure. Its data columns are the densities of the Euclidean distances,
        by bin, for "intra-cluster" and "inter-cluster" pairs of images of
        different classes.

    Raises:
        ValueError: If there are no negative pairs.

    Reference:
        Sanakoyeu et al., "Divide and Conquer the Embedding Space for
        Metric Learning", CVPR 2019, Figure 8.
    """
    clusters = np.asarray(clusters)
    labels = _as_labels(labels, len(embeddings), "cluster_distances")
    first, second = negative_pairs(labels, num_pairs, seed)
    distances = np.empty(len(first))
    for block in blocks(len(first), 20_000):
        x = embeddings[first[block]].astype(np.float64)
        distances[block] = np.linalg.norm(x - embeddings[second[block]], axis=1)
    within = clusters[first] == clusters[second]
    return _histograms(
        {
            "intra-cluster": distances[within],
            "inter-cluster": distances[~within],
        },
        np.linspace(0, distances.max(initial=0.0) or 1.0, num_bins + 1),
        "Euclidean distance",
        "Negative pairs within and between clusters",
    )


def _histograms(
    kinds: dict[str, FloatArray], edges: FloatArray, xlabel: str, title: str
) -> "DataFigure":
    """Densities of several kinds of values in one chart."""
    densities = {
        name: np.histogram(values.clip(*edges[[0, -1]]), edges, density=True)[0]
        for name, values in kinds.items()
        if len(values)
    }
    if not densities:
        raise ValueError(
            "`labels` of a histogram of pairs must allow at least one pair. "
            "Received: labels without any pair of images."
        )
    table = {"from": edges[:-1], "to": edges[1:], **densities}
    figure, axes = chart(table, xlabel, "density", title)
    add_grid(axes)
    for number, (name, density) in enumerate(densities.items()):
        style = series_style(number)
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


def singular_value_spectrum(
    embeddings: Mapping[str, FloatArray],
) -> "DataFigure":
    """Plots the normalized singular values of embeddings (DiVA, Figure 5).

    Singular values are divided by their sum. A flat line means that all
    directions are used equally. The legend shows the spectral decay ρ, see
    `keras_dml.evaluation.embedding_space.spectral_decay`.

    Args:
        embeddings: Embeddings, (N, D), by name of the model. They are not
            centered.

    Returns:
        A figure. Its data columns are the model, the number of the singular
        value (from 1), and its share of the sum.

    Raises:
        ValueError: If there are no embeddings.

    Reference:
        Milbich et al., "DiVA: Diverse Visual Feature Aggregation for Deep
        Metric Learning", ECCV 2020, Figure 5.
    """
    check_not_empty("singular_value_spectrum", "embeddings", embeddings)
    shares = {name: _shares(x) for name, x in embeddings.items()}
    numbers = [np.arange(len(x)) + 1 for x in shares.values()]
    figure, axes = chart(
        {
            "model": [name for name, x in shares.items() for _ in x],
            "number": np.concatenate(numbers),
            "share": np.concatenate(list(shares.values())),
        },
        "number of the singular value, by size",
        "share of their sum (log)",
        "Singular values of the embeddings",
    )
    add_grid(axes)
    for i, (name, values) in enumerate(shares.items()):
        positive = np.where(values > 0, values, np.nan)
        label = f"{name} (ρ = {spectral_decay(embeddings[name]):.2f})"
        draw_curve(axes, i, numbers[i], positive, label, marks=12, size=4)
    make_logarithmic(axes)
    add_legend(figure)
    return figure


def _shares(embeddings: FloatArray) -> FloatArray:
    # The factor R of QR has the same singular values, and is small.
    factor = np.linalg.qr(embeddings.astype(np.float64), mode="r")
    values = np.linalg.svd(factor, compute_uv=False)
    shares: FloatArray = values / values.sum()
    return shares


AXES = {"tsne": "t-SNE axis {} (no unit)", "pca": "principal component {}"}
"""Names of the axes of each projection."""


def embedding_map(
    embeddings: FloatArray,
    labels: Labels,
    names: Mapping[int, str] | None = None,
    *,
    projection: str = "tsne",
    most: int = 1000,
    highlight: int = 10,
    seed: int = 0,
) -> "DataFigure":
    """Plots images as points in the plane, with some classes marked.

    Args:
        embeddings: (N, D).
        labels: Class of every image, (N,).
        names: Names of classes.
        projection: "tsne" (t-SNE on cosine similarities, which keeps neighbors
            together but whose large distances are meaningless), or "pca" (the
            two directions with the most variance).
        most: Largest number of images to plot. If there are more, whole classes
            are chosen at random until this number is reached.
        highlight: Number of classes to mark: those with the most images, with
            ties broken by the lowest label.
        seed: Seed of the random choice and of t-SNE.

    Returns:
        A figure. Its data columns are row, class, x and y.

    Raises:
        ValueError: If `projection` is unknown, if there are fewer than three
            images, or if images have several labels.
    """
    check_choice("embedding_map", "projection", projection, AXES)
    check_count("embedding_map", "most", most, minimum=3)
    labels = _as_labels(labels, len(embeddings), "embedding_map")
    if labels.ndim != 1:
        raise ValueError(
            "`labels` of embedding_map must be one class per image. Received: "
            f"labels of shape {labels.shape}. Use one column at a time if "
            "images have several labels: labels[:, column]."
        )
    rows = _some_classes(labels, most, seed)
    if len(rows) < 3:
        raise ValueError(
            "`embeddings` of embedding_map must contain at least three images. "
            f"Received: {len(rows)} images."
        )
    points = _project(embeddings[rows], projection, seed)
    shown_labels = labels[rows]
    classes, counts = np.unique(shown_labels, return_counts=True)
    marked = classes[np.argsort(-counts, kind="stable")[:highlight]]
    x, y = points.T
    figure, axes = chart(
        {"row": rows, "class": shown_labels, "x": x, "y": y},
        AXES[projection].format(1),
        AXES[projection].format(2),
        "Map of the embeddings",
    )
    rest = ~np.isin(shown_labels, marked)
    axes.scatter(x[rest], y[rest], s=6, color=color("gray"), alpha=0.35, lw=0)
    for number, label in enumerate(marked.tolist()):
        called = label if isinstance(label, str) else f"class {label}"
        name = short_name((names or {}).get(label, called))
        _mark(axes, points[shown_labels == label], number, name)
    axes.set(xticks=[], yticks=[])
    axes.set_aspect("equal", "datalim")
    if len(marked):  # Beside the map, which is as high as other charts.
        figure.legend(
            loc="outside right center",
            frameon=False,
            fontsize=8,
            handletextpad=0.2,
        )
    return figure


def _as_labels(labels: Any, count: int, owner: str) -> Labels:
    """Class of every image, (N,), or booleans where each has several."""
    if are_label_sets(labels):
        table: Labels = as_table(labels, {}, owner)[0]
    else:
        table = np.asarray(labels)
        if table.dtype == object and all(
            isinstance(x, str) for x in table.flat
        ):
            table = table.astype(str)
    if table.ndim == 0 or len(table) != count or table.dtype == object:
        raise ValueError(
            f"`labels` of {owner} must be one class per image, (N,), or "
            "booleans, (N, C), for several labels per image. Received: labels "
            f"of shape {table.shape} and dtype {table.dtype} for {count} "
            "images."
        )
    return table


def _mark(axes: "Axes", points: FloatArray, number: int, name: str) -> None:
    """Draws a class, with its number beside it and in the legend."""
    style = STYLES[number % 5]
    axes.scatter(
        points[:, 0],
        points[:, 1],
        s=26,
        color=color(style.color),
        # Colors repeat after five, and with them another row of shapes.
        marker=style.marker if number < 5 else "*X<>p"[number % 5],
        lw=0,
        label=f"{number + 1}: {name}",
    )
    # A class in one spot hides the shape of its marks.
    x, y = np.median(points, axis=0).tolist()
    axes.annotate(
        str(number + 1), (x, y), (5, 3), textcoords="offset points", fontsize=9
    )


def _some_classes(labels: Rows, max_images: int, seed: int) -> Rows:
    if len(labels) <= max_images:
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    classes, inverse, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    order = rng.permutation(len(classes))
    # The first class is always taken, and cut if it is too large.
    is_taken = np.cumsum(counts[order]) <= max_images
    is_taken[0] = True
    rows: Rows = np.flatnonzero(np.isin(inverse, order[is_taken]))
    return rows[:max_images]


def _project(x: FloatArray, projection: str, seed: int) -> FloatArray:
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    method = PCA(2, random_state=seed)
    if projection == "tsne":
        method = TSNE(
            2,
            perplexity=min(30.0, (len(x) - 1) / 3),
            metric="cosine",
            init="random",
            random_state=seed,
        )
    # Its threads would wait for each other on a machine with other work.
    with threadpool_limits(1):
        points: FloatArray = method.fit_transform(x)
    return points
