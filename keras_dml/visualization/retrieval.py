"""Retrieval grids: queries and what is found for them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dml.data.pictures import class_name, seen
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.visualization.canvas import (
    RIGHT,
    WRONG,
    frame,
    head,
    hundredths,
    new_figure,
    no_frame,
    show_image,
)
from keras_dml.visualization.neighbors import nearest

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure


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
    """Queries and their nearest images, right and wrong ones marked.

    A right image, of the query's class, has a solid frame and a ✓, a wrong
    one a dashed frame and a ✗.

    Args:
        images: An `ImageSet` of N images.
        embeddings: (N, D).
        queries: (Q,) rows; each is a row of the grid.
        view: A `keras_dml.data.View`, as `View.of(model)`.
        num_neighbors: Neighbors of each query.
        gallery: As for `nearest`.
        groups: As for `nearest`.

    Returns:
        A figure; its data are query and its class, rank, row and class of
        the neighbor, cosine, and whether it is right (1 or 0).

    Raises:
        ValueError: If there are no queries.
    """
    queries = np.asarray(queries, np.int64)
    if not len(queries):
        raise ValueError(
            "`queries` of retrieval_grid must not be empty. Received: none."
        )
    check_count("retrieval_grid", "num_neighbors", num_neighbors)
    found, cosines = nearest(
        embeddings,
        queries,
        num_neighbors,
        gallery=gallery,
        labels=images.labels,
        groups=groups,
    )
    figure = new_figure(
        _table(images.labels, queries, found, cosines),
        width=0.95 * (found.shape[1] + 1) + 0.2,
        height=1.35 * len(queries) + 0.35,
    )
    grid = figure.subplots(len(queries), found.shape[1] + 1, squeeze=False)
    for axes, query, neighbors, values in zip(
        grid, queries, found, cosines, strict=True
    ):
        _draw_row(axes, images, int(query), neighbors, values, view)
    head(figure, "Query, and the nearest images by their cosine")
    return figure


def _draw_row(
    axes: Any,
    images: Any,
    query: int,
    neighbors: Rows,
    cosines: FloatArray,
    view: Any,
) -> None:
    known = neighbors[neighbors >= 0]
    pictures = seen(images, np.append(query, known), view)
    show_image(axes[0], pictures[0])
    name = class_name(images, query, 12)
    axes[0].set_xlabel(f"query\n{name}", fontsize=9)
    for at, cell in enumerate(axes[1:]):
        if at >= len(known):
            cell.axis("off")
            continue
        right = images.labels[known[at]] == images.labels[query]
        mark = RIGHT if right else WRONG
        show_image(cell, pictures[at + 1])
        frame(cell, mark)
        name = class_name(images, known[at], 12)
        cosine = hundredths(cosines[at])
        cell.set_xlabel(f"{mark.marker} {cosine}\n{name}", fontsize=9)
    no_frame(axes[0])


def _table(
    labels: Rows, queries: Rows, found: Rows, cosines: FloatArray
) -> dict[str, Any]:
    at, rank = np.nonzero(found >= 0)
    query, row = queries[at], found[at, rank]
    return {
        "query": query,
        "query class": labels[query],
        "rank": rank + 1,
        "row": row,
        "class": labels[row],
        "cosine": cosines[at, rank],
        "right": (labels[row] == labels[query]).astype(int),
    }
