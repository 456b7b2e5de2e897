"""Grouping: positions → several sub-embeddings; the peer modules."""

from typing import Any

import keras
from keras import layers, ops

from keras_dml.layers.pooling import FeaturePooling, average
from keras_dml.utils.arguments import check_divisible
from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Count, Pooling, Shape, Tensor


class Grouping(SerializableLayer):
    """Base class of grouping modules: (B, h, w, C) or (B, T, C) → (B, P, d).

    A subclass creates its weights in `build`, and computes the groups in
    `group`. The groups are not normalized here.

    Args:
        embedding_dim: Total number of units of all groups, D; `num_groups`
            must divide it.
        num_groups: Number of groups, P. Each has d = D // P units; any
            remainder is dropped: 512 units and 3 groups result in 3 × 170.
        **kwargs: Passed to `keras.layers.Layer`. `dtype` defaults to
            float32, whatever the global policy.

    Attributes:
        has_attention: Whether the module weights positions and can return these
            weights.

    Call arguments:
        inputs: Feature map, (B, h, w, C), or tokens, (B, T, C), which count as
            positions.
        return_attention_scores: Whether to return the weights of positions as
            well.
        mask: (B, h, w) or (B, T), True for positions that count; by default,
            the Keras mask of the inputs, if any.

    Returns:
        (B, P, d) float32; with `return_attention_scores`, a pair of the groups
        and the attention, (B, h, w, P) or (B, T, P).

    Raises:
        ValueError: If a size is not positive, if the input is not a feature
            map, or if attention is requested from a module that has none.
    """

    has_attention = False

    def __init__(
        self, embedding_dim: Count, num_groups: Count, **kwargs: Any
    ) -> None:
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        owner = type(self).__name__
        self.embedding_dim = embedding_dim
        self.num_groups = num_groups
        self.group_dim = check_divisible(
            owner, embedding_dim, "`num_groups`", num_groups
        )

    def channels_of(self, input_shape: Shape) -> int:
        """The number of channels, C, of a feature map or of tokens.

        Raises:
            ValueError: If the shape is that of neither.
        """
        if len(input_shape) not in (3, 4) or input_shape[-1] is None:
            raise ValueError(
                f"{type(self).__name__} takes feature maps, (B, h, w, C), or "
                "tokens, (B, T, C), with known C. Received: "
                f"input_shape={input_shape}. Use a backbone that does not pool "
                "its features."
            )
        channels: int = input_shape[-1]
        return channels

    def group(
        self, inputs: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Computes groups, (B, P, d), and attention, (B, …, P), or None."""
        raise NotImplementedError

    def call(
        self,
        inputs: Tensor,
        return_attention_scores: bool = False,
        mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        if return_attention_scores and not self.has_attention:
            raise ValueError(
                f"{type(self).__name__} does not weight positions. Received: "
                "return_attention_scores=True. Use AttentiveGrouping or "
                "GateGrouping."
            )
        groups, attention = self.group(inputs, mask)
        return (groups, attention) if return_attention_scores else groups

    def compute_mask(self, inputs: Tensor, previous_mask: Any) -> None:
        return None

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], self.num_groups, self.group_dim)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        # Traces `call`, because its arguments determine what it returns.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)


class PooledGrouping(Grouping):
    """Base class of modules that pool over positions instead of attending.

    Args:
        embedding_dim: As for `Grouping`.
        num_groups: As for `Grouping`.
        pooling: Pooling of the map or tokens, as for `FeaturePooling`.
        **kwargs: As for `Grouping`.

    Raises:
        ValueError: If `pooling` is unknown.

    Deviations:
        - Sizes and biases of the layers follow the released code; the paper
          does not state them.

    Reference:
        Xu et al., "Towards Improved and Interpretable Deep Metric Learning via
        Attentive Grouping", 2020, Sec. 4.3, which compares these modules.
    """

    def __init__(
        self,
        embedding_dim: int,
        num_groups: int,
        pooling: Pooling = "avg",
        **kwargs: Any,
    ) -> None:
        super().__init__(embedding_dim, num_groups, **kwargs)
        self.pooling = pooling
        self.pool = FeaturePooling(
            pooling, dtype=self.dtype_policy, name="pool"
        )

    def build(self, input_shape: Shape) -> None:
        self.channels_of(input_shape)
        self.pool.build(input_shape)

    def dense(
        self, name: str, inputs: int, units: int, **kwargs: Any
    ) -> layers.Dense:
        """A built `Dense`; on a feature map it is a 1×1 convolution."""
        dtype = self.dtype_policy
        layer = layers.Dense(units, dtype=dtype, name=name, **kwargs)
        layer.build((None, inputs))
        return layer


@register
class LinearGrouping(PooledGrouping):
    """Pooling and one linear map: M-grouping, or N-grouping with one group.

    The paper's "multi-linear grouping" pools the map and applies P linear
    functions without bias; "no grouping" is the same with P = 1.

    Args, call arguments and returns are those of `PooledGrouping`.

    Reference:
        Opitz et al., "Deep Metric Learning with BIER: Boosting Independent
        Embeddings Robustly", TPAMI 2018.
    """

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.embed = self.dense(
            "embed",
            self.channels_of(input_shape),
            self.num_groups * self.group_dim,
            use_bias=False,
        )

    def group(
        self, inputs: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        flat = self.embed(self.pool(inputs, mask=mask))
        return ops.reshape(flat, (-1, self.num_groups, self.group_dim)), None


@register
class GateGrouping(PooledGrouping):
    """G-grouping: each group sees the map through its own mask.

    A shared 1×1 convolution to C/8 channels is followed by another one for each
    group, back to C channels. Its output, without a nonlinearity, is the
    group's mask: mask ∘ map is pooled and embedded by a dense layer without
    bias that is shared by all groups.

    The attention of a position is the mean of its mask over channels,
    which may be negative.

    Args, call arguments and returns are those of `PooledGrouping`.

    Reference:
        Kim et al., "Attention-based Ensemble for Deep Metric Learning",
        ECCV 2018.
    """

    has_attention = True

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        channels = self.channels_of(input_shape)
        hidden = max(1, channels // 8)
        self.reduce = self.dense("reduce", channels, hidden)
        self.gates = [
            self.dense(f"gate_{p}", hidden, channels)
            for p in range(self.num_groups)
        ]
        self.embed = self.dense(
            "embed", channels, self.group_dim, use_bias=False
        )

    def group(
        self, inputs: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        hidden = self.reduce(inputs)
        gates = [gate(hidden) for gate in self.gates]
        pooled = [self.pool(gate * inputs, mask=mask) for gate in gates]
        groups = self.embed(ops.stack(pooled, axis=1))  # (B, P, d)
        attention = [ops.mean(gate, axis=-1) for gate in gates]
        return groups, ops.stack(attention, axis=-1)


@register
class ChannelGrouping(PooledGrouping):
    """C-grouping: each group weights the channels of the map.

    Squeeze-and-excitation for each group: the means of the channels pass
    through Dense(C/5), ReLU, Dense(C) and a sigmoid, all without bias. The map,
    multiplied by these weights, is pooled and embedded by a dense layer with
    bias that is shared by all groups.

    Args, call arguments and returns are those of `PooledGrouping`.

    Reference:
        Chen and Deng, "Hybrid-Attention Based Decoupled Metric Learning for
        Zero-Shot Image Retrieval", CVPR 2019.
    """

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        channels = self.channels_of(input_shape)
        hidden = max(1, channels // 5)
        relu = {"activation": "relu", "use_bias": False}
        sigmoid = {"activation": "sigmoid", "use_bias": False}
        self.squeezes = [
            self.dense(f"squeeze_{p}", channels, hidden, **relu)
            for p in range(self.num_groups)
        ]
        self.excitations = [
            self.dense(f"excite_{p}", hidden, channels, **sigmoid)
            for p in range(self.num_groups)
        ]
        self.embed = self.dense("embed", channels, self.group_dim)

    def group(
        self, inputs: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        means = average(inputs, mask)
        # A channel's weight is positive and the same at all positions, so
        # that the features may be pooled before they are weighed.
        pooled = self.pool(inputs, mask=mask)
        weighted = [
            excite(squeeze(means)) * pooled
            for squeeze, excite in zip(
                self.squeezes, self.excitations, strict=True
            )
        ]
        return self.embed(ops.stack(weighted, axis=1)), None
