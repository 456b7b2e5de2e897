"""Current: the model and the gallery that are served now."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dml.data import View
from keras_dml.embedding.engines import (
    KERAS,
    OPENVINO,
    Engine,
    by_openvino,
    predict_function,
)
from keras_dml.evaluation.pairs import negative_pairs
from keras_dml.model.generated import (
    generated_inputs,
    input_specs,
    takes_images,
)
from keras_dml.runs.folder import load_model
from keras_dml.search import Index
from keras_dml.search.engine import Similarity
from keras_dml.serve.pictures import Viewer
from keras_dml.serve.settings import check_is_there
from keras_dml.utils.models import read_model
from keras_dml.utils.trust import reading
from keras_dml.utils.types import FloatArray
from keras_dml.utils.vectors import blocks

MAX_PAIRS = 100_000
"""Pairs of different classes whose scores are kept."""


@dataclass(frozen=True)
class Current:
    """A model and its gallery, which is replaced whole.

    A request keeps the gallery that it began with.

    `embed` maps a batch of the model's inputs, for images of views, to
    embeddings, (B, D) float32.
    """

    name: str  # Of the model, in addresses.
    model: keras.Model
    embed: Callable[[Any], FloatArray]
    viewer: Viewer | None = None  # None if the model takes no pictures.
    index: Index | None = None
    version: int = 0  # The number of this gallery, from 1.

    def with_gallery(self, path: str) -> "Current":
        """The same model with the gallery in a folder, ready to be searched."""
        index = Index.load(path, self.model)
        current = replace(self, index=index, version=self.version + 1)
        # A first search, so that the first request is as fast as the next.
        index.search(np.ones((1, index.dim), np.float32), 1)
        _ = current.negatives, current.label_column
        return current

    @cached_property
    def negatives(self) -> FloatArray | None:
        return scores_of_negatives(self.index)

    @cached_property
    def label_column(self) -> str | None:
        """The column that names the class of each row; None if none does."""
        columns = {} if self.index is None else self.index.columns
        for name in ("name", "label"):
            if None not in columns.get(name, [None]):
                return name
        return None


def scores_of_negatives(
    index: Index | None, max_pairs: int = MAX_PAIRS
) -> FloatArray | None:
    """Scores of pairs of rows of different classes, ascending, or None.

    Of more pairs, `max_pairs` are drawn, with seed 0. There are none if a row
    has no class or several, or the gallery does not keep its embeddings.
    """
    if index is None:
        return None
    try:
        labels, vectors = np.asarray(index.labels), index.embeddings
    except ValueError:
        return None
    if labels.ndim != 1 or labels.dtype == object:
        return None
    first, second = negative_pairs(labels, max_pairs)
    pairs = Similarity(index.metric).pairs
    scores = [
        pairs(vectors[first[rows]], vectors[second[rows]])
        for rows in blocks(len(first), 10_000)
    ]
    return np.sort(np.concatenate(scores)) if scores else None


def load(
    path: str,
    name: str | None = None,
    engine: Engine = KERAS,
    trust: bool = False,
) -> Current:
    """Loads the best model of a run's folder, or a `.keras` file.

    For `trust`, see `runs.load_model`.

    Raises:
        OSError: If there is nothing, or it cannot be read.
        ValueError: If it is no model, or the name cannot be part of an address.
    """
    check_is_there(path)
    source = Path(path)
    name = name or (source.stem if source.is_file() else source.absolute().name)
    if re.search(r"[/:]", name):
        raise ValueError(
            "`name` of a model must not contain / or :, because it is part of "
            f"addresses. Received: {name!r}. Use --name to choose another one."
        )
    if any([*source.glob("saved_model.pb"), *source.glob("*/saved_model.pb")]):
        raise ValueError(
            f"There is a SavedModel in {path!r}, which TensorFlow Serving "
            "serves. Use the folder of a run, or a .keras file."
        )
    with reading(path, trust):
        model = load_model(source) if source.is_dir() else read_model(source)
    viewer = Viewer(View.of(model)) if takes_images(model) else None
    return Current(name, model, embedder(model, engine), viewer)


def embedder(
    model: keras.Model, engine: Engine = KERAS
) -> Callable[[Any], FloatArray]:
    """Returns a function from a batch of inputs to embeddings, (B, D) float32.

    Batches of any size share one graph, which is traced here.
    """
    specs = keras.tree.map_structure(
        lambda x: tf.TensorSpec(x.shape, x.dtype), input_specs(model)
    )
    function = tf.function(
        lambda x: tf.cast(model(x, training=False), "float32"),
        input_signature=[specs],
        autograph=False,
    )

    def embed(batch: Any) -> FloatArray:
        tensors = keras.tree.map_structure(tf.constant, batch)
        embeddings: FloatArray = function(tensors).numpy()
        return embeddings

    batch = generated_inputs(model)
    if takes_images(model):
        # The images are noise, and a light edge on the left.
        batch = np.zeros((2, *model.input_shape[1:]), np.float32)
        batch[0] = np.random.default_rng(0).uniform(0, 255, batch.shape[1:])
        batch[1, :, : batch.shape[2] // 3] = 255
    expected = embed(batch)
    if engine == KERAS:
        return embed
    if engine == OPENVINO:
        return by_openvino(model, batch, expected) or embed
    return predict_function(model, engine, "serve")
