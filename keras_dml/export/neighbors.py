"""Exact nearest neighbors in a TensorFlow graph.

As in `keras_dml.evaluation`, a float32 matrix product only rules out what
its rounding error cannot bring back. All that is left, a little more than
k rows for each query, is scored in float64, one pair at a time, so that
equal rows have equal scores wherever they stand, and ties go to the row
that stands first.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import FloatArray, Tensor
from keras_dml.utils.vectors import row_norms

MOST_SCORES = 2**24
"""Float32 scores that are held at a time: 64 MiB."""

MOST_PAIRS = 2**15
"""Pairs of a query and a row that are scored in float64 at a time."""


class Neighbors:
    """Rows of a gallery with the highest cosine to each query.

    The gallery is a variable, not a constant of the graph: a graph is a
    protocol buffer and ends at 2 GiB. All is computed on the CPU: on a GPU
    a float32 product may round to the 10 bits of TF32.

    Args:
        gallery: (N, D) float32, finite.
    """

    def __init__(self, gallery: FloatArray) -> None:
        rows = _near_one(gallery)
        norms = row_norms(rows)
        inverse = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
        with tf.device("CPU:0"):
            self._rows = tf.Variable(rows, trainable=False, name="gallery")
            self._inverse_norms = tf.Variable(
                inverse.astype(np.float32), trainable=False, name="norms"
            )
        # |fl(q·y) − q·y| ≤ γ_n |q|·|y| for any order of summation (Higham,
        # "Accuracy and Stability of Numerical Algorithms", 2nd ed., eq.
        # 3.5), with room for the rounding of q, of 1/|y| and of the scores.
        terms = gallery.shape[1] + 16
        self._tolerance = terms * float(np.finfo(np.float32).eps) / 2
        self._most_queries = max(1, MOST_SCORES // len(gallery))

    def __call__(
        self, queries: Tensor, k: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """The rows nearest to (B, D) float32 queries, finite; best first.

        Args:
            queries: (B, D) float32, finite.
            k: Neighbors for each query, 1 to N: a number, or one, int32,
                that a request brings.

        Returns:
            Rows, (B, k) int64, and their cosines, (B, k) float32. Cosines
            of zeros are 0.
        """
        columns = tf.get_static_value(k)
        with tf.device("CPU:0"):
            return _in_parts(
                lambda items: self._search(tf.gather(queries, items), k),
                tf.shape(queries)[0],
                self._most_queries,
                (
                    tf.TensorSpec((None, columns), "int64"),
                    tf.TensorSpec((None, columns), "float32"),
                ),
            )

    def _search(
        self, queries: Tensor, k: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        directions = tf.cast(_unit(queries)[0], "float32")
        scores = tf.matmul(directions, self._rows, transpose_b=True)
        scores *= self._inverse_norms
        lowest = tf.math.top_k(scores, k).values[:, -1:]
        pairs = tf.where(scores >= lowest - 2 * self._tolerance)
        exact = _in_parts(
            lambda items: self._exact(queries, tf.gather(pairs, items)),
            tf.shape(pairs)[0],
            MOST_PAIRS,
            tf.TensorSpec((None,), "float64"),
        )
        return _best(pairs, exact, tf.shape(queries, "int64")[0], k)

    def _exact(self, queries: Tensor, pairs: Tensor) -> Tensor:
        """Scores as the evaluation has them, −|x − y|²/2, (P,) float64.

        Of unit vectors that is the cosine less 1, and tells near ones
        apart where their cosines all round to 1.
        """
        x, x_is_zero = _unit(tf.gather(queries, pairs[:, 0]))
        y, y_is_zero = _unit(tf.gather(self._rows, pairs[:, 1]))
        scores = -0.5 * tf.reduce_sum(tf.square(x - y), axis=1)
        minus_one = tf.constant(-1.0, "float64")
        return tf.where(x_is_zero | y_is_zero, minus_one, scores)


def _best(
    pairs: Tensor, exact: Tensor, count: Tensor, k: int | Tensor
) -> tuple[Tensor, Tensor]:
    """Rows and cosines of the k best pairs of each of `count` queries."""
    # Pairs come in the order of queries, then rows. Both sorts keep it
    # where they find nothing to tell two pairs apart.
    query, row = tf.unstack(pairs, axis=1)
    order = tf.argsort(exact, direction="DESCENDING", stable=True)
    by_query = tf.argsort(tf.gather(query, order), stable=True)
    order = tf.gather(order, by_query)
    starts = tf.searchsorted(query, tf.range(count))
    best = tf.gather(order, starts[:, None] + tf.range(k))
    cosines = tf.cast(1 + tf.gather(exact, best), "float32")
    return tf.gather(row, best), cosines


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Rows in unit length, (n, D) float64, and which are zero, (n,)."""
    vectors = tf.cast(vectors, "float64")
    norms = tf.sqrt(tf.reduce_sum(tf.square(vectors), axis=1))
    inverse = tf.math.reciprocal_no_nan(norms)
    return vectors * inverse[:, None], norms == 0


def _near_one(gallery: FloatArray) -> FloatArray:
    """Rows times powers of two, which change no digit of their cosines."""
    largest = np.abs(gallery).max(axis=1, keepdims=True)
    return np.ldexp(gallery, -np.frexp(largest)[1]).astype(np.float32)


def _in_parts(
    function: Callable[[Tensor], Any], count: Tensor, most: int, specs: Any
) -> Any:
    """The results of a function for 0 to `count` − 1, computed in parts.

    It maps int32 numbers, (n,), to tensors, (n, …), of the given specs.
    """
    parts = tf.maximum(-(-count // most), 1)
    size = -(-count // parts)
    # Parts are of one size, so the last number is repeated.
    items = tf.minimum(tf.range(parts * size), count - 1)
    results = tf.map_fn(
        function,
        tf.reshape(items, (parts, size)),
        fn_output_signature=specs,
        parallel_iterations=1,
    )
    return tf.nest.map_structure(
        lambda x: tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], 0))[:count],
        results,
    )
