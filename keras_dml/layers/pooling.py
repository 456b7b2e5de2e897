"""FeaturePooling: pooling a feature map or tokens into one vector."""

from typing import Any

import keras
from keras import ops

from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Pooling, Shape, Tensor

MIN_ACTIVATION = 1e-6
"""The lower bound of activations in GeM, because 0 has no logarithm."""

INITIAL_P = 3.0
"""p of GeM before training, as in the paper."""

_MAPS = "a map (B, h, w, C) or tokens (B, T, C)"


@register
class FeaturePooling(SerializableLayer):
    """Pools over the positions of a map or over tokens: (B, …, C) → (B, C).

    With the features x_i at the N unmasked positions:

        avg:     1/N Σ_i x_i
        max:     max_i x_i
        avg_max: the sum of both
        gem:     (1/N Σ_i max(x_i, 1e-6)^p)^(1/p), p trainable, 3 at first
        cls:     the first token
        none:    features that come pooled, (B, C)

    "gem" lies between "avg" (p = 1) and "max" (p → ∞). It is intended for
    non-negative activations: values below 1e-6 count as 1e-6.

    Args:
        pooling: "avg", "max", "avg_max", "gem", "cls" or "none".
        **kwargs: Passed to `keras.layers.Layer`. `dtype` defaults to
            float32, whatever the global policy.

    Call arguments:
        features: (B, h, w, C), (B, T, C) or (B, C). The latter are returned
            unchanged; only "gem" and "avg_max" do not accept them.
        mask: (B, T) or (B, h, w), True for positions that count; by default,
            the Keras mask of the features, if any. "cls" takes the first token
            even if it is masked. If all positions of an example are masked, its
            result is 0.

    Returns:
        (B, C).

    Raises:
        ValueError: If `pooling` is unknown, or does not support the shape of
            the features.

    Reference:
        Radenović et al., "Fine-tuning CNN Image Retrieval with No Human
        Annotation", TPAMI 2018, Eq. 3, https://arxiv.org/abs/1711.02512
        ("gem").
    """

    def __init__(self, pooling: Pooling = "avg", **kwargs: Any) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        self.pooling = pooling

    def build(self, input_shape: Shape) -> None:
        self._check(input_shape)
        if self.pooling == "gem":
            self.p = self.add_weight(
                shape=(),
                initializer=keras.initializers.Constant(INITIAL_P),
                name="p",
            )

    def _check(self, shape: Shape) -> None:
        rank = len(shape)
        maps = (3, 4)
        allowed = {"gem": maps, "avg_max": maps, "cls": (2, 3), "none": (2,)}
        if rank in allowed.get(self.pooling, (2, 3, 4)):
            return
        needed = {
            "gem": _MAPS,
            "avg_max": _MAPS,
            "cls": "tokens (B, T, C)",
            "none": "pooled features, (B, C)",
        }.get(self.pooling, "(B, h, w, C), (B, T, C) or (B, C)")
        raise ValueError(
            f"`pooling={self.pooling!r}` takes {needed}. Received: features "
            f"of shape {tuple(shape)}. Use "
            f"{_alternative(self.pooling, rank)}."
        )

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        self._check(features.shape)
        if len(features.shape) == 2:
            return features
        if self.pooling == "cls":
            return features[:, 0]
        if self.pooling == "avg":
            return average(features, mask)
        if self.pooling == "avg_max":
            return average(features, mask) + maximum(features, mask)
        if self.pooling == "max":
            return maximum(features, mask)
        return _generalized_mean(*_positions(features, mask), self.p)

    def compute_mask(self, inputs: Tensor, previous_mask: Any) -> None:
        return None

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], input_shape[-1])


def average(features: Tensor, mask: Tensor | None) -> Tensor:
    """The mean over positions, (B, …, C) → (B, C), of those of a mask."""
    if mask is None:
        return ops.mean(features, axis=tuple(range(1, len(features.shape) - 1)))
    features, weights = _positions(features, mask)
    count = ops.maximum(ops.sum(weights, axis=1), 1)
    return ops.sum(features * weights, axis=1) / count


def maximum(features: Tensor, mask: Tensor | None) -> Tensor:
    """The maximum over positions, (B, …, C) → (B, C), of those of a mask."""
    features, weights = _positions(features, mask)
    # The gradient of `ops.max` divides by the number of entries that equal the
    # maximum. XLA may round the two differently and find none, so that it is
    # NaN. An index cannot be missed.
    compared = features
    if weights is not None:
        lowest = ops.full_like(features, -float("inf"))
        compared = ops.where(weights > 0, features, lowest)
    highest = ops.argmax(compared, axis=1)[:, None]
    pooled = ops.take_along_axis(features, highest, axis=1)[:, 0]
    return pooled if weights is None else pooled * _any(weights)


def _positions(
    features: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Features, (B, N, C), and which of them count, (B, N, 1), 0 or 1."""
    if len(features.shape) == 4:
        _, height, width, channels = ops.shape(features)
        features = ops.reshape(features, (-1, height * width, channels))
        if mask is not None:
            mask = ops.reshape(mask, (-1, height * width))
    if mask is None:
        return features, None
    return features, ops.cast(mask, features.dtype)[..., None]


def _generalized_mean(
    features: Tensor, weights: Tensor | None, p: Tensor
) -> Tensor:
    # In logarithms, no p is too large for float32.
    scaled = p * ops.log(ops.maximum(features, MIN_ACTIVATION))
    if weights is None:
        count = ops.cast(ops.shape(features)[1], features.dtype)
    else:
        # With −inf, an example without any position would be NaN.
        scaled = ops.where(weights > 0, scaled, -1e30)
        count = ops.maximum(ops.sum(weights, axis=1), 1)
    pooled = ops.exp((ops.logsumexp(scaled, axis=1) - ops.log(count)) / p)
    return pooled if weights is None else pooled * _any(weights)


def _any(weights: Tensor) -> Tensor:
    """(B, 1): 0 for an example in which no position counts, otherwise 1."""
    return ops.max(weights, axis=1)


def _alternative(pooling: str, rank: int) -> str:
    if rank == 2:
        return 'pooling="avg", which leaves them as they are'
    if pooling == "cls" and rank == 4:
        return 'pooling="avg", "max" or "gem"'
    return 'pooling="avg"'
