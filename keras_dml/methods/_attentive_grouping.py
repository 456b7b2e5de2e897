"""Attentive grouping: groups of features that attend to different regions."""

import math
from typing import Any, Literal

import keras
from keras import ops

from keras_dml import backbones, losses
from keras_dml.layers import (
    AttentiveGrouping,
    ChannelGrouping,
    GateGrouping,
    Grouping,
    LinearGrouping,
)
from keras_dml.layers.pooling import average
from keras_dml.losses.base import LossLike
from keras_dml.losses.regularizers import diversity
from keras_dml.methods.declaration import Traits, declare
from keras_dml.model.head import Head, Linear
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import LossObjective
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import register
from keras_dml.utils.types import (
    Config,
    Pooling,
    Reduction,
    Shape,
    Shapes,
    Tensor,
    Tensors,
    Units,
)

SCALES = {"released": 25.0, "paper_table": 1.0}
"""β₀ of the diversity loss, by its source."""

LEARNED_MARGIN = {"name": "margin", "learn_beta": True}

GROUPINGS: dict[str, type[Grouping]] = {
    "A": AttentiveGrouping,
    "N": LinearGrouping,
    "M": LinearGrouping,
    "G": GateGrouping,
    "C": ChannelGrouping,
}
"""The grouping modules, by the letters used in the paper."""


@register
class GroupedHead(Head):
    """Positions → grouping module → P unit groups and their embedding.

    Args:
        embedding_dim: Total number of units of all groups, D; each has d =
            D / P.
        num_groups: Number of groups, P.
        grouping: A letter in `GROUPINGS`.
        key_dim: Units of keys and queries of A-grouping, by default C / 8.
        **kwargs: See `Head`. A-grouping ignores `pooling`.

    Call arguments:
        features: (B, h, w, C) or (B, T, C).
        mask: See `Head`.

    Returns:
        `"parts"`: (B, P, d) unit groups. `"embedding"`: (B, P·d), the
        concatenated groups, divided by √P, and therefore of unit length. For
        A- and G-grouping also `"attention"`: (B, h, w, P) or (B, T, P), see
        `Grouping`. All are float32.

    Raises:
        ValueError: If `grouping` is unknown, if `key_dim` is given for a
            grouping other than A, or if N-grouping is requested with several
            groups.
    """

    def __init__(
        self,
        embedding_dim: int,
        num_groups: int,
        grouping: Literal["A", "N", "M", "G", "C"] = "A",
        key_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if grouping == "N" and num_groups != 1:
            raise ValueError(
                "`num_groups` of attentive_grouping must be 1 with "
                "N-grouping, which does not group. Received: "
                f'num_groups={num_groups}. Use "M" for several linear groups.'
            )
        if grouping != "A" and key_dim is not None:
            raise ValueError(
                "`key_dim` of attentive_grouping must be None unless "
                '`grouping` is "A", the only grouping with keys. '
                f"Received: key_dim={key_dim}, "
                f"grouping={grouping!r}. Omit it."
            )
        self.grouping = grouping
        self.embedding_dim = embedding_dim
        self.num_groups = num_groups
        self.key_dim = key_dim
        arguments: Config = {"name": "module", "dtype": self.dtype_policy}
        if grouping == "A":
            arguments["key_dim"] = key_dim
        else:
            arguments["pooling"] = self.pooling
        module = GROUPINGS[grouping]
        self.module = module(embedding_dim, num_groups, **arguments)

    def build(self, features_shape: Shape) -> None:
        self.module.build(features_shape)

    def linear_layers(self) -> list[Linear]:
        # A kernel of all groups spans as many dimensions as one of them.
        if self.grouping == "A":
            return [Linear([self.module.value_kernel])]
        if self.grouping == "G":  # Random gates destroy features.
            return []
        return [Linear.of(self.module.embed, is_rotated=self.grouping == "M")]

    def linear_inputs(
        self, features: Tensor, mask: Tensor | None = None
    ) -> list[Tensor]:
        if self.grouping == "A":
            return [average(features, mask)]
        return [self.module.pool(features, mask=mask)]

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensors:
        # Features are not pooled, as the modules need all positions.
        attention = {}
        if self.module.has_attention:
            groups, attention["attention"] = self.module(
                features, return_attention_scores=True, mask=mask
            )
        else:
            groups = self.module(features, mask=mask)
        parts = l2_normalize(groups)
        flat = ops.reshape(parts, (-1, self.num_groups * self.module.group_dim))
        embedding = flat / math.sqrt(self.num_groups)
        return {"embedding": embedding, "parts": parts, **attention}


@register
class GroupedObjective(LossObjective):
    """A metric loss on every group, and the diversity of groups (Eq. 14).

    A loss that owns variables is built separately for each group, so there is
    one learned β per group, or one per group and class.

    Args:
        loss: See `LossObjective`.
        scales: β₀ of the diversity loss: "released", 25, or "paper_table", 1.
        diversity_reduction: "mean" over pairs of groups, or "sum": their sum
            divided by P − 1; see `losses.regularizers.diversity`.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, P, d) unit groups.
        targets: Dict with `"label"`, (B,).

    Returns:
        `{"metric": (B,), "diversity": (B,)}`: the mean of the metric loss over
        groups (with several losses, each under its own name), and the
        diversity loss.

    Raises:
        ValueError: If `scales` or `diversity_reduction` is unknown.
    """

    terms = ("metric", "diversity")

    def __init__(
        self,
        loss: losses.MetricLoss,
        scales: Literal["released", "paper_table"] = "released",
        diversity_reduction: Reduction = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(loss, **kwargs)
        self.scales = scales
        self.diversity_reduction = diversity_reduction
        self.split_terms()

    def build(self, outputs_shape: Shapes) -> None:
        self.build_parts(outputs_shape, name="group")

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        parts = outputs["parts"]
        by_term = self.part_terms(targets["label"], parts)
        return {
            **{
                term: ops.mean(ops.stack(values), axis=0)
                for term, values in by_term.items()
            },
            "diversity": diversity(
                parts,
                scale=SCALES[self.scales],
                reduction=self.diversity_reduction,
            ),
        }


@declare(
    "attentive_grouping",
    "groups of features that each attend to their own places in the image",
    Traits(part="group", figures=("attention_overlays", "strongest_attention")),
    examples={
        "num_groups": 2,
        "key_dim": 3,
        "scales": "paper_table",
        "diversity_reduction": "sum",
        "loss_weights": {"diversity": 0.5},
    },
)
def attentive_grouping(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 128,
    num_groups: Units | None = None,
    grouping: Literal["A", "N", "M", "G", "C"] = "A",
    key_dim: Units | None = None,
    loss: LossLike = LEARNED_MARGIN,
    scales: Literal["released", "paper_table"] = "released",
    diversity_reduction: Reduction = "mean",
    loss_weights: dict[str, Any] | None = None,
    pooling: Pooling = "avg",
    **kwargs: Any,
) -> MetricModel:
    r"""Attentive grouping (Xu et al., 2020), and the modules it is compared
    with.

    What it computes: each of P groups has a learned query that attends to the
    positions of the last feature map; the group's features are the mean of the
    values, weighted by its attention. The metric loss is computed on every
    group, and a diversity loss keeps the groups of an image apart. The
    embedding is the concatenation of the unit groups.
    `keras_dml.visualization` can show what each group attends to.

    With the queries $q_i$, and with keys $k_j$ and values $v_j$ at the
    positions j, the groups $g_i$ and the objective are (Eq. 14)

    $$
    g_i = \sum_j a_{ij} v_j , \qquad
    a_{ij} = \operatorname{softmax}_j (q_i^\top k_j) ,
    $$

    $$
    \mathcal{L} = \frac{1}{P} \sum_i \mathcal{L}_{metric}(g_i) +
    \lambda_{div} \, \mathcal{L}_{div}(g_1, \dots, g_P) ,
    $$

    with the diversity loss of `losses.regularizers.diversity`.

    Args:
        backbone: See `baseline`; its features must be a map or tokens. Only
            the tokens that the backbone's mask keeps count: the words of a
            text; the patches of a vision transformer, but not its class token.
            See `layers.TokenMask`.
        embedding_dim: Dimensions of the whole embedding, D; P must divide it.
            Three groups of the paper have 170 each, of D = 510.
        num_groups: Number of groups, P; by default 4, and 1 for N-grouping.
        grouping: "A", attentive; or, for comparison, "N", no grouping; "M",
            linear; "G", gate; "C", channel. See `keras_dml.layers`.
        key_dim: Units of keys and queries, by default C / 8.
        loss: The metric loss of every group, see `baseline`. The default is
            the margin loss with a β learned for each group; for a β per group
            and class, set its `num_classes`.
        scales: "released" or "paper_table", see Deviations.
        diversity_reduction: "mean" or "sum", see `GroupedObjective`.
        loss_weights: See `MetricModel`. λ_div is the weight of "diversity",
            0.01 by default; 0 turns the diversity loss off.
        pooling: See `Head`; for the modules it is compared with. A-grouping
            attends instead of pooling.
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`.

    Deviations:
        - Table 1 prints β₀ = 1 for the binomial deviance loss, which is also
          the diversity loss. The released code uses 25, which is what keeps
          groups apart. `scales="paper_table"` uses the printed value.
        - Eq. 14 averages the diversity loss over pairs of groups; the released
          code divides the sum by P − 1: `diversity_reduction="sum"`.
        - The embedding is divided by √P, so that it has unit length.
        - The paper does not say whether groups share the β of the margin loss;
          as in the released code, they do not.

    Reference:
        Xu et al., "Towards Improved and Interpretable Deep Metric Learning via
        Attentive Grouping", 2020, https://arxiv.org/abs/2011.08877.
    """
    if num_groups is None:
        num_groups = 1 if grouping == "N" else 4
    head = GroupedHead(
        embedding_dim,
        num_groups,
        grouping=grouping,
        key_dim=key_dim,
        pooling=pooling,
        name="head",
    )
    objective = GroupedObjective(
        losses.get(loss),
        scales=scales,
        diversity_reduction=diversity_reduction,
        name="objective",
    )
    return MetricModel(
        backbone=backbones.get(backbone),
        head=head,
        objective=objective,
        loss_weights={"diversity": 0.01, **(loss_weights or {})},
        **kwargs,
    )
