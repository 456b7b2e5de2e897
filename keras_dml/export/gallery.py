"""Gallery: the embeddings that a served model searches, and the search."""

from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data import Examples
from keras_dml.evaluation import embed
from keras_dml.export.files import OK
from keras_dml.model.identity import WatchedWeights
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import FloatArray, Tensor
from keras_dml.utils.vectors import as_embeddings, unit_rows

MAX_NEIGHBORS = 1000
"""The largest `k` that "lookup_k" takes, if that of the export is not larger.

Otherwise a request could ask for an answer of gigabytes.
"""

K_OUT_OF_RANGE = "k out of range"

_FILLERS = {tf.string: "", tf.int64: -1, tf.float32: 0.0, tf.bool: False}
"""Values of an output, by its dtype, where there is no neighbor."""


@dataclass(frozen=True, eq=False)
class Gallery:
    """Embeddings to search, with the ids and labels that a search returns.

    Args:
        embeddings: (N, D), finite; stored as float32.
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
        """Raises `ValueError` if the model given to `of` has changed since."""
        if self._weights is not None:
            self._weights.check(owner)


def as_gallery(
    model: keras.Model, value: Any, threshold: float | None = None
) -> Gallery:
    """Converts the argument `gallery` of `export_model` to a `Gallery`."""
    if isinstance(value, Examples):
        return Gallery.of(model, value, threshold)
    # A mapping of arrays, or a class of the user, has no model to check.
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
        # An index has a list of keys; `keys` of a mapping is a method.
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
    """Integers as int64, and strings as UTF-8 bytes."""
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
    # File names may contain characters that UTF-8 does not have.
    encoded = [
        x.encode(errors="backslashreplace") if isinstance(x, str) else x
        for x in texts
    ]
    return np.array(encoded, object)


class Lookup:
    """The nearest rows of a gallery, for embeddings whose status is OK."""

    def __init__(self, gallery: Gallery, k: int) -> None:
        self._k = k
        self._max_k = min(max(k, MAX_NEIGHBORS), len(gallery))
        self._threshold = gallery.threshold
        rows = unit_rows(gallery.embeddings)
        # Constants would be limited to 2 GiB by the graph, and a GPU may round
        # products to the 10 bits of TF32.
        with tf.device("CPU:0"):
            self._rows = tf.Variable(rows, trainable=False, name="gallery")
            self._ids = tf.Variable(gallery.ids, trainable=False)
            self._labels = tf.Variable(gallery.labels, trainable=False)

    def of_own_k(
        self, status: Tensor, embeddings: Tensor, k: Tensor
    ) -> dict[str, Tensor]:
        """The outputs of "lookup_k" for the k of each image, (B,) int32."""
        tf.debugging.assert_equal(
            tf.size(k),
            tf.size(status),
            "`k` of lookup_k must have one number per example.",
        )
        fits = (k >= 1) & (k <= self._max_k)
        columns = tf.reduce_max(tf.concat([[1], tf.boolean_mask(k, fits)], 0))
        searched = tf.boolean_mask(fits, status == OK)
        status = tf.where(fits | (status != OK), status, K_OUT_OF_RANGE)
        embeddings = tf.boolean_mask(embeddings, searched)
        outputs = self(status, embeddings, columns)
        is_asked = tf.range(columns) < k[:, None]
        return {
            name: x if name == "status" else tf.where(is_asked, x, _filler(x))
            for name, x in outputs.items()
        }

    def __call__(
        self, status: Tensor, embeddings: Tensor, k: Tensor = None
    ) -> dict[str, Tensor]:
        """The outputs of "lookup", of statuses, (B,)."""
        k = self._k if k is None else k
        # An embedding that overflows in half precision has no neighbors, but
        # those of the other images have.
        is_finite = tf.reduce_all(tf.math.is_finite(embeddings), axis=1)
        has_neighbors = spread(is_finite, status == OK)
        queries = tf.boolean_mask(embeddings, is_finite)
        with tf.device("CPU:0"):
            norms = tf.norm(queries, axis=1, keepdims=True)
            directions = tf.math.divide_no_nan(queries, norms)
            cosines = tf.matmul(directions, self._rows, transpose_b=True)
            scores, rows = tf.math.top_k(cosines, k)
        above = tf.ones_like(scores, "bool")
        if self._threshold is not None:
            above = scores >= self._threshold
        outputs = {
            "ids": tf.gather(self._ids, rows),
            "labels": tf.gather(self._labels, rows),
            "scores": scores,
            "above_threshold": above,
        }
        return {
            **{name: spread(x, has_neighbors) for name, x in outputs.items()},
            "status": status,
        }


def _filler(x: Tensor) -> Tensor:
    return tf.constant(_FILLERS[x.dtype], x.dtype)


def spread(rows: Tensor, where: Tensor) -> Tensor:
    """(B, …): rows, (n, …), where n of B booleans are true, else a filler."""
    filler_row = tf.fill(tf.shape(rows)[1:], _filler(rows))
    with_filler = tf.concat([rows, filler_row[None]], axis=0)
    index = tf.cumsum(tf.cast(where, "int32"), exclusive=True)
    return tf.gather(with_filler, tf.where(where, index, tf.shape(rows)[0]))
