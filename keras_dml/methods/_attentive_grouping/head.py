"""Head of attentive grouping: a grouping module and its unit groups."""

import math
from typing import Any

from keras import ops

from keras_dml.layers.attentive_grouping import AttentiveGrouping
from keras_dml.layers.grouping import (
    ChannelGrouping,
    GateGrouping,
    Grouping,
    LinearGrouping,
    PooledGrouping,
)
from keras_dml.model.head import Head
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Config, Shape, Tensor

GROUPINGS: dict[str, type[Grouping]] = {
    "A": AttentiveGrouping,
    "N": LinearGrouping,
    "M": LinearGrouping,
    "G": GateGrouping,
    "C": ChannelGrouping,
}
"""The grouping modules by the letters of the paper."""


@register
class GroupedHead(Head):
    """Feature map → grouping module → P unit groups and their embedding.

    Args:
        embedding_dim: Units of all groups together, D; each group has
            d = D // P.
        num_groups: Number of groups, P.
        grouping: A letter in `GROUPINGS`.
        key_dim: Units of keys and queries of A-grouping, by default C / 8.
        **kwargs: As for `Head`. A-grouping has no use for `pooling`.

    Call arguments:
        features: (B, h, w, C).

    Returns:
        `"parts"`: (B, P, d) unit groups. `"embedding"`: (B, P·d), the
        groups side by side, divided by √P, hence unit. For A- and
        G-grouping also `"attention"`: (B, h, w, P), see `Grouping`.
        float32.

    Raises:
        ValueError: If `grouping` is unknown, `key_dim` is given to
            another than A, or N-grouping is asked for several groups.
    """

    def __init__(
        self,
        embedding_dim: int,
        num_groups: int,
        grouping: str = "A",
        key_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _check_grouping(grouping, num_groups, key_dim)
        self.grouping = grouping
        self.embedding_dim = embedding_dim
        self.num_groups = num_groups
        self.key_dim = key_dim
        module = GROUPINGS[grouping]
        arguments: Config = {"name": "module", "dtype": self.dtype_policy}
        if issubclass(module, PooledGrouping):
            arguments["pooling"] = self.pooling
        else:
            arguments["key_dim"] = key_dim
        self.module = module(embedding_dim, num_groups, **arguments)

    def build(self, features_shape: Shape) -> None:
        self.module.build(features_shape)

    def call(self, features: Tensor) -> dict[str, Tensor]:
        # Not pooled: the modules need all positions.
        if self.module.has_attention:
            groups, scores = self.module(features, return_attention_scores=True)
            attention = {"attention": scores}
        else:
            groups, attention = self.module(features), {}
        parts = ops.normalize(groups, axis=-1, epsilon=1e-12)
        flat = ops.reshape(parts, (-1, self.num_groups * self.module.group_dim))
        embedding = flat / math.sqrt(self.num_groups)
        return {"embedding": embedding, "parts": parts, **attention}

    def compute_output_shape(self, features_shape: Shape) -> dict[str, Shape]:
        batch, dim = features_shape[0], self.module.group_dim
        shapes: dict[str, Shape] = {
            "embedding": (batch, self.num_groups * dim),
            "parts": (batch, self.num_groups, dim),
        }
        if self.module.has_attention:
            shapes["attention"] = (*features_shape[:3], self.num_groups)
        return shapes


def _check_grouping(
    grouping: str, num_groups: int, key_dim: int | None
) -> None:
    check_choice("attentive_grouping", "grouping", grouping, GROUPINGS)
    if grouping == "N" and num_groups != 1:
        raise ValueError(
            "`num_groups` of attentive_grouping must be 1 with N-grouping, "
            f"which is no grouping. Received: num_groups={num_groups}. "
            'Use "M" for several linear groups.'
        )
    if grouping != "A" and key_dim is not None:
        raise ValueError(
            "`key_dim` of attentive_grouping is for A-grouping, the only one "
            f"with keys. Received: key_dim={key_dim}, "
            f"grouping={grouping!r}. Leave it out."
        )
