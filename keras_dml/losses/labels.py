"""Labels of a loss: class ids, strings that become ids, and label sets."""

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from keras import backend, ops

from keras_dml.utils.arguments import check_choice
from keras_dml.utils.types import Shape, Tensor

ONE_HOT = (
    "One-hot labels become class ids by `labels.argmax(-1)`, in a tf.data "
    "pipeline by `dataset.map(lambda x, y: (x, tf.argmax(y, -1)))`."
)
_MULTI_LABEL = (
    "Several labels per example become booleans by `labels.astype(bool)`, in "
    'a tf.data pipeline by `dataset.map(lambda x, y: (x, tf.cast(y, "bool")))`.'
)


def label_tensors(
    owner: str, labels: Any, ref_labels: Any, by_class: bool
) -> tuple[Tensor, Tensor | None]:
    """Labels and labels of references, as tensors.

    Strings are numbered: examples with the same string have the same class.
    They raise an error `by_class`, where the number of a class matters.
    """
    arrays = [x for x in (labels, ref_labels) if x is not None]
    if any(map(_are_strings, arrays)):
        if by_class:
            raise ValueError(
                f"`labels` of {owner} must be class ids, because the loss has "
                "a weight for each class. Received: strings, "
                f"{', '.join(repr(str(x)) for x in labels[:3])}, …. "
                "Use names, labels = np.unique(labels, return_inverse=True), "
                "once for the whole training set."
            )
        numbers = np.unique(np.concatenate(arrays), return_inverse=True)[1]
        arrays = np.split(numbers.astype(np.int64), [len(labels)])
    tensors = [ops.convert_to_tensor(x) for x in arrays]
    return (*tensors, None) if ref_labels is None else (tensors[0], tensors[1])


def conversion_of(table: Any) -> str:
    """How to convert numbers, (B, C), to labels, by their values if known.

    `argmax` keeps one label of a row, so it is for rows that have one.
    """
    values = values_of(table)
    if values is None or not values.size:
        return f"{ONE_HOT} {_MULTI_LABEL}"
    if not np.isin(values, (0, 1)).all():
        return "Use one column, labels[:, 0], for instance."
    return ONE_HOT if (values.sum(axis=1) == 1).all() else _MULTI_LABEL


def check_label_kind(
    owner: str, name: str, dtype: str, shape: Shape, labels: Any
) -> None:
    """Raises `ValueError` for labels that are floats.

    Ids above 2²⁴ are equal as float32, and floats in a matrix are mostly
    one-hot labels, or several labels per example.
    """
    if "float" not in dtype:
        return
    way_out = f"Use {name}.astype('int64')."
    if len(shape) == 2:
        way_out = (
            f"{conversion_of(labels)} A relation matrix becomes one by "
            ".astype('int8')."
        )
    raise ValueError(
        f"`{name}` of {owner} must be integers: class ids, (B,), or a "
        f"relation matrix. Received: {name} of dtype {dtype} and shape "
        f"{tuple(shape)}. {way_out}"
    )


def check_order(owner: str, labels: Any, embeddings: Any) -> None:
    """Raises `ValueError` if labels and embeddings are swapped."""
    ranks = [
        len(x.shape) if hasattr(x, "shape") else np.ndim(x)
        for x in (labels, embeddings)
    ]
    if ranks == [2, 1]:
        raise ValueError(
            f"{owner} takes labels first, then embeddings. Received: labels of "
            f"rank 2 and embeddings of rank 1. Use {owner}(…)(labels, "
            "embeddings)."
        )


def values_of(tensor: Tensor) -> npt.NDArray[Any] | None:
    """The values of a tensor; None in a compiled graph, which has none."""
    try:
        # Not `np.asarray`, which warns before it fails on a graph's tensor.
        values: npt.NDArray[Any] = tensor.__array__()
    # It is a RuntimeError if other processes of JAX hold a part of the tensor,
    # and an AttributeError if it is only the spec of a tensor.
    except (AttributeError, NotImplementedError, TypeError, RuntimeError):
        return None
    return values


def are_by_class(relations: npt.NDArray[Any] | None) -> bool:
    """Whether a (B, B) matrix has columns of classes, and is no relation.

    With as many classes as examples the two have the same shape. Relations
    of a batch with itself are symmetric. One-hot labels are not, unless
    every class is in the batch once.
    """
    if relations is None or len(set(relations.shape)) > 1:
        return False
    is_binary = np.isin(relations, (0, 1)).all()
    return bool(is_binary and not np.array_equal(relations, relations.T))


def is_one_hot(relations: npt.NDArray[Any] | None) -> bool:
    """Whether a (B, B) matrix is one-hot labels and no relation of a batch."""
    if relations is None or not are_by_class(relations):
        return False
    return bool((relations.sum(axis=1) == 1).all())


def are_relations(owner: str, matrix: Tensor) -> Tensor:
    """The opposite of `is_one_hot`, as a scalar of a compiled graph.

    A graph of TensorFlow also stops where it is False. XLA drops assertions,
    and JAX has none.
    """
    matrix = ops.cast(matrix, "int32")
    is_symmetric = ops.all(ops.equal(matrix, ops.transpose(matrix)))
    ones = ops.sum(ops.cast(ops.equal(matrix, 1), "int32"), axis=1)
    nonzeros = ops.sum(ops.cast(ops.not_equal(matrix, 0), "int32"), axis=1)
    is_binary = ops.logical_and(ops.all(ones == 1), ops.all(nonzeros == 1))
    holds = ops.logical_or(is_symmetric, ops.logical_not(is_binary))
    if backend.backend() != "tensorflow":
        return holds
    import tensorflow as tf

    message = f"{owner} takes class ids. Received: one-hot labels. {ONE_HOT}"
    with tf.control_dependencies([tf.debugging.Assert(holds, [message])]):
        return tf.identity(holds)


def dtype_name(tensor: Tensor) -> str:
    """ "int64", "float32", "string", …."""
    return str(backend.standardize_dtype(tensor.dtype))


def _are_strings(labels: Any) -> bool:
    if not isinstance(labels, list | tuple | np.ndarray):
        return False
    kind = np.asarray(labels).dtype.kind
    return kind in "US" or (
        kind == "O" and all(isinstance(x, str) for x in labels)
    )


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
    rows = _counts("multi_hot", multi_hot)
    ref_rows = rows
    if ref_multi_hot is not None:
        ref_rows = _counts("ref_multi_hot", ref_multi_hot)
    shared = ops.matmul(rows, ops.transpose(ref_rows))
    if rule == "any":
        return ops.cast(shared > 0, "int32")
    sizes = ops.sum(rows, axis=1)[:, None]
    ref_sizes = ops.sum(ref_rows, axis=1)[None, :]
    same = ops.logical_and(shared == sizes, shared == ref_sizes)
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
    return bool(backend.standardize_dtype(dtype) == "bool")
