"""Embedding of examples: sets, arrays and datasets of `tf.data`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dml.data import eval_batches
from keras_dml.data.datasets import DatasetReader
from keras_dml.data.given import as_examples
from keras_dml.distribution.strategies import strategy_of
from keras_dml.utils.progress import tracked
from keras_dml.utils.types import FloatArray, Rows


def embed(
    model: keras.Model,
    examples: Any,
    batch_size: int = 256,
    progress: bool | None = None,
) -> FloatArray:
    """Embeds all examples; images in their test view.

    Training continues undisturbed: no metric is reset, no callback called.

    Args:
        model: From inputs to embeddings, (B, D). Of images it takes
            (B, H, W, C), pixels in 0 to 255.
        examples: N examples: an `ImageSet`, `ArraySet` or other `Examples`;
            arrays as `ArraySet` takes them, uint8 pixels as `ImageSet` does,
            alone or as `(x, y)`; or a finite `tf.data.Dataset` of x or
            (x, y), which reach the model as they are.
        batch_size: Examples embedded at a time, if they are not in batches.
        progress: Whether to show progress; None shows it in a terminal.

    Returns:
        (N, D) float32, in the order of the rows.

    Raises:
        ValueError: If there are no examples, or the model's output is not
            one embedding for each.
    """
    return embedded(
        model, examples, "examples", "embed", batch_size, progress
    ).embeddings


@dataclass(frozen=True)
class Embedded:
    """Embeddings, (N, D), and what is known of the examples."""

    embeddings: FloatArray
    labels: Rows | None
    names: Mapping[int, str]


def source_of(given: Any, name: str, owner: str) -> Any:
    """A set, or a dataset of `tf.data`, of what an argument is given."""
    if isinstance(given, tf.data.Dataset):
        return given
    return as_examples(given, name, owner)


def embedded(
    model: keras.Model,
    given: Any,
    name: str,
    owner: str,
    batch_size: int,
    progress: bool | None,
    padded: bool = False,
) -> Embedded:
    """Embeds what the argument `name` of `owner` is given; see `embed`.

    With `padded`, the model is given batches of one size only, as to compile
    for another takes it as long as many of them; not those of datasets.
    """
    if isinstance(given, tf.data.Dataset):
        reader = DatasetReader(given, name, owner, batch_size, model=model)
        embeddings = _embedded(model, reader, reader.count, owner, progress)
        about = reader.about()
        return Embedded(embeddings, about.labels, about.names)
    examples = as_examples(given, name, owner)
    if not len(examples):
        raise ValueError(
            f"`{name}` of {owner} must not be empty. Received: 0 examples."
        )
    batches = eval_batches(examples, examples.view_for(model), batch_size)
    _check_text(model, batches.element_spec, name, owner)
    count = -(-len(examples) // batch_size)
    least = batch_size if padded else 0
    embeddings = _embedded(model, batches, count, owner, progress, least)
    return Embedded(embeddings, examples.labels, examples.names)


def _embedded(
    model: keras.Model,
    batches: Iterable[Any],
    count: int | None,
    owner: str,
    progress: bool | None,
    least: int = 0,
) -> FloatArray:
    """Embeddings of all batches, each filled up to some size at least."""
    parts = []
    predict = _predict_function(model)
    for batch in tracked(batches, count, "Embedding", progress):
        if keras.backend.backend() != "tensorflow":
            batch = tf.nest.map_structure(np.asarray, batch)
        size = len(tf.nest.flatten(batch)[0])
        given = max(size, least)
        output = predict(_filled(batch, given - size))
        shape = getattr(output, "shape", None)
        if shape is None or len(shape) != 2 or shape[0] != given:
            received = type(output).__name__ if shape is None else shape
            raise ValueError(
                f"`model` of {owner} must return one embedding for each "
                f"example, (B, D). Received: {received} for a batch of "
                f"{given}. Use a model whose only output is the embedding, "
                "such as `keras.Model(model.input, embedding)`."
            )
        parts.append(np.asarray(output, np.float32)[:size])
    return np.concatenate(parts)


def _filled(batch: Any, count: int) -> Any:
    """A batch with its first example so many times more."""
    if not count:
        return batch

    def fill(x: Any) -> Any:
        join = np.concatenate if isinstance(x, np.ndarray) else tf.concat
        return join([x, *[x[:1]] * count], 0)

    return tf.nest.map_structure(fill, batch)


def _predict_function(model: keras.Model) -> Callable[[Any], Any]:
    """What embeds one batch, once."""
    if strategy_of(model).num_replicas_in_sync == 1:
        predict: Callable[[Any], Any] = model.predict_on_batch
        return predict
    # Under a strategy Keras has every replica embed the whole batch.
    return tf.function(lambda x: model(x, training=False), autograph=False)


def _check_text(model: keras.Model, spec: Any, name: str, owner: str) -> None:
    """Refuses strings for images: they are paths, most likely."""
    shape = getattr(model, "input_shape", None)
    takes_images = isinstance(shape, tuple) and len(shape) == 4
    if takes_images and getattr(spec, "dtype", None) == tf.string:
        raise ValueError(
            f"`{name}` of {owner} must be what the model takes, images of "
            f"shape {shape}. Received: strings. Files of images are given as "
            "ImageSet(paths)."
        )
