"""Checks of batches before a step sees them, for data that cannot train."""

import logging
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data.feature_set import are_features
from keras_dml.data.samplers.base import UNKNOWN
from keras_dml.layers.memory import has_narrow_ids
from keras_dml.losses.labels import ONE_HOT, check_label_kind, is_one_hot
from keras_dml.model.pixels import WRONG_PIXELS, expects_bytes, wrong_range
from keras_dml.utils.types import Tensors

logger = logging.getLogger(__name__)

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
        self._said: set[str] = set()

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
                self._check_sets(labels)
            elif self.is_share:
                pass  # Rows of a relation matrix.
            elif is_one_hot(labels):
                raise ValueError(
                    f"`y` of MetricModel.{self.use} must be class ids, or a "
                    "relation matrix, which is symmetric. Received: one-hot "
                    f"labels of shape {labels.shape}. {ONE_HOT}"
                )
            else:
                self._check_relations(labels)
            return
        self._check_range(labels)
        self._check_width(labels)
        self._check_unknown(labels)
        if is_batch:
            self._check_pairs(labels)
        if self.expects_bytes and not are_features(x):
            for array in inputs:
                self._check_pixels(array)

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

    def _check_unknown(self, labels: npt.NDArray[Any]) -> None:
        count = np.count_nonzero(labels == -1)
        if count and not self.is_planned:
            self._say(UNKNOWN, f"`y` of MetricModel.{self.use}", count)

    def _check_pairs(self, labels: npt.NDArray[Any]) -> None:
        if not self.needs_positives or len(labels) < 2:
            return
        classes = len(np.unique(labels))
        if classes == len(labels):
            self._say(
                "No two of the %d examples in a batch have the same class, "
                "so the batch has no positive pair and teaches almost "
                "nothing. Use batches of keras_dml.data.ClassBalanced, or "
                "call model.fit(x, y) with arrays, which builds such batches.",
                len(labels),
            )
        elif classes == 1 and self.needs_negatives:
            self._say(
                "All %d examples in a batch have the same class, so the "
                "batch has no negative pair and teaches nothing, or only to "
                "collapse. Shuffle the data, use larger batches, or batches "
                "of keras_dml.data.ClassBalanced with several classes.",
                len(labels),
            )

    def _check_sets(self, labels: npt.NDArray[np.bool_]) -> None:
        if not self.needs_positives or len(labels) < 2:
            return
        if not np.triu(labels @ labels.T, 1).any():
            self._say(
                "No two of the %d examples in a batch share a label, so the "
                "batch has no positive pair and teaches almost nothing. Use "
                "batches of keras_dml.data.MultiLabelBalanced.",
                len(labels),
            )

    def _check_relations(self, labels: npt.NDArray[Any]) -> None:
        positive = labels == 1
        np.fill_diagonal(positive, False)  # An example and itself.
        both = positive.any(axis=1) & (labels == 0).any(axis=1)
        if self.needs_triplets and not both.any():
            self._say(
                "None of the %d examples in a batch has both a positive and a "
                "negative, which the loss compares, so the batch teaches "
                "nothing. Use "
                "a loss on single pairs, such as ContrastiveLoss(), or "
                'RelationSampler(…, others="negative").',
                len(labels),
            )

    def _check_pixels(self, images: npt.NDArray[Any]) -> None:
        found = wrong_range(images)
        if found is not None:
            self._say(WRONG_PIXELS, f"MetricModel.{self.use}", *found)

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
        if is_ordered:
            for start in range(0, len(labels), batch_size):
                self._check_pairs(labels[start : start + batch_size])
            return
        if len(np.unique(labels)) in (1, len(labels)):
            self._check_pairs(labels[:batch_size])
            return
        counts = np.unique(labels, return_counts=True)[1].astype(float)
        total = len(labels)
        share = (counts * (counts - 1)).sum() / (total * (total - 1))
        pairs = min(batch_size, total)
        expected = share * pairs * (pairs - 1) / 2
        if expected < 1:
            self._say(
                "Random batches of %d examples have %.2g positive pairs on "
                "average, so most of them teach almost nothing. Remove "
                "balanced=False and shuffle=False, or use larger batches.",
                batch_size,
                expected,
            )

    def _say(self, message: str, *values: Any) -> None:
        """Warns, once per kind of message."""
        if message not in self._said:
            self._said.add(message)
            logger.warning(message, *values)


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
