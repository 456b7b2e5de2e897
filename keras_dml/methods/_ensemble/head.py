"""Head of an ensemble: a dense layer for every learner."""

from typing import Any

from keras import layers, ops

from keras_dml.model.head import Head
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Shape, Tensor, Tensors


@register
class IndependentHead(Head):
    """A dense layer and a unit embedding for every learner of an ensemble.

    Args:
        embedding_dim: Dimensions of the whole embedding, D.
        num_learners: Number of learners, K; must divide `embedding_dim`.
        shared_trunk: Whether all learners take the same features. Otherwise
            the features of K networks are side by side, and learner k takes
            the k-th of K equal shares of the channels.
        activations: Whether to return also the outputs of the dense layers
            before they are scaled to unit length.
        **kwargs: See `Head`.

    Returns:
        `{"embedding": (B, D), "parts": (B, K, D / K)}`, float32: the learners'
        unit embeddings, and their concatenation divided by √K. With
        `activations`, also `"activations"`, (B, K, D / K), of any length.

    Raises:
        ValueError: If `num_learners` does not divide `embedding_dim`, or, in
            `build`, the channels.
    """

    def __init__(
        self,
        embedding_dim: int,
        num_learners: int,
        shared_trunk: bool = False,
        activations: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if embedding_dim % num_learners:
            raise ValueError(
                "`num_learners` of an ensemble must divide `embedding_dim`. "
                f"Received: num_learners={num_learners}, embedding_dim="
                f"{embedding_dim}. Use embedding_dim="
                f"{num_learners * -(-embedding_dim // num_learners)}."
            )
        self.embedding_dim = embedding_dim
        self.num_learners = num_learners
        self.shared_trunk = shared_trunk
        self.activations = activations
        self.dense = [
            layers.Dense(
                embedding_dim // num_learners,
                dtype=self.dtype_policy,
                name=f"dense_{k}",
            )
            for k in range(num_learners)
        ]

    def build(self, features_shape: Shape) -> None:
        super().build(features_shape)
        channels = features_shape[-1]
        shares = 1 if self.shared_trunk else self.num_learners
        if channels % shares:
            raise ValueError(
                "The features of IndependentHead must be those of "
                f"{shares} networks side by side. Received: {channels} "
                "channels. Use shared_trunk=True for one network."
            )
        for dense in self.dense:
            dense.build((None, channels // shares))

    def embed(self, pooled: Tensor) -> Tensors:
        count = self.num_learners
        features = (
            [pooled] * count
            if self.shared_trunk
            else ops.split(pooled, count, axis=-1)
        )
        activations = ops.stack(
            [dense(x) for dense, x in zip(self.dense, features, strict=True)],
            axis=1,
        )  # (B, K, d)
        parts = l2_normalize(activations)
        whole = ops.reshape(parts, (-1, self.embedding_dim))
        outputs = {"embedding": whole / count**0.5, "parts": parts}
        if self.activations:
            outputs["activations"] = activations
        return outputs
