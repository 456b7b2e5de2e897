"""SampledRows: an update of some rows of a table, by any optimizer."""

import keras
import tensorflow as tf

from keras_dml.losses.sampled_classes import rows_at
from keras_dml.utils.types import Tensor


class SampledRows:
    """The rows of a table that a step has read, as a separate variable.

    Optimizers update whole variables. Instead of the table, (C, D), they are
    given its rows, (S, D): before an update, the rows are set to the values of
    the table, and their slots to those of the table's slots; afterwards, both
    are written back. Nothing else in the table or its slots changes, so a row
    that a step does not read gets neither momentum nor weight decay in that
    step.

    Args:
        table: A variable of which each step reads `rows_a_step` rows, all
            different, and gets its gradient for them.

    Attributes:
        rows: The variable for the optimizer. It is not a weight of the model.
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
        """Pairs the optimizer's slots of the table with those of the rows.

        Raises:
            ValueError: If the optimizer does not keep the same state for each
                row.
        """
        shapes = {slot.shape[:1] for slot in slots} - {self.table.shape[:1]}
        if shapes:
            raise ValueError(
                "The optimizer of a loss with `class_share` must keep its "
                "state per row, so that single rows can be updated. "
                f"Received: state of the shapes {shapes} for "
                f"{self.table.path!r}. Use Adam, AdamW, SGD, RMSprop or Lion, "
                "or class_share=1."
            )
        slots_by_name = zip(slots, slots_of_rows, strict=True)
        self._pairs = [(self.table, self.rows), *slots_by_name]

    def load(self, places: Tensor) -> None:
        """Sets the rows to the given rows of the table."""
        for whole, rows in self._pairs:
            rows.assign(rows_at(whole, places))

    def store(self, places: Tensor) -> None:
        """Writes the rows back to the table."""
        for whole, rows in self._pairs:
            whole.value.scatter_update(
                tf.IndexedSlices(tf.convert_to_tensor(rows), places)
            )


def gradient_of_rows(
    gradient: Tensor | tf.IndexedSlices, table: keras.Variable
) -> tf.IndexedSlices:
    """The gradient of a table, which must cover only the rows of a step.

    Raises:
        ValueError: If it is dense or also covers other rows.
    """
    is_sparse = isinstance(gradient, tf.IndexedSlices)
    if not is_sparse or gradient.values.shape[0] != table.rows_a_step:
        raise ValueError(
            "A loss with `class_share` must be computed once per step, and "
            "not in one of several branches. Received: a gradient of "
            f"{'other' if is_sparse else 'all'} rows of {table.path!r}. Use "
            "class_share=1, or a method that trains all of its losses in "
            "every step."
        )
    return gradient
