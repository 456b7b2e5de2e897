"""Gallery: the embeddings that a served model searches."""

from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data import Examples
from keras_dml.evaluation import embed
from keras_dml.model.identity import WatchedWeights
from keras_dml.utils.arrays import as_embeddings
from keras_dml.utils.types import FloatArray


@dataclass(frozen=True, eq=False)
class Gallery:
    """Embeddings to search, with the ids and labels that a search returns.

    Args:
        embeddings: (N, D), finite; kept as float32.
        labels: (N,) integers or strings: the class of each image.
        ids: (N,) integers or strings that identify the images; by default, the
            row numbers 0 to N − 1.
        threshold: The cosine similarity from which a neighbor counts as a
            match. With None, every neighbor counts.

    Raises:
        ValueError: If shapes, types or values are invalid.

    Example:

    ```python
    gallery = Gallery(embeddings, labels=["cat", "cat", "dog"])
    gallery = Gallery.of(model, images)
    ```
    """

    embeddings: FloatArray
    labels: npt.ArrayLike
    ids: npt.ArrayLike | None = None
    threshold: float | None = None
    _weights: WatchedWeights | None = field(
        default=None, init=False, repr=False
    )

    def __post_init__(self) -> None:
        rows = as_embeddings(self.embeddings, "embeddings", "Gallery")
        ids = np.arange(len(rows)) if self.ids is None else self.ids
        for name, value in (
            ("embeddings", rows.astype(np.float32, copy=False)),
            ("labels", _as_column("labels", self.labels, len(rows))),
            ("ids", _as_column("ids", ids, len(rows))),
        ):
            object.__setattr__(self, name, value)
        if self.threshold is not None and not np.isfinite(self.threshold):
            raise ValueError(
                "`threshold` of Gallery must be a number, or None if every "
                "neighbor is to count as a match. Received: "
                f"threshold={self.threshold!r}."
            )

    def __len__(self) -> int:
        return len(self.embeddings)

    @classmethod
    def of(
        cls,
        model: keras.Model,
        images: Examples,
        threshold: float | None = None,
    ) -> "Gallery":
        """Embeds the examples of a set; images are seen in the test view.

        Labels are class names if the set names all of its classes, and integers
        otherwise. Ids are the row numbers.

        Args:
            model: The model to export.
            images: N examples with labels.
            threshold: As for `Gallery`.
        """
        labels: npt.ArrayLike = images.known_labels
        if all(label in images.names for label in images.classes.tolist()):
            labels = [
                images.names[label] for label in images.known_labels.tolist()
            ]
        gallery = cls(embed(model, images), labels, threshold=threshold)
        object.__setattr__(gallery, "_weights", WatchedWeights(model))
        return gallery

    def check_model(self, model: keras.Model, owner: str) -> None:
        """ValueError if the model of `of` has changed since."""
        if self._weights is not None:
            self._weights.check(owner)


def as_gallery(
    model: keras.Model, value: Any, threshold: float | None = None
) -> Gallery:
    """Converts the argument `gallery` of `export_model` to a `Gallery`.

    Raises:
        ValueError: If it is something else, or holds embeddings of other
            weights.
    """
    if isinstance(value, Examples):
        return Gallery.of(model, value, threshold)
    # A mapping of arrays, or a class of a user's own, knows no model.
    if check := getattr(value, "check_model", None):
        check(model, "export")
    if not isinstance(value, Gallery):
        if not (hasattr(value, "embeddings") and hasattr(value, "labels")):
            raise ValueError(
                "`gallery` of export must be a set of examples, or have "
                "`embeddings` and `labels`. Received: a gallery of type "
                f"{type(value).__name__}. Use Gallery(embeddings, labels)."
            )
        metric = getattr(value, "metric", "cosine")
        if metric != "cosine":
            raise ValueError(
                "`gallery` of export must use the cosine metric, as the "
                "exported model does. Received: an index with "
                f"metric={metric!r}. Build it again with metric='cosine'."
            )
        match_threshold = getattr(value, "threshold", None)
        # The keys of an index are its users'; `keys` of a mapping is a method.
        keys = getattr(value, "keys", None)
        value = Gallery(
            value.embeddings,
            value.labels,
            keys if isinstance(keys, list) else getattr(value, "ids", None),
            # A calibrated threshold is an object with a value.
            getattr(match_threshold, "value", match_threshold),
        )
    return value if threshold is None else replace(value, threshold=threshold)


def _as_column(
    name: str, values: npt.ArrayLike, count: int
) -> npt.NDArray[Any]:
    """int64 of integers, UTF-8 bytes of strings."""
    column = np.asarray(values)
    if column.shape != (count,):
        raise ValueError(
            f"`{name}` of Gallery must have one item per embedding. Received: "
            f"{name} of shape {column.shape} for {count} embeddings."
        )
    if column.dtype.kind in "iu":
        return column.astype(np.int64)
    texts = column.tolist()
    if not all(isinstance(text, str | bytes) for text in texts):
        raise ValueError(
            f"`{name}` of Gallery must be integers or strings. Received: "
            f"{name} of dtype {column.dtype}."
        )
    # Names of files may hold what UTF-8 does not.
    encoded = [
        x.encode(errors="backslashreplace") if isinstance(x, str) else x
        for x in texts
    ]
    return np.array(encoded, object)
