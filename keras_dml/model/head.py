"""Head: the contract of heads, from backbone features to named outputs."""

from typing import Any, get_args

import keras
from keras import ops

from keras_dml.utils.arguments import check_choice
from keras_dml.utils.serialization import SerializableLayer
from keras_dml.utils.types import Pooling, Shape, Shapes, Tensor, Tensors


class Head(SerializableLayer):
    """Base of all heads: backbone features → dict of named outputs.

    Subclasses implement `embed`, and `build` for the backbone's shape. The
    dict always has `"embedding"`, (B, D), unit rows, float32; methods add
    what their objectives need under names that all methods share
    (`"parts"`: (B, K, d) unit sub-embeddings). Call arguments are the same
    for all.

    Args:
        pooling: How a (B, h, w, C) feature map becomes (B, C) features:
            "avg" or "max". Features that come pooled are left alone.
        **kwargs: Passed to `keras.layers.Layer`. `dtype` defaults to
            float32, whatever the global policy.

    Call arguments:
        features: (B, h, w, C) or (B, C).

    Returns:
        A dict of tensors.

    Raises:
        ValueError: If `pooling` is unknown.
    """

    def __init__(self, pooling: str = "avg", **kwargs: Any) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        owner = type(self).__name__
        check_choice(owner, "pooling", pooling, get_args(Pooling))
        self.pooling = pooling

    def call(self, features: Tensor) -> Tensors:
        return self.embed(self.pool(features))

    def pool(self, features: Tensor) -> Tensor:
        """(B, h, w, C) → (B, C); pooled features pass unchanged."""
        if len(features.shape) == 2:
            return features
        if self.pooling == "avg":
            return ops.mean(features, axis=(1, 2))
        # The gradient of `ops.max` looks for what equals the maximum, and
        # divides by their number: XLA may round the two differently, find
        # none, and give NaN. An index cannot be missed.
        batch, height, width, channels = ops.shape(features)
        positions = ops.reshape(features, (batch, height * width, channels))
        highest = ops.argmax(positions, axis=1)[:, None]
        return ops.take_along_axis(positions, highest, axis=1)[:, 0]

    def embed(self, pooled: Tensor) -> Tensors:
        """The named outputs for pooled features, (B, C)."""
        raise NotImplementedError

    def compute_output_shape(self, features_shape: Shape) -> Shapes:
        """Shapes of the outputs by name, as a built head computes them."""
        features = keras.KerasTensor(features_shape, self.compute_dtype)
        outputs = keras.Operation.compute_output_spec(self, features)
        return {name: output.shape for name, output in outputs.items()}

    def learner_variables(self) -> list[list[keras.Variable]]:
        """Variables that belong to one learner alone, a list a learner.

        Empty where all learners always train together.
        """
        return []
