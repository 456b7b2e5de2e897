"""Data of `fit` and `evaluate`: checked, weighted, in balanced batches.

All data come through `prepare_data`. Keras takes arrays, `tf.data`, generators
and `PyDataset`, and each has its own way to the same checks and weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import GeneratorType
from typing import Any, Literal, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
from keras.src.trainers.data_adapters import is_grain_dataset

from keras_dml.data import (
    ArraySet,
    ClassBalanced,
    Examples,
    ImageSet,
    MultiLabelBalanced,
    RelationSampler,
    Sampler,
    pipeline,
)
from keras_dml.data.examples import any_labels_of
from keras_dml.data.host import HostBatches, host_pipeline
from keras_dml.data.loading import python_errors
from keras_dml.data.planned import (
    RepeatingSampler,
    examples_of,
    map_batches,
    sampler_of,
)
from keras_dml.data.reading import check_one_set
from keras_dml.data.relations import Relations
from keras_dml.data.validation import are_label_sets, as_table, check_known
from keras_dml.distribution.batches import share_of_worker
from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import done_by_chief
from keras_dml.layers.memory import has_narrow_ids
from keras_dml.model.checks import (
    BatchChecks,
    as_ids,
    beyond,
    label_of,
)
from keras_dml.model.warnings import missing_relation
from keras_dml.utils.arguments import check_type
from keras_dml.utils.tensorflow import is_dataset, tf
from keras_dml.utils.types import Fraction, Labels, Rows

ClassWeight = Mapping[int, float]

BATCH_SIZE = 32
"""Default number of examples in a batch of arrays, the same as in Keras."""

_MAX_CHECKED_BATCHES = 64
"""Number of batches of relations that are checked before training."""

LOOK_AHEAD = 2
"""Number of batches that are checked ahead of the training step."""


class FitData(NamedTuple):
    """Data in the form that `keras.Model.fit` and `evaluate` take."""

    x: Any
    y: Any = None
    sample_weight: Any = None
    checks: Any = None
    """The `BatchChecks` of the batches; None if they are not checked."""
    batch_size: int | None = None
    steps: int | None = None
    names: Mapping[int, str] = {}
    """Names of classes by number, if labels are strings."""
    is_balanced: bool = False
    """Whether arrays were turned into balanced batches here."""
    is_share: bool = False
    """Whether the batches belong to this worker alone."""

    @property
    def sampler(self) -> Sampler | None:
        """The sampler that plans the batches, if there is one."""
        return sampler_of(self.x)


def prepare_data(
    model: keras.Model,
    use: Literal["fit", "evaluate"],
    data: Any,
    batch_size: int | None = None,
    steps: int | None = None,
    balanced: bool | None = None,
    shuffle: bool = True,
    class_weight: ClassWeight | None = None,
) -> FitData:
    """Checks and weights the user's data, and makes balanced batches of arrays.

    Data are batches, or arrays: x, (x, y) or (x, y, sample_weight);
    `batch_size` is that of arrays. Batches that are not balanced are drawn at
    random if `shuffle` is set.
    """
    x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
    _check_source(x, use)
    share = share_of_worker(x, strategy_of(model)) if use == "fit" else None
    checks = BatchChecks(use, model, is_share=share is not None)
    if y is None:
        if x is not None and _are_arrays(x, x):
            checks.check_kinds(x, None)  # This raises an error.
        x = check_batches(x if share is None else share, checks, class_weight)
        batches = FitData(
            x, None, weight, checks, steps=steps, is_share=share is not None
        )
        if use == "fit" and batches.sampler is not None:
            _check_planned(batches.sampler, steps)
            if isinstance(batches.sampler, RelationSampler):
                _check_relations(batches.sampler, checks)
        return batches
    if isinstance(y, list | tuple) and not are_label_sets(y):
        check_known(y, "y", f"MetricModel.{use}")
    x, y = keras.tree.map_structure(as_array, (x, as_array(y)))
    arrays = FitData(x, y, weight, checks, batch_size, steps)
    if label_of(y) is None:
        checks.check_kinds(x, y)  # This raises an error.
    if not _are_arrays(x, y):
        return arrays  # Keras raises the error.
    return _from_arrays(model, arrays, class_weight, balanced, shuffle)


def _from_arrays(
    model: keras.Model,
    data: FitData,
    class_weight: ClassWeight | None,
    balanced: bool | None,
    shuffle: bool,
) -> FitData:
    """Arrays with checked labels and weights, in balanced batches or as is."""
    checks = data.checks
    y, labels, names = _normalize_labels(model, data.y, checks.use)
    _check_lengths(checks.use, data.x, data.sample_weight)
    weight = weights_of(labels, class_weight, data.sample_weight)
    is_alone = not isinstance(y, Mapping) or len(y) == 1
    can_balance = is_alone and (labels.ndim == 1 or are_label_sets(labels))
    if balanced is None and can_balance:  # If any two examples share a label.
        balanced = (
            bool((labels.sum(axis=0) > 1).any())
            if labels.ndim == 2
            else len(np.unique(labels)) < len(labels)
        )
    if not balanced:
        checks.check_kinds(data.x, labels)
        checks.check_values(data.x, labels, is_batch=False)
        is_ordered = checks.use == "evaluate" or not shuffle
        batch_size = data.batch_size or BATCH_SIZE
        checks.expect_pairs(labels, batch_size, is_ordered)
        return data._replace(y=y, sample_weight=weight)
    if not can_balance:
        raise ValueError(
            "`balanced` of MetricModel.fit requires one class id per example, "
            "(N,), or several labels per example, (N, C) booleans. "
            f"Received: balanced=True and labels of shape {labels.shape}"
            f"{', among other targets' if isinstance(y, Mapping) else ''}. "
            "Use balanced=False."
        )
    if labels.dtype.kind not in "OSU":
        checks.check_kinds(data.x, labels)
    examples = ArraySet(data.x, labels, names=names)
    return _balance(model, data._replace(sample_weight=weight), examples)


def _normalize_labels(
    model: keras.Model, y: Any, use: str
) -> tuple[Any, npt.NDArray[Any], Mapping[int, str]]:
    """Targets, labels as class ids or a table, and names of the classes."""
    # A class with a weight of its own has the number it was trained with.
    is_numbered = use == "fit" or model.objective.label_limit
    names = model.label_names if is_numbered else {}
    labels = as_ids(np.asarray(label_of(y)))
    if not are_label_sets(labels):
        check_known(labels, "y", f"MetricModel.{use}")
        return y, labels, names
    labels, names = as_table(labels, names, f"MetricModel.{use}")
    y = {**y, "label": labels} if isinstance(y, Mapping) else labels
    return y, labels, names


def _balance(model: keras.Model, data: FitData, examples: ArraySet) -> FitData:
    """Class-balanced batches of arrays, weighted by their row."""
    checks = data.checks
    labels = any_labels_of(examples, "y", "MetricModel.fit")
    checks.is_planned = True
    checks.check_values(data.x, labels, is_batch=False)
    sampler = _sampler_for(
        model, checks.use, labels, data.batch_size, data.steps
    )
    is_host = keras.backend.backend() != "tensorflow"
    if is_host:
        dataset = host_pipeline(examples, sampler, "MetricModel.fit")
    else:
        dataset = pipeline(examples, sampler)
    if data.sample_weight is not None:
        weights = np.asarray(data.sample_weight)
        take = np.take if is_host else tf.gather
        dataset = map_batches(
            dataset,
            lambda batches: batches.map(
                lambda x, y: (x, y, take(weights, y["index"], axis=0))
            ),
        )
    return FitData(
        check_batches(dataset, checks),
        checks=checks,
        names=examples.names,
        is_balanced=True,
    )


def _check_source(x: Any, use: str) -> None:
    """Raises `ValueError` for examples without a plan of batches."""
    check_one_set(x, "x", f"MetricModel.{use}")
    if isinstance(x, Examples):
        way = (
            "pipeline(examples, ClassBalanced(examples.labels, batch_size=…)) "
            "of keras_dml.data"
        )
    elif isinstance(x, Relations):
        way = (
            "pipeline(pairs.examples, RelationSampler(pairs, …)) of "
            "keras_dml.data"
        )
    else:
        return
    raise ValueError(
        f"Data for MetricModel.{use} must be arrays or batches. Received: "
        f"{x!r}. Use {way}."
    )


def _check_planned(sampler: Sampler, steps_per_epoch: int | None) -> None:
    """Raises `ValueError` if `fit` is given the length of an epoch.

    One iteration of the pipeline would then span several epochs, and what
    callbacks change at their beginning would take effect late or never.
    """
    if steps_per_epoch is not None:
        raise ValueError(
            "`steps_per_epoch` of MetricModel.fit must be None for batches "
            "planned by a sampler, because the epochs would differ from those "
            "of the plan. "
            f"Received: steps_per_epoch={steps_per_epoch} and {sampler!r}. "
            f"Use {type(sampler).__name__}(…, steps_per_epoch="
            f"{steps_per_epoch})."
        )


def _check_relations(sampler: RelationSampler, checks: BatchChecks) -> None:
    """Raises `ValueError` if batches lack what the loss compares."""
    num_checked = min(_MAX_CHECKED_BATCHES, 1 + 2**20 // sampler.batch_size**2)
    missing = [
        missing_relation(sampler.batch_labels(rows), checks)
        for rows in sampler.plan(sampler.epoch)[:num_checked]
    ]
    if all(missing):
        raise ValueError(
            "Batches of RelationSampler must have what the loss needs, or it "
            f"learns nothing. Received: {sampler.relations!r}, others="
            f"{sampler.others!r}, tuples_per_batch={sampler.tuples_per_batch}; "
            f"the first {len(missing)} batches lack {missing[0]}. Use "
            'others="negative", which takes unknown pairs as negatives, with '
            "at least 2 tuples per batch; a TripletSet; or positive and "
            "negative pairs with a loss on single pairs, such as "
            "ContrastiveLoss()."
        )


def check_batches(
    data: Any, checks: BatchChecks, class_weight: ClassWeight | None = None
) -> Any:
    """Checks batches, and weights them by class, on their way to the step.

    Data that are neither a `tf.data.Dataset`, a generator, a `PyDataset` nor a
    data set of Grain are returned unchanged.
    """
    if is_dataset(data):
        return _check_dataset(data, checks, class_weight)
    if is_grain_dataset(data) and keras.backend.backend() != "tensorflow":
        count = len(data) if hasattr(data, "__len__") else None
        data = HostBatches(partial(iter, data), count)
    if isinstance(data, HostBatches):
        checks.is_planned = sampler_of(data) is not None
        return map_batches(
            data,
            lambda batches: batches.map(
                lambda *batch: check_batch(batch, checks, class_weight)
            ),
        )
    if isinstance(data, GeneratorType):
        return (check_batch(x, checks, class_weight) for x in data)
    if isinstance(data, keras.utils.PyDataset):
        return _CheckedPyDataset(data, checks, class_weight)
    return data


def check_batch(
    data: Any, checks: BatchChecks, class_weight: ClassWeight | None = None
) -> Any:
    """One batch of arrays, as `check_batches` returns it."""
    x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
    checks.check_kinds(*keras.tree.map_structure(np.asarray, (x, y)))
    labels = np.asarray(label_of(y))
    checks.check_values(x, labels)
    weight = weights_of(labels, class_weight, weight)
    return keras.utils.pack_x_y_sample_weight(x, y, weight)


def weights_of(
    labels: npt.NDArray[Any], class_weight: ClassWeight | None, weight: Any
) -> Any:
    """Weights of examples by their class, (B,); unchanged without any."""
    if class_weight is None:
        return weight
    check_one_weight(weight)
    if are_label_sets(labels):
        raise ValueError(
            "`class_weight` of MetricModel.fit requires one class per "
            "example. Received: several labels per example. Use sample_weight."
        )
    ids = as_ids(labels).tolist()
    return np.array([class_weight.get(x, 1.0) for x in ids], np.float32)


def check_one_weight(weight: Any) -> None:
    """Raises `ValueError` if there are weights of examples as well."""
    if weight is not None:
        raise ValueError(
            "`class_weight` and `sample_weight` of MetricModel.fit cannot be "
            "combined. Received: both. Use sample_weight, multiplied by the "
            "weight of each example's class."
        )


def _check_dataset(
    dataset: tf.data.Dataset,
    checks: BatchChecks,
    class_weight: ClassWeight | None,
) -> tf.data.Dataset:
    unpack = keras.utils.unpack_x_y_sample_weight
    x, y, weight = unpack(dataset.element_spec)
    checks.check_kinds(x, y)
    checks.is_planned = sampler_of(dataset) is not None
    if dataset.cardinality() == 0:
        raise ValueError(
            f"Data for MetricModel.{checks.use} must not be empty. Received: 0 "
            "examples. Check the code that selects the examples."
        )
    if class_weight is not None:
        check_one_weight(weight)

    def look(step: tf.Tensor, data: Any) -> Any:
        x, y, weight = unpack(data)
        labels = _check_in_graph(step, x, label_of(y), checks)
        y = {**y, "label": labels} if isinstance(y, Mapping) else labels
        if class_weight is not None:
            weight = _class_weights(as_ids(labels), class_weight)
        return keras.utils.pack_x_y_sample_weight(x, y, weight)

    return map_batches(
        dataset,
        lambda batches: (
            batches.enumerate()
            .map(tf.autograph.experimental.do_not_convert(look))
            .prefetch(LOOK_AHEAD)
        ),
    )


def _check_in_graph(
    step: tf.Tensor, x: Any, labels: tf.Tensor, checks: BatchChecks
) -> tf.Tensor:
    """Returns the labels, after a check that they can be trained on."""

    def look() -> tf.Tensor:
        def on_host(*leaves: npt.NDArray[Any]) -> bool:
            *inputs, labels = leaves
            x_batch = keras.tree.pack_sequence_as(x, inputs)
            checks.check_values(x_batch, labels)
            return True

        leaves = [*keras.tree.flatten(x), labels]
        return tf.numpy_function(on_host, leaves, tf.bool)

    # Checking every batch in Python would delay the next step.
    odd = step == 0
    if len(labels.shape) == 1:
        odd |= _is_odd(labels, checks)
    with tf.control_dependencies([tf.cond(odd, look, lambda: True)]):
        return tf.identity(labels)


def _is_odd(labels: tf.Tensor, checks: BatchChecks) -> tf.Tensor:
    """Whether labels are out of range, -1, all different, or all the same."""
    odd = tf.equal(tf.size(labels), 0)
    if not checks.is_planned:
        odd |= tf.reduce_any(tf.equal(labels, tf.cast(-1, labels.dtype)))
    if checks.label_limit is not None:
        limit = tf.cast(checks.label_limit, labels.dtype)
        odd |= tf.reduce_any((labels < 0) | (labels >= limit))
    if has_narrow_ids():
        odd |= tf.reduce_any(beyond(tf.cast(labels, tf.int64)))
    if checks.needs_positives:
        classes = tf.size(tf.unique(labels).y)
        odd |= classes == tf.size(labels)
        if checks.needs_negatives:
            odd |= classes == 1
    return odd


def _class_weights(labels: tf.Tensor, class_weight: ClassWeight) -> tf.Tensor:
    keys = tf.constant(list(class_weight), tf.int64)
    values = tf.constant(list(class_weight.values()), tf.float32)
    same = tf.cast(labels, tf.int64)[:, None] == keys  # (B, classes)
    weighted = tf.reduce_sum(tf.where(same, values, 0.0), axis=1)
    return tf.where(tf.reduce_any(same, axis=1), weighted, 1.0)


class _CheckedPyDataset(keras.utils.PyDataset):
    """A `PyDataset` that checks the batches of another one."""

    def __init__(
        self,
        dataset: keras.utils.PyDataset,
        checks: BatchChecks,
        class_weight: ClassWeight | None,
    ) -> None:
        super().__init__(
            workers=dataset.workers,
            use_multiprocessing=dataset.use_multiprocessing,
            max_queue_size=dataset.max_queue_size,
        )
        self.dataset = dataset
        self.checks = checks
        self.class_weight = class_weight

    @property
    def num_batches(self) -> Any:
        return self.dataset.num_batches

    def __getitem__(self, index: int) -> Any:
        batch = self.dataset[index]
        return check_batch(batch, self.checks, self.class_weight)

    def on_epoch_begin(self) -> None:
        self.dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.dataset.on_epoch_end()


def _sampler_for(
    model: keras.Model,
    use: str,
    labels: Labels,
    batch_size: int | None,
    steps: int | None,
) -> Sampler:
    """Plans balanced batches, the same every time if they are held out."""
    sampler: Sampler
    size, seed = batch_size or BATCH_SIZE, 0
    if use == "fit":  # As `keras.utils.set_random_seed` determines.
        seed = done_by_chief(
            lambda: int(np.random.randint(2**31)), strategy_of(model)
        )
    if labels.ndim == 2:
        drawable = int((labels.sum(axis=0) > 1).sum())
        classes = max(1, min(drawable, size // min(4, size)))
        sampler = MultiLabelBalanced(
            labels, classes, max(2, size // classes), seed, steps
        )
    else:
        sampler = ClassBalanced(
            labels,
            batch_size=size,
            images_per_class=_examples_per_class(labels, size),
            seed=seed,
            steps_per_epoch=steps,
        )
    if use != "fit":
        return RepeatingSampler(sampler)
    optimizer = getattr(model, "optimizer", None)
    updates = 0 if optimizer is None else int(optimizer.iterations.numpy())
    sampler.epoch = updates // sampler.steps
    return sampler


def _examples_per_class(labels: Rows, batch_size: int) -> int:
    """How many examples per class a balanced batch should hold, 2 to 4.

    This is as many as half of the classes have, because smaller classes repeat
    theirs, but no more than leave room for two classes in a batch.
    """
    counts = np.unique(labels, return_counts=True)[1]
    counts = counts[counts > 1]
    usual = int(np.median(counts)) if len(counts) else 2
    return max(2, min(4, usual, batch_size // 2))


def split_rows(data: Any, share: float) -> tuple[Any, Any]:
    """Splits arrays into their rows and a share of rows at the end."""
    x, y, weight = data
    if y is None or not _are_arrays(x, y):
        raise ValueError(
            "`validation_split` of MetricModel.fit works with arrays only. "
            "Received: "
            f"x of type {type(x).__name__}. Use validation_data, or "
            "keras_dml.data.split_classes and RetrievalEvaluation."
        )
    check_type("MetricModel.fit", "validation_split", share, Fraction)
    count = len(keras.tree.flatten(x)[0])
    first = int(count * (1 - share))
    if not 0 < first < count:
        raise ValueError(
            "`validation_split` of MetricModel.fit must leave examples in "
            f"both parts. Received: validation_split={share}, {count} "
            "examples."
        )

    def rows(part: slice) -> Any:
        return keras.tree.map_structure(
            lambda array: None if array is None else array[part], data
        )

    return rows(slice(first)), rows(slice(first, None))


def _check_lengths(use: str, x: Any, sample_weight: Any) -> None:
    count = len(keras.tree.flatten(x)[0])
    if not count:
        raise ValueError(
            f"`x` of MetricModel.{use} must not be empty. Received: 0 examples."
        )
    if sample_weight is not None and len(sample_weight) != count:
        raise ValueError(
            f"`sample_weight` of MetricModel.{use} must have one weight per "
            f"example. Received: {len(sample_weight)} weights, {count} "
            "examples."
        )


def _are_arrays(x: Any, y: Any) -> bool:
    return all(hasattr(leaf, "shape") for leaf in keras.tree.flatten((x, y)))


def as_array(value: Any) -> Any:
    """Turns lists of labels and columns of tables into arrays."""
    if isinstance(value, list) and np.ndim(value) == 1:
        return np.asarray(value)
    return value.to_numpy() if hasattr(value, "to_numpy") else value


@contextmanager
def named_errors(model: keras.Model, *data: FitData) -> Iterator[None]:
    """Raises the error of a check, of which TensorFlow reports only the text.

    Errors of Python code in a pipeline are raised without TensorFlow's words.
    On JAX, the model gets its values back, which only `fit` of Keras does.
    """
    try:
        with python_errors():
            yield
    except BaseException:
        if keras.backend.backend() == "jax":
            model.jax_state_sync()
        for x in data:
            if x.checks is not None and x.checks.error is not None:
                raise x.checks.error from None
        raise
    for examples in map(examples_of, (x.x for x in data)):
        if isinstance(examples, ImageSet) and examples.bad_files is not None:
            examples.bad_files.log_count()
