"""Visits of the marked entries of all rows, without lists of indices."""

from collections.abc import Callable
from typing import TypeAlias

from keras import ops

from keras_dml.utils.types import Tensor

State: TypeAlias = tuple[Tensor, ...]


def for_each_marked(
    mask: Tensor, body: Callable[..., State], initial: State
) -> State:
    """Visits the first marked entry of all rows at once, then the second, …

    As many visits as the fullest row has marks. A row

        mask    False  True  False  True
        score       0     3      0     1

    is visited at column 1, where the score is the largest, 3, then at
    column 3, whose score is the largest below 3. (A running count along
    the rows would tell which entry is whose k-th, but it takes longer than
    all else that a loss does.)

    Args:
        mask: (B, R) boolean.
        body: `(k, score, marked, *state) -> state`, with k from 1, the
            (B, 1) scores of the entries, 0 in rows that have no k-th one,
            and the (B, R) mask with at most one entry a row; see
            `column_of` for its column.
        initial: The first state.

    Returns:
        The last state.
    """
    columns = ops.shape(mask)[1]
    to_the_end = ops.cast(columns, "float32") - ops.arange(
        columns, dtype="float32"
    )
    scores = ops.where(mask, to_the_end, 0.0)
    visits = ops.max(ops.sum(ops.cast(mask, "int32"), axis=1))

    def visit(k: Tensor, last: Tensor, *state: Tensor) -> State:
        left = ops.where(scores < last, scores, 0.0)
        score = ops.max(left, axis=1, keepdims=True)
        marked = ops.logical_and(scores == score, score > 0)
        return (k + 1, score, *body(k, score, marked, *state))

    before_all = ops.full_like(scores[:, :1], float("inf"))
    _, _, *state = ops.while_loop(
        lambda k, *_: k <= visits,
        visit,
        (ops.ones_like(visits), before_all, *initial),
    )
    return tuple(state)


def column_of(score: Tensor, mask: Tensor) -> Tensor:
    """(B,) int32: the column of a (B, 1) score; any where there is none."""
    columns = ops.shape(mask)[1]
    return ops.minimum(columns - ops.cast(score[:, 0], "int32"), columns - 1)


def value_at(values: Tensor, marked: Tensor) -> Tensor:
    """(B, 1): the value of each row where its one entry is marked, else 0."""
    return ops.sum(ops.where(marked, values, 0.0), axis=1, keepdims=True)


def value_in(values: Tensor, column: Tensor) -> Tensor:
    """(B, 1): the value of each row, (B, R), in its column, (B,) int32."""
    rows, columns = ops.shape(values)[:2]
    places = columns * ops.arange(rows, dtype="int32") + column
    return ops.take(ops.reshape(values, (-1,)), places)[:, None]
