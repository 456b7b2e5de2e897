"""ModelIdentity: which model made an index, as no two models compare."""

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
"""By how much numbers of the test embeddings may differ between machines;
half precision is off by some thousandths."""


@dataclass(frozen=True)
class ModelIdentity:
    """What tells a model from others.

    Weights do not tell preprocessing and activations, so two generated
    images are embedded as well.

    Attributes:
        weights: SHA-256 of the weights that embeddings depend on.
        input_shape: (H, W, C) of the images that it takes; of a model that
            takes something else, the sizes of its inputs, 0 for any.
        resize: Side to which images are resized before the cut.
        resize_mode: Which side that is, see `keras_dml.data.View`; "none"
            where inputs are no images.
        test_embeddings: Unit embeddings of two generated examples.
    """

    weights: str
    input_shape: tuple[int, ...]
    resize: int | None
    resize_mode: str
    test_embeddings: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, model: keras.Model) -> "ModelIdentity":
        """The identity of a model.

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
        """The identity of a model that takes no images."""
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
        """Checks that a model is this one.

        Raises:
            ValueError: If it is another.
        """
        other = ModelIdentity.of(model)
        difference = self.difference(other)
        if difference:
            raise ValueError(
                "`model` of an Index must be the one that made its "
                "embeddings, because embeddings of two models cannot be "
                f"compared. Received: {model!r}, {difference}. Use the model "
                "of the index, or build the index again with this one."
            )

    def difference(self, other: "ModelIdentity") -> str:
        """In what another model differs; empty if it is this one."""
        mine = (*self.input_shape, self.resize, self.resize_mode)
        theirs = (*other.input_shape, other.resize, other.resize_mode)
        if mine != theirs:
            return f"which takes inputs of another size: {theirs}, not {mine}"
        if self.weights != other.weights:
            return (
                f"with other weights: {other.weights[:12]}…, not "
                f"{self.weights[:12]}…"
            )
        gap = np.subtract(self.test_embeddings, other.test_embeddings)
        largest = np.abs(gap).max()
        # Not a number is not within the tolerance.
        if not largest <= TOLERANCE:
            return (
                "which has the same weights and embeds a generated example "
                f"otherwise, by {largest:.3g}: its preprocessing or its "
                "layers are others"
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
