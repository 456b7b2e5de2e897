"""Checks of batches before a step sees them, for data that cannot train."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data.feature_set import are_features
from keras_dml.data.samplers.base import UNKNOWN
from keras_dml.layers.memory import has_narrow_ids
from keras_dml.losses.labels import ONE_HOT, check_label_kind, is_one_hot
from keras_dml.model.warnings import (
    expects_bytes,
    warn,
    warn_of_classes,
    warn_of_pixels,
    warn_of_random_batches,
    warn_of_relations,
    warn_of_sets,
)
from keras_dml.utils.types import Tensors

WAY_OF_IDS = (
    "Use names, y = np.unique(y, return_inverse=True), once for all data"
)

_LOOKED_AT = 4096
"""Number of examples whose values are checked. Only whole arrays have more,
and these may be memory-mapped files."""


_SAMPLED = 16
"""Number of examples that are kept."""


class BatchChecks:
    """Checks batches on the host and rejects data that cannot train.

    A compiled step cannot look at values, and XLA drops assertions. So the
    first batch of an epoch is checked on its way to the step, and later
    batches if their labels are out of range or have no positives.

    Args:
        use: "fit" or "evaluate", for messages.
        model: The model, whose objective says what a batch must have.
        is_share: Whether batches are shares of larger batches, whose pairs
            cannot be seen in them.
    """

    def __init__(
        self, use: str, model: keras.Model, is_share: bool = False
    ) -> None:
        self.use = use
        objective = model.objective
        self.label_limit = objective.label_limit
        self.needs_positives = objective.needs_positives and not is_share
        self.needs_negatives = objective.needs_negatives and not is_share
        self.needs_triplets = objective.needs_triplets and not is_share
        self.is_share = is_share
        self.expects_bytes = expects_bytes(model.backbone)
        self.is_planned = False  # By a sampler, which looks at its labels.
        self.sample: Any = None  # A few inputs that were looked at last.
        self.label_rank: int | None = None  # Once it is known.
        self.error: ValueError | None = None
        self._messages: set[str] = set()

    def check_kinds(self, x: Any, y: Any) -> None:
        """Checks the types and shapes of arrays or of their specs.

        Args:
            x: Inputs, anything with `dtype` and `shape`.
            y: Labels, or a dict with "label".

        Raises:
            ValueError: If there are no labels, labels are not a vector of
                integers, or inputs are not batched.
        """
        for leaf in keras.tree.flatten((x, y)):
            if type(leaf).__name__.startswith(("Ragged", "Sparse")):
                raise ValueError(
                    f"Data for MetricModel.{self.use} must be dense. "
                    f"Received: {leaf}. Use dataset.map(lambda x, y: "
                    "(x.to_tensor(), y)), or keras.utils.pad_sequences."
                )
        labels = label_of(y)
        if labels is None:
            raise ValueError(
                f"Data for MetricModel.{self.use} must have labels. Received: "
                f"{'none' if y is None else sorted(y)}. Use batches (x, y) "
                'where y holds the class ids, (B,), or is a dict with "label".'
            )
        if getattr(labels.shape, "rank", 0) is None:
            return
        dtype, shape = _dtype_of(labels), tuple(labels.shape)
        self.label_rank = len(shape)
        if not shape:
            rank = len(next(iter(keras.tree.flatten(x))).shape)
            raise ValueError(
                f"Data for MetricModel.{self.use} must be batched. Received: "
                f"single examples of rank {rank} with scalar labels. Use "
                "dataset.batch(64), or batches with several examples per "
                "class."
            )
        if dtype in ("string", "object"):
            raise ValueError(
                f"`y` of MetricModel.{self.use} must be class ids. Received: "
                f"strings. {WAY_OF_IDS}; keras_dml.data.ArraySet does this "
                "itself and keeps the names."
            )
        if len(shape) == 2 and shape[1] == 1:
            shape = shape[:1]
        check_label_kind(f"MetricModel.{self.use}", "y", dtype, shape)
        # Booleans, (B, C), are several labels an example.
        is_table = len(shape) == 2 and not self.is_share
        if is_table and shape[0] != shape[1] and dtype != "bool":
            raise ValueError(
                f"`y` of MetricModel.{self.use} must be class ids, (B,), or "
                "the relation matrix of the batch, (B, B). Received: labels "
                f"of shape {shape}. {ONE_HOT}"
            )

    def check_values(
        self, x: Any, labels: npt.NDArray[Any], is_batch: bool = True
    ) -> None:
        """Checks what can only be seen in the values.

        Args:
            x: Inputs of the batch, or a dict of inputs.
            labels: Labels as the user gave them.
            is_batch: Whether they are a batch, in whose pairs the loss is
                computed, and not the whole data.

        Raises:
            ValueError: If the numbers of labels and examples differ, a class
                id is out of range, or labels are one-hot.
        """
        try:
            self._check_values(x, as_ids(np.asarray(labels)), is_batch)
        except ValueError as error:
            self.error = error  # TensorFlow only passes on its text.
            raise

    def _check_values(
        self, x: Any, labels: npt.NDArray[Any], is_batch: bool
    ) -> None:
        inputs = keras.tree.flatten(x)
        if len(inputs[0]) != len(labels):
            raise ValueError(
                f"Batches for MetricModel.{self.use} must have one label per "
                f"example. Received: {len(inputs[0])} examples, {len(labels)} "
                "labels."
            )
        step = max(1, len(labels) // _SAMPLED)
        self.sample = keras.tree.map_structure(
            lambda array: np.array(array[::step][:_SAMPLED]), x
        )
        inputs = [np.asarray(array[:_LOOKED_AT]) for array in inputs]
        for array in inputs:
            self._check_finite(array)
        if labels.ndim == 2:
            if labels.dtype == bool:
                if self.needs_positives:
                    warn_of_sets(labels, self._messages)
            elif self.is_share:
                pass  # Rows of a relation matrix.
            elif is_one_hot(labels):
                raise ValueError(
                    f"`y` of MetricModel.{self.use} must be class ids, or a "
                    "relation matrix, which is symmetric. Received: one-hot "
                    f"labels of shape {labels.shape}. {ONE_HOT}"
                )
            elif self.needs_triplets:
                warn_of_relations(labels, self._messages)
            return
        self._check_range(labels)
        self._check_width(labels)
        unknown = np.count_nonzero(labels == -1)
        if unknown and not self.is_planned:
            owner = f"`y` of MetricModel.{self.use}"
            warn(UNKNOWN, owner, unknown, messages=self._messages)
        if is_batch and self.needs_positives:
            warn_of_classes(labels, self.needs_negatives, self._messages)
        if self.expects_bytes and not are_features(x):
            for array in inputs:
                owner = f"MetricModel.{self.use}"
                warn_of_pixels(array, owner, self._messages)

    def _check_finite(self, array: npt.NDArray[Any]) -> None:
        if array.dtype.kind != "f":
            return
        with np.errstate(over="ignore", invalid="ignore"):
            total = array.sum()
        if np.isfinite(total):  # At a fraction of the cost of each number.
            return
        finite = np.isfinite(array.reshape(len(array), -1)).all(axis=1)
        if not finite.all():
            raise ValueError(
                f"Inputs of MetricModel.{self.use} must be finite. Received: "
                f"NaN or infinity in {np.sum(~finite)} of {len(array)} "
                f"examples of a batch, first in example {np.argmin(finite)}. "
                "Remove these examples, or replace the values with "
                "numpy.nan_to_num(x)."
            )

    def _check_range(self, labels: npt.NDArray[Any]) -> None:
        limit = self.label_limit
        if limit is None:
            return
        outside = labels[(labels < 0) | (labels >= limit)]
        if not outside.size:
            return
        way_out = (
            "Number the training classes 0, 1, 2, …, for example with "
            "`examples.relabeled()`, or increase num_classes."
        )
        if self.use == "evaluate":
            way_out = (
                "A class that was not trained has no weight, so its loss is "
                "undefined. Measure retrieval instead, with "
                "keras_dml.callbacks.RetrievalEvaluation(examples) or "
                "keras_dml.evaluation.evaluate(model, examples), or train "
                "with a pair-based loss."
            )
        raise ValueError(
            f"Labels for MetricModel.{self.use} must lie in [0, num_classes), "
            "because the loss has one weight per class. Received: "
            f"num_classes={limit} and a label {outside[0]}. {way_out}"
        )

    def _check_width(self, labels: npt.NDArray[Any]) -> None:
        if not has_narrow_ids():
            return
        outside = labels[beyond(labels)]
        if outside.size:
            raise ValueError(
                f"Labels for MetricModel.{self.use} must fit 32 bits on JAX, "
                "which would merge classes that differ in other bits. "
                f"Received: a label {outside[0]}. Number the classes 0, 1, 2, "
                "…, for example with `examples.relabeled()` or "
                "np.unique(y, return_inverse=True)."
            )

    def expect_pairs(
        self, labels: npt.NDArray[Any], batch_size: int, is_ordered: bool
    ) -> None:
        """Warns if batches without a sampler have few positive pairs.

        Args:
            labels: Labels of all examples.
            batch_size: Number of examples in a batch.
            is_ordered: Whether batches keep the order of the examples.
        """
        if not self.needs_positives or labels.ndim != 1 or len(labels) < 2:
            return
        is_mixed = len(np.unique(labels)) not in (1, len(labels))
        if is_mixed and not is_ordered:
            warn_of_random_batches(labels, batch_size, self._messages)
            return
        for start in range(0, len(labels), batch_size):
            batch = labels[start : start + batch_size]
            warn_of_classes(batch, self.needs_negatives, self._messages)


def beyond(labels: Any) -> Any:
    """Which integers, (B,), do not fit 32 bits."""
    limits = np.iinfo(np.int32)
    return (labels < limits.min) | (labels > limits.max)


def label_of(y: Any) -> Any:
    """The labels among the targets, or None if there are none."""
    return y.get("label") if isinstance(y, Mapping) else y


def targets_of(y: Any) -> Tensors:
    """Targets in the form that objectives take."""
    targets = dict(y) if isinstance(y, Mapping) else {"label": y}
    return {**targets, "label": as_ids(targets["label"])}


def as_ids(labels: Any) -> Any:
    """Labels of shape (B, 1), which some data sets have, as (B,)."""
    if len(labels.shape) == 2 and labels.shape[1] == 1:
        return labels[:, 0]
    return labels


def _dtype_of(x: Any) -> str:
    dtype = getattr(x.dtype, "name", str(x.dtype))
    return "string" if str(dtype).startswith(("str", "<U", "bytes")) else dtype
