"""From what the user hands over to embedded images."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_dml.data import ImageSet
from keras_dml.evaluation._embed import embed
from keras_dml.utils.arrays import as_embeddings, as_ids
from keras_dml.utils.types import FloatArray, Rows


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


def embedded(
    model: keras.Model,
    images: Any,
    gallery: Any,
    batch_size: int,
    progress: bool | None,
) -> tuple[Any, Any, Any, Any]:
    """Embeds `ImageSet`s.

    Returns:
        Embeddings and labels of `images` and of `gallery`, or None.

    Raises:
        ValueError: If they are no `ImageSet`s.
    """
    _check_image_set("labels", images)
    if gallery is not None:
        _check_image_set("gallery", gallery)
    x = embed(model, images, batch_size, progress)
    if gallery is None:
        return x, images.labels, None, None
    others = embed(model, gallery, batch_size, progress)
    return x, images.labels, others, gallery.labels


def _check_image_set(name: str, value: Any) -> None:
    if not isinstance(value, ImageSet):
        raise ValueError(
            f"`{name}` of evaluate must be an ImageSet where `x` is a model. "
            f"Received: {name} of type {type(value).__name__}. Use "
            "`evaluate(model, images)`."
        )


def checked_images(
    x: Any, labels: Any, gallery: Any, gallery_labels: Any, exclude: Any
) -> tuple[Images, Images | None]:
    """Queries and, if there is one, the gallery.

    Raises:
        ValueError: If they do not fit together.
    """
    x = as_embeddings(x)
    labels = _as_labels(labels, len(x), "labels")
    if gallery is None:
        if gallery_labels is not None:
            raise ValueError(
                "`gallery_labels` of evaluate needs `gallery`. Received: "
                "gallery=None."
            )
        groups = None if exclude is None else as_ids(exclude, len(x), "exclude")
        return Images(x, labels, groups), None
    gallery = as_embeddings(gallery, "gallery")
    if gallery.shape[1] != x.shape[1]:
        raise ValueError(
            "`gallery` of evaluate must have as many dimensions as `x`. "
            f"Received: x.shape={x.shape}, gallery.shape={gallery.shape}."
        )
    gallery_labels = _as_labels(gallery_labels, len(gallery), "gallery_labels")
    groups, others = _group_pair(exclude, len(x), len(gallery))
    return Images(x, labels, groups), Images(gallery, gallery_labels, others)


def _as_labels(labels: Any, count: int, name: str) -> Rows:
    if labels is None:
        raise ValueError(
            f"`{name}` of evaluate must be given. Received: {name}=None. "
            "Use `evaluate(embeddings, labels)` or `evaluate(model, images)`."
        )
    return as_ids(
        labels.labels if isinstance(labels, ImageSet) else labels, count, name
    )


def _group_pair(
    exclude: Any, queries: int, gallery: int
) -> tuple[Rows | None, Rows | None]:
    if exclude is None:
        return None, None
    if not isinstance(exclude, tuple) or len(exclude) != 2:
        raise ValueError(
            "`exclude` of evaluate must be a pair (groups of the queries, "
            "groups of the gallery) where there is a gallery. Received: "
            f"exclude of type {type(exclude).__name__}."
        )
    return (
        as_ids(exclude[0], queries, "exclude[0]"),
        as_ids(exclude[1], gallery, "exclude[1]"),
    )
