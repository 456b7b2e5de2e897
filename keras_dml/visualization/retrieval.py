"""Retrieval: the nearest images of queries, as arrays and as a figure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keras_dml.data.examples import any_labels_of
from keras_dml.data.pictures import class_column, class_name, each_picture
from keras_dml.data.validation import Pixels
from keras_dml.evaluation.ranks.scores import Scores, nearest_allowed
from keras_dml.utils.arguments import check_count, check_not_empty
from keras_dml.utils.types import FloatArray, Labels, Rows
from keras_dml.utils.vectors import blocks
from keras_dml.visualization.canvas import (
    RIGHT,
    WRONG,
    add_title,
    hundredths,
    new_figure,
    show_image,
)

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure


def nearest(
    embeddings: FloatArray,
    queries: Rows,
    num_neighbors: int = 8,
    *,
    gallery: Rows | None = None,
    labels: Labels | None = None,
    groups: Rows | None = None,
) -> tuple[Rows, FloatArray]:
    """Finds the nearest images of some queries, by cosine similarity.

    The ranking is that of `keras_dml.evaluation.evaluate`: a query does not
    find itself, ties are in the order of the gallery, and scores too close to
    compare in float32 are compared in float64.

    Args:
        embeddings: (N, D).
        queries: (Q,) rows.
        num_neighbors: Number of neighbors per query; fewer if the gallery is
            smaller.
        gallery: (G,) rows to search among; by default, all rows.
        labels: Class of every row, (N,), or its labels, (N, C) booleans; needed
            with `groups`.
        groups: Group of every row, (N,): a query ignores images of its own
            class in its own group, as with `exclude` of `evaluate`.

    Returns:
        Rows of the neighbors, nearest first, (Q, num_neighbors), −1 if missing;
        and their cosine similarities, (Q, num_neighbors) float64, NaN if
        missing.

    Raises:
        ValueError: If `num_neighbors` is below 1.
    """
    check_count("nearest", "num_neighbors", num_neighbors)
    rows = np.arange(len(embeddings)) if gallery is None else gallery
    scores = Scores(embeddings[queries], embeddings[rows], "cosine")
    right = scores.rhs(slice(0, len(rows)))
    shape = len(queries), min(num_neighbors, len(rows))
    neighbors = np.full(shape, -1, np.int64)
    for block in blocks(len(queries), 64):
        query_rows = np.asarray(queries[block])[:, None]
        ignored = rows == query_rows
        if groups is not None and labels is not None:
            ignored |= _alike(labels, query_rows, rows) & (
                groups[rows] == groups[query_rows]
            )
        best, columns = nearest_allowed(
            scores, block, right, ignored, num_neighbors
        )
        neighbors[block] = np.where(np.isneginf(best), -1, rows[columns])
    x = embeddings[queries][:, None].astype(np.float64)
    y = embeddings[neighbors].astype(np.float64)
    norms = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
    cosines = (x * y).sum(axis=-1) / np.where(norms > 0, norms, 1)
    return neighbors, np.where(neighbors < 0, np.nan, cosines)


def _alike(labels: Labels, queries: Rows, rows: Rows) -> NDArray[np.bool_]:
    """Whether rows are of a query's class, or share a label, (Q, G)."""
    if labels.ndim == 2:
        query_labels = labels[queries[:, 0]].astype(np.float32)
        return query_labels @ labels[rows].T.astype(np.float32) > 0
    same: NDArray[np.bool_] = labels[rows] == labels[queries]
    return same


def retrieval_grid(
    images: Any,
    embeddings: FloatArray,
    queries: Rows,
    view: Any,
    *,
    num_neighbors: int = 6,
    gallery: Rows | None = None,
    groups: Rows | None = None,
) -> "DataFigure":
    """Shows queries and their nearest images, marked as right or wrong.

    Images of the query's class are right and have a solid frame and a ✓; others
    are wrong and have a dashed frame and a ✗.

    Args:
        images: An `ImageSet` of N images; or other `Examples` with labels,
            which are shown by name.
        embeddings: (N, D).
        queries: (Q,) rows; each query is one row of the grid.
        view: A `keras_dml.data.View`, such as `View.of(model)`; None for
            examples that are not images.
        num_neighbors: Number of neighbors per query.
        gallery: As for `nearest`.
        groups: As for `nearest`.

    Returns:
        A figure. Its data columns are the query and its class, the rank, row
        and class of the neighbor, the cosine similarity, and whether the
        neighbor is right (1 or 0).

    Raises:
        ValueError: If there are no queries.
    """
    queries = np.asarray(queries, np.int64)
    check_not_empty("retrieval_grid", "queries", queries)
    check_count("retrieval_grid", "num_neighbors", num_neighbors)
    any_labels_of(images, "images.labels", "retrieval_grid")
    neighbors, cosines = nearest(
        embeddings,
        queries,
        num_neighbors,
        gallery=gallery,
        labels=images.labels,
        groups=groups,
    )
    at, rank = np.nonzero(neighbors >= 0)
    query, row = queries[at], neighbors[at, rank]
    right = [
        images.alike(one, [other])[0]
        for one, other in zip(query.tolist(), row.tolist(), strict=True)
    ]
    figure = new_figure(
        {
            "query": query,
            "query class": class_column(images, query),
            "rank": rank + 1,
            "row": row,
            "class": class_column(images, row),
            "cosine": cosines[at, rank],
            "right": np.array(right, int),
        },
        width=0.95 * (neighbors.shape[1] + 1) + 0.2,
        height=1.35 * len(queries) + 0.35,
    )
    grid = figure.subplots(len(queries), neighbors.shape[1] + 1, squeeze=False)
    shown_rows = np.column_stack([queries, neighbors])
    pictures = each_picture(images, shown_rows[shown_rows >= 0], view)
    for i, axes in enumerate(grid):
        _draw_row(axes, images, shown_rows[i], pictures, cosines[i])
    add_title(figure, "Query, and the nearest images by their cosine")
    return figure


def _draw_row(
    grid: Any,
    images: Any,
    rows: Rows,
    pictures: Iterator[Pixels],
    cosines: FloatArray,
) -> None:
    names = [class_name(images, row, 12) for row in rows[rows >= 0]]
    show_image(grid[0], next(pictures))
    grid[0].set_xlabel(f"query\n{names[0]}", fontsize=9)
    for at, axes in enumerate(grid[1:], start=1):
        if at >= len(names):
            axes.axis("off")
            continue
        is_right = images.alike(rows[0], rows[at])
        mark = RIGHT if is_right else WRONG
        show_image(axes, next(pictures), mark)
        cosine = hundredths(cosines[at - 1])
        axes.set_xlabel(f"{mark.marker} {cosine}\n{names[at]}", fontsize=9)
