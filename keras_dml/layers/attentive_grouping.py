"""AttentiveGrouping: groups that each attend to their own positions."""

import math
from typing import Any

import keras
from keras import ops

from keras_dml.layers.grouping import Grouping
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Count, Shape, Tensor


@register
class AttentiveGrouping(Grouping):
    """A-grouping: each group attends to positions with a learned query.

    With keys K and values V, both 1×1 convolutions of the map without bias, and
    one learned query Q per group:

        A = softmax(QᵀK) over positions (Eq. 7),    F = A Vᵀ (Eq. 8).

    The groups do not depend on where something is in the map: they are
    invariant to permutations of the positions (Theorem 1).

    Since keys and values are linear in the map, neither is computed explicitly:
    QᵀK is one product of the map with P directions, and the map is averaged
    with each group's attention before the value kernel is applied. For a
    7×7×2048 map and four groups of 128 units, this takes a 20th of the
    multiplications.

    Args:
        embedding_dim: Total number of units of all groups, D; `num_groups`
            must divide it.
        num_groups: Number of groups, P. Each has d = D // P units.
        key_dim: Number of units of keys and queries; C / 8 by default.
        query_initializer: Initializer of the queries, (key_dim, P); by default,
            uniform in ±1/√key_dim.
        **kwargs: As for `Grouping`.

    Returns:
        As for `Grouping`; the attention sums to 1 over the unmasked positions.

    Raises:
        ValueError: As for `Grouping`.

    Deviations:
        - The size of the keys and the initialization of the queries follow the
          released code; the paper does not state them.

    Example:

    ```python
    groups, attention = AttentiveGrouping(512, num_groups=4)(
        feature_map, return_attention_scores=True
    )  # (B, 4, 128), (B, h, w, 4)
    ```

    Reference:
        Xu et al., "Towards Improved and Interpretable Deep Metric Learning
        via Attentive Grouping", 2020, Sec. 3.2.
    """

    has_attention = True

    def __init__(
        self,
        embedding_dim: int,
        num_groups: int,
        key_dim: Count | None = None,
        query_initializer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(embedding_dim, num_groups, **kwargs)
        self.key_dim = key_dim
        self.query_initializer = keras.initializers.get(query_initializer)

    def build(self, input_shape: Shape) -> None:
        channels = self.channels_of(input_shape)
        key_dim = self.key_dim or max(1, channels // 8)
        limit = 1 / math.sqrt(key_dim)
        self.queries = self.add_weight(
            shape=(key_dim, self.num_groups),
            initializer=self.query_initializer
            or keras.initializers.RandomUniform(-limit, limit),
            name="queries",
        )
        self.key_kernel = self.add_weight(
            shape=(channels, key_dim),
            initializer="glorot_uniform",
            name="key_kernel",
        )
        self.value_kernel = self.add_weight(
            shape=(channels, self.group_dim),
            initializer="glorot_uniform",
            name="value_kernel",
        )

    def group(
        self, inputs: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        directions = ops.matmul(self.key_kernel, self.queries)  # (C, P)
        scores = ops.matmul(inputs, directions)  # (B, h, w, P)
        if mask is not None:
            # With −inf, an example without any position would be NaN.
            scores = ops.where(mask[..., None], scores, -1e30)
        positions = tuple(range(1, len(scores.shape) - 1))
        attention = ops.exp(
            scores - ops.logsumexp(scores, axis=positions, keepdims=True)
        )
        if mask is not None:
            attention = ops.where(mask[..., None], attention, 0.0)
        equation = "bhwp,bhwc->bpc" if len(positions) == 2 else "btp,btc->bpc"
        attended = ops.einsum(equation, attention, inputs)
        return ops.matmul(attended, self.value_kernel), attention
