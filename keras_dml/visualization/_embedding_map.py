"""A map of the embeddings in two dimensions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from keras_dml.data.pictures import short_name
from keras_dml.utils.arguments import check_choice, check_count
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.visualization.canvas import LOOKS, WIDTH, add_legend, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from keras_dml.visualization.data_figure import DataFigure

AXES = {"tsne": "t-SNE axis {} (no unit)", "pca": "principal component {}"}
"""What the axes of each projection are called."""


def embedding_map(
    embeddings: FloatArray,
    labels: Rows,
    names: Mapping[int, str] | None = None,
    *,
    projection: str = "tsne",
    most: int = 1000,
    highlight: int = 10,
    seed: int = 0,
) -> "DataFigure":
    """Images as points in the plane, some classes marked.

    Args:
        embeddings: (N, D).
        labels: Class of every image, (N,).
        names: Names of classes.
        projection: "tsne" (t-SNE of cosines, which keeps neighbors
            together and says nothing about large distances), or "pca"
            (the two directions of most variance).
        most: Images to draw; of more, whole classes are drawn at random
            until there are so many.
        highlight: Classes to mark: those with most images; among equals,
            the lowest labels.
        seed: Seed of the draw and of t-SNE.

    Returns:
        A figure; its data are row, class, x and y.

    Raises:
        ValueError: If `projection` is unknown, or there are fewer than
            three images.
    """
    check_choice("embedding_map", "projection", projection, AXES)
    check_count("embedding_map", "most", most, least=3)
    labels = np.asarray(labels)
    rows = _some_classes(labels, most, seed)
    if len(rows) < 3:
        raise ValueError(
            "`embeddings` of embedding_map must be of three images or more. "
            f"Received: {len(rows)} images."
        )
    points = _project(embeddings[rows], projection, seed)
    shown = labels[rows]
    classes, counts = np.unique(shown, return_counts=True)
    marked = classes[np.argsort(-counts, kind="stable")[:highlight]]
    figure = new_figure(
        {"row": rows, "class": shown, "x": points[:, 0], "y": points[:, 1]},
        width=WIDTH,
        height=WIDTH,
    )
    axes = figure.add_subplot()
    rest = ~np.isin(shown, marked)
    x, y = points.T
    axes.scatter(x[rest], y[rest], s=6, color="#8f8f8f", alpha=0.45, lw=0)
    for number, label in enumerate(marked.tolist()):
        name = short_name((names or {}).get(label, f"class {label}"))
        _mark(axes, points[shown == label], number, name)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", "datalim")
    axes.set_xlabel(AXES[projection].format(1))
    axes.set_ylabel(AXES[projection].format(2))
    axes.set_title("Map of the embeddings", fontsize=11)
    if len(marked):
        add_legend(figure, 2, handletextpad=0.2)
    return figure


def _mark(axes: "Axes", points: FloatArray, number: int, name: str) -> None:
    """Draws a class, with its number beside it and in the legend."""
    style = LOOKS[number % 5]
    # Colors repeat after five, and with them another row of shapes.
    marker = style.marker if number < 5 else "*X<>p"[number % 5]
    axes.scatter(
        points[:, 0],
        points[:, 1],
        s=26,
        color=style.color,
        marker=marker,
        lw=0,
        label=f"{number + 1}: {name}",
    )
    # A class in one spot hides the shape of its marks.
    axes.annotate(
        str(number + 1),
        (float(np.median(points[:, 0])), float(np.median(points[:, 1]))),
        (5, 3),
        textcoords="offset points",
        fontsize=9,
    )


def _some_classes(labels: Rows, most: int, seed: int) -> Rows:
    if len(labels) <= most:
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    classes, inverse, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    order = rng.permutation(len(classes))
    # The first class always, and cut where it is too large by itself.
    taken = np.cumsum(counts[order]) <= most
    taken[0] = True
    rows: Rows = np.flatnonzero(np.isin(inverse, order[taken]))
    return rows[:most]


def _project(x: FloatArray, projection: str, seed: int) -> FloatArray:
    if projection == "pca":
        from sklearn.decomposition import PCA

        found: FloatArray = PCA(2, random_state=seed).fit_transform(x)
        return found
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    perplexity = min(30.0, (len(x) - 1) / 3)
    tsne = TSNE(
        2,
        perplexity=perplexity,
        metric="cosine",
        init="random",
        random_state=seed,
    )
    # Its threads would wait for each other on a machine with other work.
    with threadpool_limits(1):
        found = tsne.fit_transform(x)
    return found
