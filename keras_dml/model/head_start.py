"""The start of a head: linear layers that begin with a projection of features.

A head that starts at random throws away what a pretrained backbone knows of
classes that nobody trains on, and a few epochs do not bring it back.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import keras
import numpy as np

from keras_dml.data import Examples, eval_batches
from keras_dml.data.feature_set import MASK
from keras_dml.data.host import host_batches_in_order
from keras_dml.data.planned import examples_of
from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import done_by_chief, on_this_process
from keras_dml.model.checks import label_of
from keras_dml.model.embedding_model import backbone_features
from keras_dml.model.fit_data import as_array
from keras_dml.model.head import Linear
from keras_dml.model.projections import MAX_ROWS, Kind, fit_projection
from keras_dml.utils.models import is_untrained
from keras_dml.utils.tensorflow import is_dataset, tf
from keras_dml.utils.types import FloatArray, Labels, Rows, Tensor

logger = logging.getLogger(__name__)

HeadInit: TypeAlias = Literal["auto", "pca", "whitening", "random"]
"""How the linear layers of a head start; see `MetricModel`."""

Batch: TypeAlias = tuple[Any, Labels | None]
"""Inputs of a model, and their labels if these are known."""

_BATCH_SIZE = 64

KINDS: dict[str, tuple[Kind, ...]] = {
    "auto": ("pca", "whitening"),
    "pca": ("pca",),
    "random": (),
    "whitening": ("whitening",),
}
"""Projections that each `HeadInit` chooses among."""


def fingerprint(variables: Iterable[keras.Variable]) -> bytes:
    """A digest of values, which shows whether they are as built."""
    total = hashlib.sha256()
    for variable in variables:
        total.update(keras.ops.convert_to_numpy(variable).tobytes())
    return total.digest()


def class_vectors(objective: Any) -> list[keras.Variable]:
    """Proxies that start at class means: those of a loss that gains by it.

    With more classes than examples are read, most would have no mean.
    """
    loss = getattr(objective, "loss", None)
    vectors = getattr(loss, "proxies", None)
    if vectors is None or not getattr(loss, "gains_from_means", False):
        return []
    is_few = vectors.shape[0] <= MAX_ROWS
    return [vectors] if is_few and vectors.trainable else []


def needs_start(model: Any) -> bool:
    """Whether the head of a `MetricModel` is to start from its features."""
    if model.head_init == "random" or not model.head.linear_layers():
        return False
    optimizer = getattr(model, "optimizer", None)
    if (
        optimizer is not None
        and int(keras.ops.convert_to_numpy(optimizer.iterations)) > 0
    ):
        return False
    if model.head_init == "auto" and is_untrained(model.backbone):
        return False
    return bool(fingerprint(model.head.weights) == model.built_head)


def training_batches(model: Any, x: Any, y: Any) -> Iterable[Batch] | None:
    """At most 10,000 of the examples that `fit` is given.

    Of arrays and of a pipeline they are a random sample, and images of a
    pipeline are in the test view; of other batches they are the first. None if
    the data can be read only once.
    """
    if y is not None:
        x, y = keras.tree.map_structure(as_array, (x, as_array(y)))
        x = keras.tree.map_structure(np.asarray, x)
        labels = np.asarray(label_of(y))
        rows = _chosen(len(labels))
        parts = np.array_split(rows, -(-len(rows) // _BATCH_SIZE))
        return ((_rows(x, part), labels[part]) for part in parts)
    examples = x if isinstance(x, Examples) else examples_of(x)
    if examples is not None:
        return example_batches(model, examples)
    if isinstance(x, keras.utils.PyDataset) and x.num_batches:
        return _unpack(x[number] for number in range(x.num_batches))
    return _unpack(x.as_numpy_iterator()) if is_dataset(x) else None


def example_batches(model: Any, examples: Examples) -> Iterable[Batch]:
    """Examples in their test view: 10,000 at random, if there are more."""
    rows = _chosen(len(examples))
    examples = examples.select(rows)
    view, batches = examples.view_for(model), None
    if keras.backend.backend() != "tensorflow":
        batches = host_batches_in_order(examples, view, _BATCH_SIZE)
    if batches is None:
        batches = eval_batches(examples, view, _BATCH_SIZE).as_numpy_iterator()
    starts = range(0, len(rows), _BATCH_SIZE)
    for start, inputs in zip(starts, batches, strict=True):
        part = slice(start, start + _BATCH_SIZE)
        yield inputs, None if examples.labels is None else examples.labels[part]


def _chosen(count: int) -> Rows:
    if count <= MAX_ROWS:
        return np.arange(count)
    chosen = np.random.default_rng(0).choice(count, MAX_ROWS, replace=False)
    return np.sort(chosen)


def _rows(x: Any, rows: Rows) -> Any:
    return keras.tree.map_structure(lambda a: a[rows], x)


def _unpack(batches: Iterable[Any]) -> Iterator[Batch]:
    count = 0
    for batch in batches:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
        x = x["image"] if isinstance(x, dict) and "image2" in x else x
        labels = np.asarray(label_of(y))
        yield x, labels
        count += len(labels)
        if count >= MAX_ROWS:
            return


class LayerInputs(NamedTuple):
    """Inputs of each linear layer, (N, C), and labels, (N,)."""

    features: list[FloatArray]
    labels: Labels | None


def receive(
    model: Any,
    batches: Iterable[Batch],
    inputs_of: Callable[[Tensor, Tensor | None], list[Tensor]] | None = None,
) -> LayerInputs:
    """Features of batches, by default exactly as linear layers receive them.

    Args:
        model: A `MetricModel`.
        batches: Inputs and labels.
        inputs_of: A function from the backbone's features and their mask to
            the tensors to return, by default `Head.linear_inputs`.
    """
    inputs_of = inputs_of or model.head.linear_inputs

    def compute(inputs: Any) -> list[Tensor]:
        features = backbone_features(model.backbone, inputs)
        mask = getattr(features, "_keras_mask", None)
        if isinstance(inputs, dict):
            mask = inputs.get(MASK, mask)
        return inputs_of(features, mask)

    if keras.backend.backend() == "jax":
        function = on_this_process(compute, model.variables)
    else:
        function = tf.function(compute, reduce_retracing=True)
    rows: list[list[FloatArray]] = []
    labels = []
    for inputs, its_labels in batches:
        rows.append([keras.ops.convert_to_numpy(x) for x in function(inputs)])
        labels.append(its_labels)
    features = [np.concatenate(parts) for parts in zip(*rows, strict=True)]
    label_arrays = [
        x.ravel()  # Keras takes labels of shape (B, 1), too.
        for x in labels
        if x is not None and x.shape in ((x.size,), (x.size, 1))
    ]
    if len(label_arrays) < len(labels):
        return LayerInputs(features, None)
    return LayerInputs(features, np.concatenate(label_arrays))


def start_head(
    model: Any,
    received: Callable[[], LayerInputs],
    kinds: Sequence[Kind],
    owner: str | None = None,
) -> None:
    """Starts the linear layers of a model's head from projected features.

    Args:
        model: A `MetricModel`.
        received: A function that returns the inputs of its linear layers for
            the training examples; only the chief calls it.
        kinds: Projections to choose among.
        owner: A method that requires classes.

    Raises:
        ValueError: If an owner is given, and examples have several labels each.
    """
    linears = model.head.linear_layers()
    if not (linears and kinds):
        return

    def values() -> tuple[list[tuple[Any, Any]], Any]:
        inputs = received()
        features, labels = inputs
        if owner is not None and labels is None:
            raise ValueError(
                f"`y` of {owner} must be one class per example, (N,). "
                "Received: several labels per example, or none. Use "
                'baseline(…, head_init="pca").'
            )
        starts = [
            _start(linear, x, labels, kinds)
            for linear, x in zip(linears, features, strict=True)
        ]
        return starts, _class_means(model, inputs, starts)

    starts, means = done_by_chief(values, strategy_of(model))
    for linear, (kernel, bias) in zip(linears, starts, strict=True):
        _assign(linear.kernels, np.asarray(kernel))
        _assign(linear.biases, np.asarray(bias))
    if means is not None:
        model.objective.loss.start_from((), np.asarray(means))
    encoder = model.momentum_encoder
    if encoder is not None:
        encoder.head.set_weights(model.head.get_weights())


def _class_means(
    model: Any, received: LayerInputs, starts: list[tuple[Any, Any]]
) -> Any:
    """Directions of classes in the embedding, if class vectors are as built.

    None unless a single layer computes the embedding.
    """
    vectors, labels = class_vectors(model.objective), received.labels
    if not vectors or labels is None or len(starts) != 1:
        return None
    kernel, bias = (np.asarray(x) for x in starts[0])
    is_built = fingerprint(vectors) == model.built_vectors
    if kernel.shape[1] != vectors[0].shape[1] or not is_built:
        return None
    if labels.dtype.kind not in "iu":
        numbers = {name: number for number, name in model.label_names.items()}
        labels = np.array([numbers.get(x, -1) for x in labels.tolist()])
    features = received.features[0].reshape(len(labels), -1)
    is_finite = np.isfinite(features).all(axis=1)
    unit, labels = features[is_finite] @ kernel + bias, labels[is_finite]
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    means = np.zeros(vectors[0].shape)
    if not len(labels) or not 0 <= labels.min() <= labels.max() < len(means):
        return None
    np.add.at(means, labels, unit)
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    return (means / np.maximum(lengths, 1e-12)).tolist()


def _start(
    linear: Linear,
    features: FloatArray,
    labels: Labels | None,
    kinds: Sequence[Kind],
) -> tuple[Any, Any]:
    """Kernel and bias of linear layers side by side, as lists."""
    built = np.concatenate(
        [keras.ops.convert_to_numpy(x) for x in linear.kernels], axis=-1
    ).astype(np.float64)
    dim = built.shape[1]
    if linear.has_unit_columns:
        kinds = ("pca",)
    projection = fit_projection(
        features.reshape(len(features), -1), labels, dim, kinds,
        bool(linear.biases),
    )  # fmt: skip
    if projection.rank < dim:
        logger.warning(
            "The head starts from %d directions in which the features of the "
            "training examples vary; the other %d of %d numbers start at "
            "random.",
            projection.rank, dim - projection.rank, dim,
        )  # fmt: skip
    logger.info("The head starts from %s to %d numbers.", projection.name, dim)
    kernel = _fill_up(projection.kernel, projection.rank, built)
    if linear.is_rotated:
        normal = np.random.default_rng(0).normal(size=(dim, dim))
        kernel = kernel @ np.linalg.qr(normal)[0]
    # Columns of another length would learn at another speed.
    length = dim**0.5 if linear.has_unit_columns else np.linalg.norm(built)
    kernel *= length / np.linalg.norm(kernel)
    return kernel.tolist(), (-projection.center @ kernel).tolist()


def _fill_up(kernel: FloatArray, rank: int, built: FloatArray) -> FloatArray:
    """Replaces the columns of a kernel behind its rank by those as built."""
    lengths = np.linalg.norm(kernel[:, :rank], axis=0)
    shortest = lengths.min() if rank else 1.0
    rest = built[:, rank:]
    rest = rest / np.maximum(np.linalg.norm(rest, axis=0), 1e-12) * shortest
    return np.concatenate([kernel[:, :rank], rest], axis=1)


def _assign(variables: list[keras.Variable], values: FloatArray) -> None:
    """Assigns consecutive columns, the last axis, to variables."""
    start = 0
    for variable in variables:
        stop = start + variable.shape[-1]
        variable.assign(values[..., start:stop])
        start = stop
