"""Head: the interface of heads, from backbone features to named outputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import keras

from keras_dml.layers import FeaturePooling
from keras_dml.utils.serialization import SerializableLayer
from keras_dml.utils.types import Pooling, Shape, Shapes, Tensor, Tensors


@dataclass(frozen=True)
class Linear:
    """Linear layers that may start as one projection of their inputs.

    Attributes:
        kernels: Their kernels, (C, d), whose columns side by side are those of
            the projection.
        biases: Their biases, (d,); none for a map without offset.
        is_rotated: Whether columns are mixed by a random rotation, so that
            parts of the embedding are alike, not the first ones the best.
        has_unit_columns: Whether columns must have length 1.
    """

    kernels: Sequence[keras.Variable]
    biases: Sequence[keras.Variable] = ()
    is_rotated: bool = False
    has_unit_columns: bool = False

    @classmethod
    def of(cls, *layers: keras.layers.Layer, **kwargs: Any) -> Self:
        """`Dense` layers that are built."""
        biases = [x.bias for x in layers if x.bias is not None]
        return cls([x.kernel for x in layers], biases, **kwargs)


class Head(SerializableLayer):
    """Base class of all heads: backbone features → dict of named outputs.

    Subclasses implement `embed`, and `build` for the shape of the backbone's
    features; if they pool, their `build` calls the one of this class. The dict
    always contains `"embedding"`, (B, D), unit rows, float32. Methods add what
    their objectives need under names that all methods share (`"parts"`: (B, K,
    d) unit sub-embeddings). All heads have the same call arguments.

    Args:
        pooling: How a map (B, h, w, C) or tokens (B, T, C) become (B, C)
            features: "avg", "max", "avg_max" (the sum of both), "gem" (with a
            trainable power), "cls" (the first token) or "none" (the features
            are already pooled); see `layers.FeaturePooling`. "avg" and "max"
            also leave pooled features unchanged.
        **kwargs: Passed to `keras.layers.Layer`. `dtype` defaults to float32,
            whatever the global policy.

    Call arguments:
        features: (B, h, w, C), (B, T, C) or (B, C).
        mask: Which positions count; by default the Keras mask of the features,
            if they have one.

    Returns:
        A dict of tensors.

    Raises:
        ValueError: If `pooling` is unknown or does not fit the features.

    Example:
        ```python
        @keras.saving.register_keras_serializable()
        class LinearHead(dml.model.Head):
            def build(self, features_shape):
                super().build(features_shape)
                self.dense = keras.layers.Dense(64)
                self.dense.build((None, features_shape[-1]))

            def embed(self, pooled):
                rows = dml.losses.distances.l2_normalize(self.dense(pooled))
                return {"embedding": rows}
        ```
    """

    is_plain = True
    """Whether `EmbeddingModel.encoder` has its operations instead of itself."""

    def __init__(self, pooling: Pooling = "avg", **kwargs: Any) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.pooling = pooling
        self.feature_pooling = FeaturePooling(
            pooling, dtype=self.dtype_policy, name="pool"
        )

    def build(self, features_shape: Shape) -> None:
        """Creates the weights; a subclass that pools must call this method.

        Args:
            features_shape: Shape of the backbone's features.
        """
        self.feature_pooling.build(features_shape)

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensors:
        return self.embed(self.pool(features, mask))

    def pool(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pools features to (B, C); pooled features are returned unchanged."""
        pooled: Tensor = self.feature_pooling(features, mask=mask)
        return pooled

    def compute_mask(self, inputs: Tensor, previous_mask: Any) -> None:
        return None

    def embed(self, pooled: Tensor) -> Tensors:
        """Returns the named outputs for pooled features, (B, C)."""
        raise NotImplementedError

    def compute_output_shape(self, features_shape: Shape) -> Shapes:
        """Returns the shapes of the outputs by name."""
        features = keras.KerasTensor(features_shape, self.compute_dtype)
        outputs = keras.Operation.compute_output_spec(self, features)
        return {name: output.shape for name, output in outputs.items()}

    def linear_layers(self) -> list[Linear]:
        """Returns the last linear layers that `head_init` may start.

        By default there are none, and the head starts as it was built.
        """
        return []

    def linear_inputs(
        self, features: Tensor, mask: Tensor | None = None
    ) -> list[Tensor]:
        """Returns what each of `linear_layers` receives, (B, C).

        Args:
            features: See the call arguments.
            mask: See the call arguments.
        """
        return [self.pool(features, mask)] * len(self.linear_layers())

    def learner_variables(self) -> list[list[keras.Variable]]:
        """Returns the variables of each single learner, one list per learner.

        The list is empty if all learners always train together.
        """
        return []
