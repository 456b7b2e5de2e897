"""Embedding sets of examples, arrays and `tf.data` datasets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import keras
import numpy as np

from keras_dml.data import eval_batches
from keras_dml.data.examples import Examples
from keras_dml.data.host import host_batches_in_order
from keras_dml.data.imageset import ImageSet
from keras_dml.data.loading import python_errors
from keras_dml.data.reading import DatasetReader, as_examples, of_batches
from keras_dml.data.validation import is_text
from keras_dml.distribution.workers import rows_of_all, this_worker
from keras_dml.embedding.engines import (
    KERAS,
    Engine,
    Predict,
    predict_function,
)
from keras_dml.model.checks import check_channels_last, check_shape
from keras_dml.model.generated import input_specs
from keras_dml.model.warnings import warn_model_of_pixels
from keras_dml.utils.progress import with_progress
from keras_dml.utils.tensorflow import is_dataset, tf
from keras_dml.utils.types import FloatArray, Rows


def embed(
    model: keras.Model,
    examples: Any,
    batch_size: int = 256,
    progress: bool | None = None,
    engine: Engine = KERAS,
) -> FloatArray:
    """Embeds examples; images are seen in the test view.

    This does not affect a training in progress: metrics are not reset, and
    callbacks are not called.

    Args:
        model: A model that returns embeddings, (B, D). Models of images take
            (B, H, W, C), with pixels from 0 to 255.
        examples: N examples: an `ImageSet`, `ArraySet` or other `Examples`;
            uint8 pixels, or other arrays that `ArraySet` takes, alone or as
            `(x, y)`; or a finite `tf.data.Dataset` or `PyDataset` of x or
            (x, y), which is passed to the model unchanged.
        batch_size: Number of examples to embed at a time, unless they are
            already in batches.
        progress: Whether to show progress; None shows it in a terminal.
        engine: "openvino" embeds faster on CPUs, the same to 1e-5. If it fails
            or differs for the first examples, Keras embeds, and the log says
            why. Or the path of an export of the model that ends in .onnx,
            .tflite or .xml, or any function from a batch of inputs, as NumPy
            arrays, to its embeddings, (B, D); these are not compared.

    Returns:
        (N, D) float32, in the order of the examples; NaN for files that were
        left out, see `on_bad_file` of `data.image_folder`.

    Raises:
        ImportError: If the extra of the engine is not installed.
        FileNotFoundError: If the export does not exist.
        ValueError: If there are no examples, or the model does not return one
            embedding per example.
    """
    predict = predict_function(model, engine)
    args = "examples", "embed", batch_size, progress
    return embed_argument(model, examples, *args, predict=predict).with_gaps


@dataclass(frozen=True)
class Embedded:
    """Embeddings, (N, D), with the labels and class names of the examples."""

    embeddings: FloatArray
    labels: Rows | None
    names: Mapping[int, str]
    left_out: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows of bad files, which have the embeddings of others."""

    @property
    def with_gaps(self) -> FloatArray:
        """The embeddings, NaN for bad files."""
        self.embeddings[self.left_out] = np.nan
        return self.embeddings


def source_of(value: Any, name: str, owner: str) -> Any:
    """The value of an argument as a set of examples or a `tf.data` dataset."""
    if is_dataset(value):
        return value
    if isinstance(value, keras.utils.PyDataset):
        return of_batches(value, name, owner)
    return as_examples(value, name, owner)


def embed_argument(
    model: keras.Model,
    source: Any,
    name: str,
    owner: str,
    batch_size: int,
    progress: bool | None,
    padded: bool = False,
    predict: Predict | None = None,
) -> Embedded:
    """Embeds the value of the argument `name` of `owner`; see `embed`.

    `predict` embeds a batch, by default by Keras. With `padded`, all batches of
    examples have the same size, because compiling the model for another size
    takes as long as many batches.
    """
    check_channels_last(model, source, name, owner)
    source = source_of(source, name, owner)
    predict = predict or predict_function(model)
    if is_dataset(source):
        reader = DatasetReader(source, name, owner, batch_size, model=model)
        embeddings = _embed_batches(
            model, predict, reader, reader.count, owner, progress
        )
        about = reader.about()
        return Embedded(embeddings, about.labels, about.names)
    examples: Examples = source
    if not len(examples):
        raise ValueError(
            f"`{name}` of {owner} must not be empty. Received: 0 examples."
        )
    _check_text(model, examples, name, owner)
    view, batches = examples.view_for(model), None
    if keras.backend.backend() != "tensorflow":
        batches = host_batches_in_order(examples, view, batch_size)
    if batches is None:
        batches = eval_batches(examples, view, batch_size)
    count, size = -(-len(examples) // batch_size), batch_size if padded else 0
    with python_errors():
        embeddings = _embed_batches(
            model, predict, batches, count, owner, progress, size
        )
    left_out = np.empty(0, np.int64)
    if isinstance(examples, ImageSet) and examples.bad_files is not None:
        examples.bad_files.log_count()
        left_out = examples.bad_files.rows_of(examples)
    return Embedded(embeddings, examples.labels, examples.names, left_out)


def embed_shares(
    model: keras.Model,
    examples: Examples,
    batch_size: int,
    strategy: tf.distribute.Strategy,
) -> FloatArray:
    """Embeds all examples, (N, D); all workers call it and read a share.

    The result is bit-identical on all workers.
    """
    worker = this_worker(strategy)
    if worker.count == 1:
        return embed(model, examples, batch_size)
    if len(examples) < worker.count:
        raise ValueError(
            "There must be at least as many examples as workers. Received: "
            f"{worker.count} workers and {examples!r}. Use fewer workers."
        )
    shares = np.array_split(np.arange(len(examples)), worker.count)
    share = embed(model, examples.select(shares[worker.number]), batch_size)
    return rows_of_all(share, strategy)


def _embed_batches(
    model: keras.Model,
    predict: Predict,
    batches: Iterable[Any],
    count: int | None,
    owner: str,
    progress: bool | None,
    min_rows: int = 0,
) -> FloatArray:
    """Embeddings of all batches, each padded to at least `min_rows`."""
    parts: list[FloatArray] = []
    for batch in with_progress(batches, count, "Embedding", progress):
        batch = _of_rank(model, batch)
        if not parts:
            check_shape(getattr(model, "input_shape", None), batch, owner)
            warn_model_of_pixels(model, batch, owner)
        if keras.backend.backend() != "tensorflow":
            batch = keras.tree.map_structure(np.asarray, batch)
        size = len(keras.tree.flatten(batch)[0])
        rows = max(size, min_rows)
        output = predict(
            keras.tree.map_structure(partial(_fill, count=rows - size), batch)
        )
        shape = getattr(output, "shape", None)
        if shape is None or len(shape) != 2 or shape[0] != rows:
            received = type(output).__name__ if shape is None else shape
            raise ValueError(
                f"`model` of {owner} must return one embedding per example, "
                f"(B, D). Received: {received} for a batch of {rows}. Use a "
                "model whose only output is the embedding, such as "
                "`keras.Model(model.input, embedding)`."
            )
        parts.append(np.asarray(output, np.float32)[:size])
    return np.concatenate(parts)


def _of_rank(model: keras.Model, batch: Any) -> Any:
    """A batch whose arrays have as many axes as the model's inputs.

    Keras takes (B,) for (B, 1) and the other way round, but a model that has
    seen both is traced for any number of axes, which many layers cannot be.
    """
    try:
        specs = input_specs(model)
    except ValueError:
        return batch
    shapes, arrays = (keras.tree.flatten(x) for x in (specs, batch))
    alike = isinstance(specs, dict) == isinstance(batch, dict)
    if not alike or len(shapes) != len(arrays):
        return batch

    def reshape(spec: Any, x: Any) -> Any:
        extra_axes = len(spec.shape) - len(x.shape)
        if extra_axes == 1 and spec.shape[-1] == 1:
            return x[..., None]
        return x[..., 0] if extra_axes == -1 and x.shape[-1] == 1 else x

    arrays = [reshape(*pair) for pair in zip(shapes, arrays, strict=True)]
    return keras.tree.pack_sequence_as(batch, arrays)


def _fill(x: Any, count: int) -> Any:
    """An array with `count` more copies of its first example."""
    if not count:
        return x
    join = np.concatenate if isinstance(x, np.ndarray) else tf.concat
    return join([x, *[x[:1]] * count], 0)


def _check_text(
    model: keras.Model, examples: Examples, name: str, owner: str
) -> None:
    """Rejects strings for models of images: they are most likely paths."""
    shape = getattr(model, "input_shape", None)
    takes_images = isinstance(shape, tuple) and len(shape) == 4
    if not takes_images or isinstance(examples, ImageSet):
        return
    dtype = getattr(examples.inputs([0]), "dtype", None)
    if dtype is not None and is_text(dtype):
        raise ValueError(
            f"`{name}` of {owner} must be images, because the model takes "
            f"shape {shape}. Received: strings. Use ImageSet(paths) for image "
            "files."
        )
