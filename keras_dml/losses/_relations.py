"""Relations between examples with several labels."""

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
    """Computes which examples with several labels are positive pairs.

    The result can be passed to any loss on pairs as `labels`. An example
    without labels has no positives, whatever the rule.

    Args:
        multi_hot: (B, C), nonzero where an example has a label.
        ref_multi_hot: (R, C), likewise for the references. None compares the
            batch with itself.
        rule: "any": examples that share a label are positive; "all": examples
            with the same labels are positive.

    Returns:
        (B, R) int32: 1 for a positive and 0 for a negative pair. Losses ignore
        the diagonal if they compare the batch with itself.

    Raises:
        ValueError: If `rule` is unknown, or an argument is not a matrix.

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
            f"`{name}` of relations must be a matrix with one row per example "
            f"and one column per label. Received: shape {tuple(matrix.shape)}."
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
