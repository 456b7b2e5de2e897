"""ModelIdentity: which model made an index."""

import hashlib
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dml.data import View
from keras_dml.model.generated import (
    generated_inputs,
    input_specs,
    takes_images,
)
from keras_dml.model.metric_model import MetricModel

TOLERANCE = 0.01
"""Largest difference between the test embeddings of one model on different
machines; half precision is off by some thousandths."""


@dataclass(frozen=True)
class ModelIdentity:
    """What distinguishes a model from others.

    Weights do not determine preprocessing and activations, so the identity
    also contains the embeddings of two generated examples.

    Attributes:
        weights: SHA-256 of the weights that embeddings depend on.
        input_shape: (H, W, C) of the images that the model takes; if it takes
            something else, the sizes of its inputs, with 0 for any size.
        resize: Length of the side to which images are resized before cropping.
        resize_mode: Which side that is, see `keras_dml.data.View`; "none" if
            inputs are not images.
        test_embeddings: Unit embeddings of two generated examples.
    """

    weights: str
    input_shape: tuple[int, ...]
    resize: int | None
    resize_mode: str
    test_embeddings: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, model: keras.Model) -> "ModelIdentity":
        """Returns the identity of a model.

        Raises:
            ValueError: If the model's inputs are not known.
        """
        if not takes_images(model):
            return cls._of_arrays(model)
        view = View.of(model)
        return cls(
            weights=_digest(model),
            input_shape=(*view.size, view.channels),
            resize=view.resize,
            resize_mode=view.resize_mode,
            test_embeddings=tuple(map(tuple, _test_embeddings(model, view))),
        )

    @classmethod
    def _of_arrays(cls, model: keras.Model) -> "ModelIdentity":
        """The identity of a model that does not take images."""
        specs = keras.tree.flatten(input_specs(model))
        sizes = [size or 0 for spec in specs for size in spec.shape[1:]]
        # Strings must be tensors; Keras takes them for objects.
        x = keras.tree.map_structure(tf.constant, generated_inputs(model))
        return cls(
            weights=_digest(model),
            input_shape=tuple(sizes),
            resize=None,
            resize_mode="none",
            test_embeddings=tuple(map(tuple, _units(model, x))),
        )

    def check(self, model: keras.Model) -> None:
        """Checks that a model has this identity.

        Raises:
            ValueError: If it is a different model.
        """
        other = ModelIdentity.of(model)
        difference = self.difference(other)
        if difference:
            raise ValueError(
                "`model` of an Index must be the one that computed its "
                "embeddings, because embeddings of different models cannot be "
                "compared. "
                f"Received: {model!r}, {difference}. Use the model of the "
                "index, or rebuild the index with this one."
            )

    def difference(self, other: "ModelIdentity") -> str:
        """How another model differs; empty if it is the same."""
        mine = (*self.input_shape, self.resize, self.resize_mode)
        theirs = (*other.input_shape, other.resize, other.resize_mode)
        if mine != theirs:
            return f"whose inputs have another size: {theirs}, not {mine}"
        if self.weights != other.weights:
            return (
                f"with different weights: {other.weights[:12]}…, not "
                f"{self.weights[:12]}…"
            )
        gap = np.subtract(self.test_embeddings, other.test_embeddings)
        largest = np.abs(gap).max()
        # Not a number is not within the tolerance.
        if not largest <= TOLERANCE:
            return (
                "with the same weights that embeds a generated example "
                f"differently, by {largest:.3g}: its preprocessing or its "
                "layers differ"
            )
        return ""


def _digest(model: keras.Model) -> str:
    # An objective's weights go on changing and move no embedding.
    ours = isinstance(model, MetricModel)
    parts = (model.backbone, model.head) if ours else (model,)
    digest = hashlib.sha256()
    for weight in (weight for part in parts for weight in part.weights):
        array = np.ascontiguousarray(keras.ops.convert_to_numpy(weight))
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _test_embeddings(model: keras.Model, view: View) -> list[list[float]]:
    # Coarse blocks: fine noise averages out to gray in many a network.
    height, width = view.size
    blocks = np.random.default_rng(0).integers(
        256, size=(2, 5, 5, view.channels)
    )
    rows, columns = np.arange(height) * 5 // height, np.arange(width) * 5
    images = blocks[:, rows][:, :, columns // width].astype("float32")
    return _units(model, images)


def _units(model: keras.Model, x: Any) -> list[list[float]]:
    """Unit embeddings of some inputs."""
    output = np.asarray(model.predict_on_batch(x), np.float64)
    norms = np.linalg.norm(output, axis=1, keepdims=True)
    unit: list[list[float]] = (output / np.maximum(norms, 1e-12)).tolist()
    return unit
