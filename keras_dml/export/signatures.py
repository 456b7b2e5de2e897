"""The signatures of a served model: their names, and the search."""

from keras_dml.export.files import OK
from keras_dml.export.gallery import Gallery
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Tensor
from keras_dml.utils.vectors import unit_rows

PIXELS, ENCODED = "serving_default", "encoded"
LOOKUP, LOOKUP_K = "lookup", "lookup_k"

K_SPEC = tf.TensorSpec((None,), "int32", name="k")
"""What "lookup_k" takes beside the examples: the `k` of each.

Not one of all: a server that batches joins all inputs along an axis.
"""

MOST_NEIGHBORS = 1000
"""The largest `k` that "lookup_k" takes, if that of the export is not larger.

A request must not be able to ask for an answer of gigabytes.
"""

K_OUT_OF_RANGE = "k out of range"

_NOTHING = {tf.string: "", tf.int64: -1, tf.float32: 0.0, tf.bool: False}
"""What stands in an output, by its dtype, where there is nothing to say."""


class Lookup:
    """The nearest rows of a gallery, for embeddings whose status is OK."""

    def __init__(self, gallery: Gallery, k: int) -> None:
        self._k = k
        self._most = min(max(k, MOST_NEIGHBORS), len(gallery))
        self._threshold = gallery.threshold
        rows = unit_rows(gallery.embeddings)
        # They are no constants, because a graph ends at 2 GiB; and a GPU may
        # round products to the 10 bits of TF32.
        with tf.device("CPU:0"):
            self._rows = tf.Variable(rows, trainable=False, name="gallery")
            self._ids = tf.Variable(gallery.ids, trainable=False)
            self._labels = tf.Variable(gallery.labels, trainable=False)

    def __call__(self, status: Tensor, embeddings: Tensor) -> dict[str, Tensor]:
        """The outputs of "lookup", of statuses, (B,)."""
        return self._find(status, embeddings, self._k)

    def of_own_k(
        self, status: Tensor, embeddings: Tensor, k: Tensor
    ) -> dict[str, Tensor]:
        """The outputs of "lookup_k": as many as the k of each, (B,) int32.

        Columns are as many as the largest. An image has nothing in those
        beyond its own k, and in none if that is out of range.
        """
        tf.debugging.assert_equal(
            tf.size(k),
            tf.size(status),
            "`k` of lookup_k must have one number per example.",
        )
        fits = (k >= 1) & (k <= self._most)
        columns = tf.reduce_max(tf.concat([[1], tf.boolean_mask(k, fits)], 0))
        searched = tf.boolean_mask(fits, status == OK)
        status = tf.where(fits | (status != OK), status, K_OUT_OF_RANGE)
        embeddings = tf.boolean_mask(embeddings, searched)
        found = self._find(status, embeddings, columns)
        is_asked = tf.range(columns) < k[:, None]
        return {
            name: x if name == "status" else tf.where(is_asked, x, _nothing(x))
            for name, x in found.items()
        }

    def _find(
        self, status: Tensor, embeddings: Tensor, k: int | Tensor
    ) -> dict[str, Tensor]:
        # An overflow in half precision has no neighbors, but the other
        # images of the batch have.
        is_finite = tf.reduce_all(tf.math.is_finite(embeddings), axis=1)
        has_neighbors = spread(is_finite, status == OK)
        scores, rows = self._search(tf.boolean_mask(embeddings, is_finite), k)
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

    def _search(
        self, queries: Tensor, k: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """The highest cosines to the gallery, and its rows, (n, k) each."""
        with tf.device("CPU:0"):
            norms = tf.norm(queries, axis=1, keepdims=True)
            directions = tf.math.divide_no_nan(queries, norms)
            cosines = tf.matmul(directions, self._rows, transpose_b=True)
            return tf.math.top_k(cosines, k)


def _nothing(x: Tensor) -> Tensor:
    return tf.constant(_NOTHING[x.dtype], x.dtype)


def spread(rows: Tensor, where: Tensor) -> Tensor:
    """(B, …): rows, (n, …), where n of B booleans are true, else nothing."""
    filler_row = tf.fill(tf.shape(rows)[1:], _nothing(rows))
    with_filler = tf.concat([rows, filler_row[None]], axis=0)
    place = tf.cumsum(tf.cast(where, "int32"), exclusive=True)
    return tf.gather(with_filler, tf.where(where, place, tf.shape(rows)[0]))
