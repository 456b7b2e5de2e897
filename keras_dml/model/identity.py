"""ModelIdentity: recognizes the model that computed the embeddings."""

import hashlib
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from xxhash import xxh3_128

from keras_dml.data import View
from keras_dml.model.generated import (
    generated_inputs,
    input_specs,
    takes_images,
)
from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.tensorflow import tf

TOLERANCE = 0.01
"""Largest difference between the test embeddings of one model on different
machines; half precision is off by some thousandths."""


@dataclass(frozen=True)
class ModelIdentity:
    """What distinguishes a model from others.

    Weights do not determine preprocessing and activations, so the identity
    also contains the embeddings of two generated examples.
    """

    weights: str  # SHA-256 of the weights that embeddings depend on.
    # (H, W, C) of images; otherwise the sizes of inputs, with 0 for any size.
    input_shape: tuple[int, ...]
    resize: int | None  # As of `keras_dml.data.View`.
    resize_mode: str  # As of a `View`; "none" if inputs are not images.
    test_embeddings: tuple[tuple[float, ...], ...]  # Unit, of two examples.

    @classmethod
    def of(cls, model: keras.Model) -> "ModelIdentity":
        """The identity of a model whose inputs are known."""
        if not takes_images(model):
            return cls._of_arrays(model)
        view = View.of(model)
        height, width = view.size
        # Coarse blocks: fine noise averages out to gray in many a network.
        blocks = np.random.default_rng(0).integers(
            256, size=(2, 5, 5, view.channels)
        )
        rows, columns = np.arange(height) * 5 // height, np.arange(width) * 5
        images = blocks[:, rows][:, :, columns // width].astype("float32")
        return cls(
            weights=_digest(model),
            input_shape=(*view.size, view.channels),
            resize=view.resize,
            resize_mode=view.resize_mode,
            test_embeddings=tuple(map(tuple, _units(model, images))),
        )

    @classmethod
    def _of_arrays(cls, model: keras.Model) -> "ModelIdentity":
        """The identity of a model that does not take images."""
        specs = keras.tree.flatten(input_specs(model))
        sizes = [size or 0 for spec in specs for size in spec.shape[1:]]
        x = generated_inputs(model)
        if keras.backend.backend() == "tensorflow":
            # Strings must be tensors; Keras takes them for objects.
            x = keras.tree.map_structure(tf.constant, x)
        return cls(
            weights=_digest(model),
            input_shape=tuple(sizes),
            resize=None,
            resize_mode="none",
            test_embeddings=tuple(map(tuple, _units(model, x))),
        )

    def check(self, model: keras.Model, owner: str = "an Index") -> None:
        """Raises `ValueError` unless a model given to `owner` has it."""
        other = ModelIdentity.of(model)
        difference = self.difference(other)
        if difference:
            raise ValueError(
                f"`model` of {owner} must be the one that computed the "
                "embeddings, because embeddings of different models cannot be "
                "compared. "
                f"Received: {model!r}, {difference}. Use the model that "
                "computed them, or compute them again with this one."
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
        # NaN is not within the tolerance.
        if not largest <= TOLERANCE:
            return (
                "with the same weights that embeds a generated example "
                f"differently, by {largest:.3g}: its preprocessing or its "
                "layers differ"
            )
        return ""


class WatchedWeights:
    """Notices whether the weights behind a model's embeddings have changed.

    All of them are hashed, so that neither training nor an assignment by hand
    goes unnoticed. TensorFlow takes longer to read many variables one by one
    than to hash them, so a graph reads them at once: 0.4 ms for a small network
    and 4 ms for EfficientNet-B0 on a CPU. `digest` is the one that the weights
    must have, by default their own.
    """

    def __init__(self, model: keras.Model, digest: bytes | None = None) -> None:
        self._model = model
        self._weights = _weights_of(model)
        self._read = self._values
        if keras.backend.backend() == "tensorflow":
            self._read = tf.function(self._values, autograph=False)
        self._expected_digest = digest or self._digest()

    def __reduce__(self) -> tuple[Any, ...]:
        # Graphs cannot be pickled.
        return WatchedWeights, (self._model, self._expected_digest)

    def check(self, owner: str) -> None:
        """Raises `ValueError` of `owner` if the weights have changed."""
        now = _weights_of(self._model)
        are_same = list(map(id, now)) == list(map(id, self._weights))
        if are_same and self._digest() == self._expected_digest:
            return
        raise ValueError(
            f"{owner} needs the model as it was when it computed the "
            "embeddings, because embeddings of different weights cannot be "
            f"compared. Received: {self._model!r}, whose weights have changed "
            "since, for instance by training or loading weights. Compute them "
            "again with this model, for an index by Index.build, or restore "
            "its weights."
        )

    def _values(self) -> list[Any]:
        if keras.backend.backend() == "tensorflow":
            return [tf.convert_to_tensor(x) for x in self._weights]
        return [keras.ops.convert_to_numpy(x) for x in self._weights]

    def _digest(self) -> bytes:
        digest = xxh3_128()
        for value in self._read():
            # Bytes also work for bfloat16, which NumPy does not have.
            array = np.ascontiguousarray(value).reshape(-1)
            digest.update(array.view(np.uint8).data)
        return digest.digest()


def _weights_of(model: keras.Model) -> list[Any]:
    """The weights that embeddings depend on."""
    # Weights of an objective do not affect embeddings.
    ours = isinstance(model, MetricModel)
    parts = (model.backbone, model.head) if ours else (model,)
    return [weight for part in parts for weight in part.weights]


def _digest(model: keras.Model) -> str:
    digest = hashlib.sha256()
    for weight in _weights_of(model):
        array = np.ascontiguousarray(keras.ops.convert_to_numpy(weight))
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _units(model: keras.Model, x: Any) -> list[list[float]]:
    """Unit embeddings of some inputs."""
    output = np.asarray(model.predict_on_batch(x), np.float64)
    norms = np.linalg.norm(output, axis=1, keepdims=True)
    unit: list[list[float]] = (output / np.maximum(norms, 1e-12)).tolist()
    return unit
