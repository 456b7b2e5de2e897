"""Inputs of an evaluation: embedded images, and which of them query which."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_dml.data import ImageSet
from keras_dml.evaluation._embed import embed
from keras_dml.evaluation.ranks.relevance import Relevance
from keras_dml.utils.arrays import as_embeddings, as_ids
from keras_dml.utils.types import FloatArray, Rows

PROTOCOLS = ("all_vs_all", "official")


@dataclass(frozen=True)
class Images:
    """Embedded images.

    Attributes:
        embeddings: (N, D).
        labels: Class of every row, (N,).
        groups: Group of every row, (N,), or None.
    """

    embeddings: FloatArray
    labels: Rows
    groups: Rows | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, rows: Rows) -> "Images":
        """The images in some rows; the same object if in all."""
        if np.array_equal(rows, np.arange(len(self))):
            return self
        return Images(
            self.embeddings[rows],
            self.labels[rows],
            None if self.groups is None else self.groups[rows],
        )


Inputs = tuple[Images, Images | None]
"""The queries, and the gallery if they are not searched among themselves."""


def from_model(
    model: Any,
    examples: Any,
    gallery: Any,
    exclude: Any,
    batch_size: int,
    progress: bool | None,
) -> Inputs:
    """What `evaluate` is given, embedded.

    Raises:
        ValueError: If an argument is not as `evaluate` describes it.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(
            "`model` of evaluate must be a Keras model. Received: model of "
            f"type {type(model).__name__}. Use `evaluate_embeddings("
            "embeddings, labels)` for embeddings."
        )
    _check_image_set("examples", examples)
    if gallery is not None:
        _check_image_set("gallery", gallery)
    groups = _groups(exclude, examples, gallery, "evaluate")

    def embedded(images: ImageSet, groups: Rows | None) -> Images:
        x = embed(model, images, batch_size, progress)
        x = as_embeddings(x, "model(examples)", "evaluate")
        return Images(x, images.labels, groups)

    queries = embedded(examples, groups[0])
    return queries, None if gallery is None else embedded(gallery, groups[1])


def _check_image_set(name: str, value: Any) -> None:
    if not isinstance(value, ImageSet):
        raise ValueError(
            f"`{name}` of evaluate must be an ImageSet. Received: {name} of "
            f"type {type(value).__name__}. Use `ImageSet(pixels, labels)`."
        )


def from_embeddings(
    embeddings: Any,
    labels: Any,
    gallery: Any,
    gallery_labels: Any,
    exclude: Any,
) -> Inputs:
    """What `evaluate_embeddings` is given, checked.

    Raises:
        ValueError: If an argument is not as `evaluate_embeddings`
            describes it.
    """
    owner = "evaluate_embeddings"
    if isinstance(embeddings, keras.Model):
        raise ValueError(
            "`embeddings` of evaluate_embeddings must be an array. Received: "
            f"a model, {embeddings.name!r}. Use `evaluate(model, examples)`."
        )
    x = as_embeddings(embeddings, "embeddings", owner)
    labels = _labels(labels, len(x), "labels")
    if gallery is None:
        if gallery_labels is not None:
            raise ValueError(
                "`gallery_labels` of evaluate_embeddings needs `gallery`. "
                "Received: gallery=None."
            )
        return Images(x, labels, _groups(exclude, x, None, owner)[0]), None
    y = as_embeddings(gallery, "gallery", owner)
    if y.shape[1] != x.shape[1]:
        raise ValueError(
            "`gallery` of evaluate_embeddings must have as many dimensions "
            f"as `embeddings`. Received: embeddings.shape={x.shape}, "
            f"gallery.shape={y.shape}."
        )
    gallery_labels = _labels(gallery_labels, len(y), "gallery_labels")
    groups = _groups(exclude, x, y, owner)
    return Images(x, labels, groups[0]), Images(y, gallery_labels, groups[1])


def _labels(labels: Any, count: int, name: str) -> Rows:
    if labels is None or isinstance(labels, ImageSet):
        raise ValueError(
            f"`{name}` of evaluate_embeddings must be integers, one for each "
            f"embedding. Received: {name} of type {type(labels).__name__}. "
            "Use `images.labels` of an ImageSet, or `evaluate(model, images)`."
        )
    return as_ids(labels, count, name, "evaluate_embeddings")


def _groups(
    exclude: Any, queries: Any, gallery: Any, owner: str
) -> tuple[Rows | None, Rows | None]:
    """Groups of the queries and of the gallery."""
    if exclude is None:
        return None, None
    if gallery is None:
        return as_ids(exclude, len(queries), "exclude", owner), None
    if not isinstance(exclude, tuple) or len(exclude) != 2:
        raise ValueError(
            f"`exclude` of {owner} must be a pair (groups of the queries, "
            "groups of the gallery) where there is a gallery. Received: "
            f"exclude of type {type(exclude).__name__}."
        )
    return (
        as_ids(exclude[0], len(queries), "exclude[0]", owner),
        as_ids(exclude[1], len(gallery), "exclude[1]", owner),
    )


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
    labels = as_ids(labels, len(labels), "labels", "one_per_class")
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


@dataclass(frozen=True)
class Task:
    """Queries and the gallery that they are searched for in.

    Attributes:
        queries: (Q,)
        gallery: (G,)
        query_rows: Identity of each query, (Q,).
        gallery_rows: Identity of each gallery image, (G,); a query never
            retrieves its own.
    """

    queries: Images
    gallery: Images
    query_rows: Rows
    gallery_rows: Rows

    @property
    def symmetric(self) -> bool:
        """Whether queries and gallery are the same."""
        return self.queries is self.gallery

    def relevance(self) -> Relevance:
        """Who is relevant to whom."""
        return Relevance(
            self.queries.labels,
            self.gallery.labels,
            self.query_rows,
            self.gallery_rows,
            self.queries.groups,
            self.gallery.groups,
        )


Protocols = str | Protocol | Sequence[Protocol] | None


def tasks_of(
    images: Images, gallery: Images | None, protocol: Protocols, owner: str
) -> list[Task]:
    """The searches to make, one for each draw of the protocol.

    Args:
        images: The queries; with no `gallery`, all images.
        gallery: Other images to search among, or None.
        protocol: A protocol, several to average over, a name, or None.
        owner: The function whose arguments they are.

    Raises:
        ValueError: If the name is unknown, there is no protocol, or there
            is one beside a gallery.
    """
    if gallery is None:
        draws = _draws(images, protocol, owner)
        return [_task(images, draw) for draw in draws]
    if protocol is not None:
        raise ValueError(
            f"`protocol` of {owner} says which rows are the gallery. "
            f"Received: protocol={protocol!r} and a gallery. Leave out one."
        )
    rows = np.arange(len(images) + len(gallery))
    return [Task(images, gallery, rows[: len(images)], rows[len(images) :])]


def _task(images: Images, protocol: Protocol) -> Task:
    queries, gallery = protocol.rows(len(images))
    return Task(
        images.select(queries), images.select(gallery), queries, gallery
    )


def _draws(
    images: Images, protocol: Protocols, owner: str
) -> Sequence[Protocol]:
    if isinstance(protocol, Protocol):
        return [protocol]
    if protocol is None or protocol == "all_vs_all":
        return [Protocol()]
    if protocol == "official":
        return one_per_class(images.labels)
    if isinstance(protocol, str) or not len(protocol):
        raise ValueError(
            f"`protocol` of {owner} must be one of {PROTOCOLS}, a "
            "`Protocol` or a sequence of them. Received: "
            f"protocol={protocol!r}."
        )
    return protocol
