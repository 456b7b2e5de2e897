"""SampledRows: an update of some rows of a table, whatever the optimizer."""

import keras
import tensorflow as tf

from keras_dml.losses.sampled_classes import rows_at
from keras_dml.utils.types import Tensor


class SampledRows:
    """The rows of a table that a step has read, as a variable of their own.

    Optimizers update whole variables. In place of the table, (C, D), they
    get its rows, (S, D): before an update these take on the values of the
    table, and their slots those of the table's slots; after it they are
    written back. Nothing else of the table or its slots is touched, so that
    a row which no step reads has no momentum and no weight decay in it.

    Args:
        table: A variable of which each step reads `rows_a_step` rows, all
            different, and gets its gradient for them.

    Attributes:
        rows: The variable for the optimizer. It is no weight of the model.
    """

    def __init__(self, table: keras.Variable) -> None:
        self.table = table
        # Paths say whose slots are whose, and which variables losses own.
        with keras.name_scope("sampled"), keras.name_scope("loss"):
            self.rows = keras.Variable(
                initializer="zeros",
                shape=(table.rows_a_step, *table.shape[1:]),
                dtype=table.dtype,
                autocast=False,
                name=table.path.replace("/", "_"),
            )
        self._pairs = [(table, self.rows)]

    def pair(
        self, slots: list[keras.Variable], slots_of_rows: list[keras.Variable]
    ) -> None:
        """Tells what an optimizer keeps of the table and of the rows.

        Raises:
            ValueError: If it does not keep as much of every row.
        """
        shapes = {slot.shape[:1] for slot in slots} - {self.table.shape[:1]}
        if shapes:
            raise ValueError(
                "The optimizer of a loss with `class_share` must keep its "
                "state by row, so that rows can be updated alone. Received: "
                f"state of the shapes {shapes} for {self.table.path!r}. Use "
                "Adam, AdamW, SGD, RMSprop or Lion, or class_share=1."
            )
        slots_by_name = zip(slots, slots_of_rows, strict=True)
        self._pairs = [(self.table, self.rows), *slots_by_name]

    def load(self, places: Tensor) -> None:
        """The rows take on what the table has in some places."""
        for whole, rows in self._pairs:
            rows.assign(rows_at(whole, places))

    def store(self, places: Tensor) -> None:
        """The table takes on what the rows have become."""
        for whole, rows in self._pairs:
            whole.value.scatter_update(
                tf.IndexedSlices(tf.convert_to_tensor(rows), places)
            )


def gradient_of_rows(
    gradient: Tensor | tf.IndexedSlices, table: keras.Variable
) -> tf.IndexedSlices:
    """The gradient of a table, which must be one of the rows of a step.

    Raises:
        ValueError: If it is dense, or one of other rows as well.
    """
    is_sparse = isinstance(gradient, tf.IndexedSlices)
    if not is_sparse or gradient.values.shape[0] != table.rows_a_step:
        raise ValueError(
            "A loss with `class_share` must be computed once a step, and not "
            "in one of several branches. Received: a gradient of "
            f"{'other' if is_sparse else 'all'} rows of {table.path!r}. Use "
            "class_share=1, or a method that trains all of its losses in "
            "every step."
        )
    return gradient
