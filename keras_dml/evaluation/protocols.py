"""Protocols as data: which rows query which others."""

from dataclasses import dataclass

import numpy as np

from keras_dml.utils.arrays import as_ids
from keras_dml.utils.types import Rows


@dataclass(frozen=True)
class Protocol:
    """Which rows are queries and which are the gallery.

    A row is never retrieved by itself, so `Protocol()`, all against all,
    searches for every image among all the others.

    Args:
        queries: (Q,) rows, or None for all.
        gallery: (G,) rows, or None for all; among equal scores the
            earlier of them comes first.
    """

    queries: Rows | None = None
    gallery: Rows | None = None

    def rows(self, count: int) -> tuple[Rows, Rows]:
        """The rows of queries and gallery among `count` embeddings.

        Raises:
            ValueError: If they are no rows, or a gallery row comes twice.
        """
        return (
            _checked_rows(self.queries, count, "queries"),
            _checked_rows(self.gallery, count, "gallery"),
        )


def one_per_class(
    labels: Rows, draws: int = 10, seed: int = 0
) -> tuple[Protocol, ...]:
    """One random image of each class as the gallery, the rest as queries.

    The official protocol of VehicleID, where results are the mean of ten
    draws. They cannot be compared with results of all against all.

    Args:
        labels: (N,) class of every row.
        draws: Number of random galleries.
        seed: Seed of the draws.

    Returns:
        A protocol for each draw; `evaluate` averages over them.

    Raises:
        ValueError: If `labels` are no integers, or `draws` is not
            positive.

    Reference:
        Liu et al., "Deep Relative Distance Learning: Tell the Difference
        Between Similar Vehicles", CVPR 2016, section 5.1.
    """
    if draws < 1:
        raise ValueError(
            "`draws` of one_per_class must be positive. Received: "
            f"draws={draws}. VehicleID uses 10."
        )
    labels = as_ids(labels, len(labels), owner="one_per_class")
    rng = np.random.default_rng(seed)
    protocols = []
    for _ in range(draws):
        shuffled = rng.permutation(len(labels))
        _, first = np.unique(labels[shuffled], return_index=True)
        gallery = shuffled[first]
        queries = np.setdiff1d(np.arange(len(labels)), gallery)
        protocols.append(Protocol(queries, gallery))
    return tuple(protocols)


def _checked_rows(rows: Rows | None, count: int, name: str) -> Rows:
    if rows is None:
        return np.arange(count)
    rows = np.asarray(rows)
    if rows.dtype.kind not in "iu" or rows.ndim != 1 or not len(rows):
        raise ValueError(
            f"`{name}` of Protocol must be a non-empty list of rows. "
            f"Received: {name}.shape={rows.shape}, {name}.dtype="
            f"{rows.dtype}. Use `np.flatnonzero(mask)` for a mask."
        )
    if rows.min() < 0 or rows.max() >= count:
        raise ValueError(
            f"`{name}` of Protocol must be rows of the {count} embeddings. "
            f"Received: rows from {rows.min()} to {rows.max()}."
        )
    if len(np.unique(rows)) < len(rows):
        raise ValueError(
            f"`{name}` of Protocol must not repeat a row. Received: "
            f"{len(rows)} rows, {len(np.unique(rows))} different ones."
        )
    return rows.astype(np.int64, copy=False)
