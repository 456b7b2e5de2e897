"""Checks of a model's arguments, and of batches before a step."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data.feature_set import are_features
from keras_dml.data.samplers.base import UNKNOWN
from keras_dml.data.view import View
from keras_dml.layers.memory import has_narrow_ids
from keras_dml.losses.labels import (
    are_by_class,
    check_label_kind,
    conversion_of,
)
from keras_dml.model.warnings import (
    expects_bytes,
    warn,
    warn_of_classes,
    warn_of_pixels,
    warn_of_random_batches,
    warn_of_tables,
)
from keras_dml.utils.arguments import check_not_empty
from keras_dml.utils.types import Tensors

WAY_OF_IDS = (
    "Use names, y = np.unique(y, return_inverse=True), once for all data"
)

_MAX_CHECKED = 4096
"""Number of examples whose values are checked. Only whole arrays have more,
and these may be memory-mapped files."""

_SAMPLE_SIZE = 16
"""Number of examples that are kept as a sample."""


class BatchChecks:
    """Checks batches on the host and rejects data that cannot train.

    A compiled step cannot look at values, and XLA drops assertions. So the
    first batch of an epoch is checked on its way to the step, and later
    batches if their labels are out of range or have no positives. If
    `is_share`, batches are shares of larger ones, whose pairs cannot be seen
    in them.
    """

    def __init__(
        self, use: str, model: keras.Model, is_share: bool = False
    ) -> None:
        self.use = use
        self.input_shape = model.input_shape
        objective = model.objective
        self.label_limit = objective.label_limit
        self.needs_positives = objective.needs_positives and not is_share
        self.needs_negatives = objective.needs_negatives and not is_share
        self.needs_triplets = objective.needs_triplets and not is_share
        self.is_share = is_share
        self.expects_bytes = expects_bytes(model.backbone)
        self.is_planned = False  # By a sampler, which checks its labels.
        self.sample: Any = None  # A few of the inputs checked last.
        self.label_rank: int | None = None  # Once it is known.
        self.error: ValueError | None = None
        self._messages: set[str] = set()

    def check_kinds(self, x: Any, y: Any) -> None:
        """Checks the types and shapes of arrays, or of their specs."""
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
        is_known = getattr(labels.shape, "rank", 0) is not None
        if is_known and not tuple(labels.shape):
            rank = len(next(iter(keras.tree.flatten(x))).shape)
            raise ValueError(
                f"Data for MetricModel.{self.use} must be batched. Received: "
                f"single examples of rank {rank} with scalar labels. Use "
                "dataset.batch(64), or batches with several examples per "
                "class."
            )
        if not are_features(x):
            # Second views may be smaller; a momentum network takes them.
            is_pair = isinstance(x, Mapping) and "image2" in x
            views = x["image"] if is_pair else x
            check_shape(self.input_shape, views, f"MetricModel.{self.use}")
        if not is_known:
            return
        dtype = str(getattr(labels.dtype, "name", labels.dtype))
        shape = tuple(labels.shape)
        self.label_rank = len(shape)
        if dtype.startswith(("str", "<U", "bytes", "object")):
            raise ValueError(
                f"`y` of MetricModel.{self.use} must be class ids. Received: "
                f"strings. {WAY_OF_IDS}; keras_dml.data.ArraySet does this "
                "itself and keeps the names."
            )
        if len(shape) == 2 and shape[1] == 1:
            shape = shape[:1]
        check_label_kind(f"MetricModel.{self.use}", "y", dtype, shape, labels)
        # Booleans, (B, C), are several labels an example.
        is_table = len(shape) == 2 and not self.is_share
        if is_table and shape[0] != shape[1] and dtype != "bool":
            raise ValueError(
                f"`y` of MetricModel.{self.use} must be class ids, (B,), or "
                "the relation matrix of the batch, (B, B). Received: labels "
                f"of shape {shape}. {conversion_of(labels)}"
            )

    def check_values(
        self, x: Any, labels: npt.NDArray[Any], is_batch: bool = True
    ) -> None:
        """Checks what can only be seen in the values.

        Pairs count in a batch, but not in the whole data.
        """
        try:
            self._check_values(x, as_ids(np.asarray(labels)), is_batch)
        except ValueError as error:
            self.error = error  # TensorFlow only passes on its text.
            raise

    def _check_values(
        self, x: Any, labels: npt.NDArray[Any], is_batch: bool
    ) -> None:
        check_not_empty(f"MetricModel.{self.use}", "x", labels)
        inputs = keras.tree.flatten(x)
        if len(inputs[0]) != len(labels):
            raise ValueError(
                f"Batches for MetricModel.{self.use} must have one label per "
                f"example. Received: {len(inputs[0])} examples, {len(labels)} "
                "labels."
            )
        step = max(1, len(labels) // _SAMPLE_SIZE)
        self.sample = keras.tree.map_structure(
            lambda array: np.array(array[::step][:_SAMPLE_SIZE]), x
        )
        inputs = [np.asarray(array[:_MAX_CHECKED]) for array in inputs]
        for array in inputs:
            self._check_finite(array)
        if labels.ndim == 2:
            are_sets = labels.dtype == bool
            # A share has only some rows of a relation matrix.
            if not are_sets and not self.is_share and are_by_class(labels):
                raise ValueError(
                    f"`y` of MetricModel.{self.use} must be class ids, or a "
                    "relation matrix, which is symmetric. Received: a column "
                    "for each class, such as one-hot labels, of shape "
                    f"{labels.shape}. {conversion_of(labels)}"
                )
            if are_sets or not self.is_share:
                warn_of_tables(labels, self, self._messages)
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
        if np.isfinite(total):  # A check of each number is slower.
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

        Ordered batches keep the order of the examples.
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


def check_backend() -> None:
    """Raises `RuntimeError` on a backend that cannot train models."""
    if keras.backend.backend() not in ("tensorflow", "jax"):
        raise RuntimeError(
            "MetricModel trains on the backends tensorflow and jax only. "
            f"Received: the backend {keras.backend.backend()!r}. Set the "
            "environment variable KERAS_BACKEND=tensorflow, or =jax, before "
            "importing Keras. On other backends, models can embed, be "
            "evaluated and be searched, and losses can train your own "
            "`keras.Model` with `compile(loss=…)`."
        )


def check_compiled(arguments: dict[str, Any]) -> None:
    """Rejects losses in `compile`, and metrics by name, which classify."""
    for name in ("loss", "loss_weights"):
        if arguments.get(name) is not None:
            raise ValueError(
                f"`{name}` is not an argument of MetricModel.compile: the "
                "objective holds the losses, and `loss_weights` is an "
                "argument of the constructor. Received: "
                f"{name}={arguments[name]!r}. Use `methods.baseline(backbone, "
                "loss=…)` and `model.compile(optimizer)`."
            )
    for name in ("metrics", "weighted_metrics"):
        for metric in keras.tree.flatten(arguments.get(name) or []):
            if isinstance(metric, str):
                raise ValueError(
                    f"`{name}` of MetricModel.compile must not contain names: "
                    "metrics given by name compare class predictions, and "
                    f"this model predicts embeddings. Received: {metric!r}. "
                    "Use a function of (labels, embeddings), a "
                    "keras.metrics.Metric, or, for retrieval, "
                    "`callbacks.RetrievalEvaluation`."
                )


def check_momentum(ema_momentum: float | None, momentum_scale: float) -> None:
    """Raises `ValueError` for a scale without a momentum network."""
    if ema_momentum is None and momentum_scale != 1:
        raise ValueError(
            "`momentum_scale` of MetricModel requires a momentum network. "
            f"Received: momentum_scale={momentum_scale!r} and "
            "ema_momentum=None. Set `ema_momentum`, for diva by the task "
            '"dance", or leave `momentum_scale` out.'
        )


def check_terms(terms: tuple[str, ...]) -> None:
    """Raises `ValueError` if terms cannot be told apart in the logs."""
    repeated = {name for name in terms if terms.count(name) > 1}
    if repeated or "loss" in terms:
        raise ValueError(
            "Terms of an objective must have different names, and none may be "
            "called "
            '"loss", which is the name of their sum. Received: '
            f"{list(terms)}. Rename the losses."
        )


def check_view(view: View | None, backbone: keras.Model) -> None:
    """Raises `ValueError` if a view does not fit a backbone's input."""
    if view is None:
        return
    shape = backbone.input_shape
    expected = shape[1:] if isinstance(shape, tuple) else shape
    if (*view.size, view.channels) != expected:
        raise ValueError(
            "`view` of MetricModel must have the size and channels of its "
            "backbone's input. "
            f"Received: view={view}, input {expected}. Use View((height, "
            "width), channels, …), or omit it if the input is not an image."
        )


def check_shape(expected: Any, x: Any, owner: str) -> None:
    """Raises `ValueError` for a batch, or its spec, of another shape.

    `expected` is the shape of a model's only input; there is no check of
    several. Keras adds a last axis of 1, and removes it.
    """
    shape: Any = getattr(x, "shape", None)
    is_known = shape is not None and getattr(shape, "rank", 0) is not None
    if not is_known or not isinstance(expected, tuple):
        return
    if shape[0] == 0:
        check_not_empty(owner, "x", ())
    sizes, needed = tuple(shape)[1:], expected[1:]
    forms = [sizes, (*sizes, 1)] + [sizes[:-1]] * (sizes[-1:] == (1,))
    for form in forms:
        pairs = zip(form, needed, strict=False)
        is_equal = all(None in pair or len({*pair}) == 1 for pair in pairs)
        if is_equal and len(form) == len(needed):
            return
    way_out = f"Use a backbone with input_shape={sizes}, or convert the inputs."
    if len(sizes) == len(needed) == 3:
        if sizes[0] == needed[2] != sizes[2]:
            way_out = (
                "Channels come last: use numpy.moveaxis(x, 1, -1), or dataset."
                "map(lambda x, y: (tf.transpose(x, (0, 2, 3, 1)), y))."
            )
        elif sizes[2] == needed[2]:
            way_out = (
                f"Use keras_dml.data.pipeline(…, size={needed[:2]}), or "
                f"keras.ops.image.resize(x, {needed[:2]})."
            )
    raise ValueError(
        f"Inputs of {owner} must have the shape that the model takes, "
        f"{expected}. Received: shape {tuple(shape)}. {way_out}"
    )


def check_channels_last(model: Any, x: Any, name: str, owner: str) -> None:
    """Raises `ValueError` for images, (3, H, W), of a model of RGB images.

    They would be taken for three gray images. `x`, the argument `name` of
    `owner`, may be of any kind, or have labels, (x, y).
    """
    if isinstance(x, tuple) and x:
        x, name = x[0], f"{name}[0]"
    expected: Any = getattr(model, "input_shape", None)
    shape: tuple[int, ...] = getattr(x, "shape", ())
    is_rgb = isinstance(expected, tuple) and expected[3:] == (3,)
    is_first = len(shape) in (3, 4) and shape[-3] == 3 and shape[-1] != 3
    if is_rgb and is_first and shape[-1] != 1:
        raise ValueError(
            f"`{name}` of {owner} must be images with channels last, (H, W, "
            f"C). Received: shape {tuple(shape)}. Use numpy.moveaxis({name}, "
            "-3, -1); for three gray images, add an axis: (3, H, W, 1)."
        )
