"""Relations of examples with several labels each."""

from typing import Literal, TypeAlias

import keras
from keras import ops

from keras_dml.utils.arguments import check_choice
from keras_dml.utils.types import Tensor

Rule: TypeAlias = Literal["any", "all"]
RULES: tuple[Rule, ...] = ("any", "all")


def relations(
    multi_hot: Tensor,
    ref_multi_hot: Tensor | None = None,
    rule: Rule = "any",
) -> Tensor:
    """Which examples with several labels are positive to each other.

    What any loss on pairs takes as `labels`. An example without labels is
    positive to none, whatever the rule.

    Args:
        multi_hot: (B, C), not 0 where an example has a label.
        ref_multi_hot: (R, C), of the references. None compares the batch
            with itself.
        rule: "any": those that share a label are positive; "all": those
            that have the same labels.

    Returns:
        (B, R) int32: 1 for a positive, 0 for a negative pair. A loss that
        compares the batch with itself leaves out the diagonal.

    Raises:
        ValueError: If `rule` is unknown, or a matrix is none.

    Example:
        ```python
        relations([[1, 1, 0], [0, 1, 1], [0, 0, 1]])
        # [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
        ```
    """
    check_choice("relations", "rule", rule, RULES)
    own = _counts("multi_hot", multi_hot)
    others = own
    if ref_multi_hot is not None:
        others = _counts("ref_multi_hot", ref_multi_hot)
    shared = ops.matmul(own, ops.transpose(others))
    if rule == "any":
        return ops.cast(shared > 0, "int32")
    of_own = ops.sum(own, axis=1)[:, None]
    of_others = ops.sum(others, axis=1)[None, :]
    same = ops.logical_and(shared == of_own, shared == of_others)
    return ops.cast(ops.logical_and(same, shared > 0), "int32")


def _counts(name: str, multi_hot: Tensor) -> Tensor:
    matrix = ops.convert_to_tensor(multi_hot)
    if len(matrix.shape) != 2:
        raise ValueError(
            f"`{name}` of relations must be a matrix with a row for each "
            "example and a column for each label. Received: shape "
            f"{tuple(matrix.shape)}."
        )
    return ops.cast(ops.not_equal(matrix, 0), "float32")


def is_multi_hot(labels: Tensor) -> bool:
    """Whether labels are boolean (B, C): several labels per example.

    Integers are class ids, or a relation matrix.
    """
    dtype = getattr(labels, "dtype", None)
    if dtype is None or len(labels.shape) != 2:
        return False
    return bool(keras.backend.standardize_dtype(dtype) == "bool")
