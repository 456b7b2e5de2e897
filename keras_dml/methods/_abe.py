"""ABE: one embedding network, M learners that attend to different parts."""

from typing import Any, Literal, TypeAlias

import keras
from keras import ops

from keras_dml import backbones, losses
from keras_dml.backbones import splitting
from keras_dml.backbones.networks import known_branches
from keras_dml.backbones.splitting import side_by_side
from keras_dml.layers import AttentionEnsemble
from keras_dml.losses.base import LossLike
from keras_dml.losses.pairs import IGNORE
from keras_dml.losses.regularizers import divergence
from keras_dml.methods.declaration import Arguments, Traits, Uses, declare
from keras_dml.model.head import Head, Linear
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import LossObjective
from keras_dml.utils.models import copy_model
from keras_dml.utils.serialization import register
from keras_dml.utils.types import (
    NonNegative,
    Pooling,
    Positive,
    Reduction,
    Shape,
    Shapes,
    Tensor,
    Tensors,
    Units,
)

Pairs: TypeAlias = Literal["all", "constructed"]
Variant: TypeAlias = Literal["abe", "heads", "heads_attention", "tails"]

# Eq. 10: the sum over all pairs, divided by B.
PAPER_LOSS = {"name": "contrastive", "reduction": "sum_over_pairs"}


@register
class EnsembleHead(Head):
    """The map S(x) → `AttentionEnsemble` → the embedding and its parts.

    Args:
        ensemble: The layer. It pools inside G, as in the paper.
        **kwargs: See `Head`.

    Call arguments:
        features: Features in the form that the ensemble takes: (B, h, w, C),
            (B, T, C), or with M·C channels.
        mask: Must be None: an ensemble cannot tell which of its tokens count.

    Returns:
        `{"embedding": (B, D), "parts": (B, M, D / M)}`: the unit embedding and
        the learners' unit embeddings, float32; with attention also
        `"attention"`, the masks, (B, M, h, w, C) or (B, M, T, C).

    Raises:
        ValueError: If the features have a mask.
    """

    def __init__(self, ensemble: AttentionEnsemble, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ensemble = ensemble
        self.pooling = ensemble.pooling  # Within G.

    def build(self, features_shape: Shape) -> None:
        self.ensemble.build(features_shape)

    def linear_layers(self) -> list[Linear]:
        # A projection of all learners spans as many dimensions as one of them.
        projections = self.ensemble.projections
        return [Linear.of(*projections, is_rotated=len(projections) > 1)]

    def linear_inputs(
        self, features: Tensor, mask: Tensor | None = None
    ) -> list[Tensor]:
        return [self.ensemble.pooled(features)]

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensors:
        if mask is not None:
            raise ValueError(
                "abe cannot branch in a sequence with a mask, because the "
                "layers after the branch would not see it. Received: features "
                f"of shape {features.shape} with a mask. For texts, use "
                "another method, such as attentive_grouping."
            )
        if not self.ensemble.has_attention:
            parts = self.ensemble(features)
            return {"embedding": self.ensemble.merge(parts), "parts": parts}
        parts, attention = self.ensemble(features, return_attention_scores=True)
        embedding = self.ensemble.merge(parts)
        return {"embedding": embedding, "parts": parts, "attention": attention}


@register
class DivergentObjective(LossObjective):
    """The learners' losses, and a term that keeps the learners apart (Eq. 8).

    "metric" is Σ_m L_metric,(m); "divergence" is Eq. 9.

    Args:
        loss: The loss of every learner. If it owns variables, every learner
            has its own.
        diverge: Whether there is a divergence term.
        divergence_margin: See `abe`.
        divergence_reduction: See `abe`.
        pairs: See `abe`. With "constructed", the batch is `[anchors,
            partners]`, and an anchor forms a pair only with its own partner.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, M, d).
        targets: Dict with `"label"`, (B,).

    Returns:
        `{"metric": (B,), "divergence": (B,)}`, the latter only if `diverge`;
        with several losses, each under its own name.

    Raises:
        ValueError: If `pairs` is unknown, or if it is "constructed" and the
            batch size is odd.
    """

    def __init__(
        self,
        loss: losses.MetricLoss,
        diverge: bool = True,
        divergence_margin: float = 1.0,
        divergence_reduction: Reduction = "mean",
        pairs: Pairs = "all",
        **kwargs: Any,
    ) -> None:
        super().__init__(loss, **kwargs)
        self.pairs = pairs
        self.diverge = diverge
        self.divergence_margin = divergence_margin
        self.divergence_reduction = divergence_reduction
        self.terms = ("metric", "divergence") if diverge else ("metric",)
        self.split_terms()

    def build(self, outputs_shape: Shapes) -> None:
        self.build_parts(outputs_shape)

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        parts = outputs["parts"]
        labels = targets["label"]
        if self.pairs == "constructed":
            labels = constructed_pairs(labels)
        by_term = self.part_terms(labels, parts)
        values = {term: sum(each) for term, each in by_term.items()}
        if self.diverge:
            values["divergence"] = divergence(
                parts, self.divergence_margin, self.divergence_reduction
            )
        return values


def constructed_pairs(labels: Tensor) -> Tensor:
    """The relation matrix of a batch `[anchors, partners]`, (B, B).

    Where two images are partners, i and i + B / 2, it is 1 if they have the
    same class and 0 if not; −1 elsewhere.
    """
    if len(labels.shape) != 1:
        raise ValueError(
            '`pairs="constructed"` of abe requires one class per image. '
            f"Received: labels of shape {tuple(labels.shape)}. Use "
            'pairs="all".'
        )
    size = labels.shape[0]
    if size is not None and size % 2:
        raise ValueError(
            '`pairs="constructed"` of abe requires batches [anchors, '
            "partners]. "
            f"Received: a batch of {size}. Use batches of a "
            'data.PairSampler, or pairs="all".'
        )
    count = ops.shape(labels)[0]
    rows = ops.arange(count)
    partner = (rows + count // 2) % count
    is_pair = ops.equal(partner[:, None], rows[None, :])
    same_class = ops.equal(labels[:, None], labels[None, :])
    return ops.where(is_pair, ops.cast(same_class, "int32"), IGNORE)


def _pairs(method: Arguments, batches: Arguments) -> Arguments:
    size = batches["classes_per_batch"] * batches["images_per_class"]
    steps = batches["steps_per_epoch"]
    return {"num_pairs": size // 2, "steps_per_epoch": steps}


def _are_constructed(pairs: str, method: Arguments) -> None:
    if pairs == "constructed" and not method.get("pair_batches"):
        raise ValueError("needs `pair_batches: true`")


@declare(
    "abe",
    "several learners in one network, each with its own attention mask",
    Traits(
        figures=(
            "attention_overlays",
            "strongest_attention",
            "attention_masks",
        ),
        options={"pair_batches": False},
        sampler=Uses(
            "PairSampler", arguments=_pairs, only_with=("pair_batches", True)
        ),
        checks={"pairs": _are_constructed},
    ),
    examples={
        "num_learners": 2,
        "branch": "relu_0",
        "attention_end": "relu_1",
        "divergence_margin": 1.5,
        "pooling": "max",
        "loss_weights": {"divergence": 0.5},
        "rate_multipliers": {"backbone|/trunk_": 0.5},
    },
)
def abe(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 512,
    num_learners: Units = 8,
    loss: LossLike = PAPER_LOSS,
    branch: str | None = None,
    attention_end: str | None = None,
    variant: Variant = "abe",
    divergence: bool | None = None,
    divergence_margin: Positive = 1.0,
    divergence_reduction: Reduction = "mean",
    pairs: Pairs = "all",
    tail_noise: NonNegative = 0.1,
    pooling: Pooling = "avg",
    **kwargs: Any,
) -> MetricModel:
    r"""Attention-based Ensemble, ABE-M (Kim et al., 2018).

    What it computes: the part of the backbone up to a branching point is S.
    Each of M learners multiplies the map S(x) by its own mask, $A_m(S(x)) =
    \sigma(A'_m(C(S(x))))$, and all learners embed the masked maps with the
    same network G: the rest of the backbone, pooling and one dense layer. A
    metric loss trains the unit embedding of every learner, and the divergence
    loss keeps the learners' embeddings of the same image apart. The embedding
    is the concatenation of all of them, divided by √M. With $B_m(x)$ the unit
    embedding of learner m, the objective for each image is (Eq. 8 and 9)

    $$
    \mathcal{L} = \sum_m \mathcal{L}_{metric}(B_m) + \lambda_{div}
    \sum_{p < q} \left[ m_{div} - \| B_p(x) - B_q(x) \|^2 \right]_+ .
    $$

    S is the model's `backbone`; C, $A'_m$ and G are its `head`. In
    `rate_multipliers`, "backbone" matches S, "/trunk_" the layers of G and
    "/attention/" those layers of C that come from the backbone; "/projection_"
    and "/mask_" match layers that start from random weights.

    Args:
        backbone: See `baseline`.
        embedding_dim: Dimensions of the whole embedding, D, a multiple of M.
        num_learners: Number of learners, M.
        loss: The loss of every learner, see `baseline`. The default is that of
            Eq. 10.
        branch: Name of the backbone layer whose output is S(x). The default is
            known for "googlenet" (as in the paper), "torchvision_googlenet",
            "bn_inception", "resnet50" and "small_convnet". For others, the
            error message lists the branch points. Those of the image towers of
            CLIP and SigLIP are their blocks; ViT and DINO of KerasHub have
            none, because all of their blocks are in one layer.
        attention_end: Name of the last layer of C, which is a copy of the
            layers after `branch`. The default is known for the same backbones.
        variant: "abe"; "heads": M copies of G and no attention;
            "heads_attention": M copies of G, with attention; "tails": M copies
            of S, one G, no attention (Tables 1 and 8).
        divergence: Whether to train with the divergence loss, whose weight
            λ_div is `loss_weights["divergence"]`, 1 by default. None follows
            the paper: yes for "abe" and "tails" with two or more learners.
        divergence_margin: m_div, a squared distance.
        divergence_reduction: "mean", or "sum" as printed in Eq. 9, which is 2B
            times as large for a batch of B images: see
            `losses.regularizers.divergence`.
        pairs: "all" pairs of a batch, or those "constructed" by
            `data.PairSampler`, an anchor and its own partner.
        tail_noise: Gaussian noise on the kernels of all tails but the first,
            relative to the standard deviation of each kernel.
        pooling: Pooling inside G, see `layers.FeaturePooling`.
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`.

    Raises:
        ValueError: If `variant` or `pairs` is unknown, if the backbone cannot
            be cut as requested, or if D is not a multiple of M.

    Deviations:
        - The metric loss covers all ordered pairs i ≠ j, divided by the batch
          size. The divergence covers the unordered pairs of learners, averaged
          over the batch, whereas Eq. 9 prints ordered pairs without 1/N:
          `divergence_reduction="sum"`.
        - Masks "from 0 to 1" are computed with a sigmoid.
        - "We remove all the pooling layers in our attention module" is applied
          to layers that halve the map, so that masks fit it. Pooling layers
          within an Inception module preserve the map's size and are kept.
          Strided convolutions of other backbones lose their strides.
        - The paper does not say what makes tails differ. Identical copies of S
          under one G get identical gradients and stay identical; `tail_noise`
          prevents this.
        - The dropout before GoogLeNet's classifier is omitted.
        - Under mixed precision, masks and their products with the map are
          float32; inside C and G, every layer keeps its policy.

    Reference:
        Kim et al., "Attention-based Ensemble for Deep Metric Learning", ECCV
        2018, https://arxiv.org/abs/1804.00382.
    """
    whole = backbones.get(backbone)
    branch = _layer(whole, "branch", branch)
    lower = splitting.lower_part(whole, branch)
    attention = None
    if variant in ("abe", "heads_attention"):
        end = _layer(whole, "attention_end", attention_end)
        attention = splitting.without_downsampling(
            splitting.copy_between(whole, branch, end)
        )
    ensemble = AttentionEnsemble(
        splitting.copy_between(whole, branch),
        attention,
        embedding_dim,
        num_learners,
        shared=variant in ("abe", "tails"),
        stacked=variant == "tails",
        pooling=pooling,
        name="ensemble",
    )
    if variant == "tails":
        lower = stacked_copies(lower, num_learners, tail_noise)
    if divergence is None:
        divergence = ensemble.shared and num_learners > 1
    return MetricModel(
        backbone=lower,
        head=EnsembleHead(ensemble, name="head"),
        objective=DivergentObjective(
            losses.get(loss),
            diverge=divergence,
            divergence_margin=divergence_margin,
            divergence_reduction=divergence_reduction,
            pairs=pairs,
            name="objective",
        ),
        **kwargs,
    )


def _layer(backbone: keras.Model, argument: str, layer: str | None) -> str:
    """The layer named by an argument of abe, or the backbone's default."""
    if layer is not None:
        return layer
    branches = known_branches()
    if backbone.name not in branches:
        raise ValueError(
            f"`{argument}` of abe must name a layer of a backbone other than "
            f"{tuple(branches)}. Received: {argument}=None with backbone "
            f"{backbone.name!r}. {_branch_points(backbone)}"
        )
    branch, attention_end = branches[backbone.name]
    return branch if argument == "branch" else attention_end


def _branch_points(backbone: keras.Model) -> str:
    points = splitting.cut_points(backbone)
    if len(points) < 2:
        return (
            f"Its branch points are {points}, but two are needed: its blocks "
            "are inside one layer, or need more than the output of the block "
            "before, such as a mask. Use a backbone whose blocks are separate "
            "layers, such as a convolutional network or the image towers of "
            "CLIP and SigLIP."
        )
    return (
        "Use, for example, the output of the second to last stage as `branch` "
        "and that of the last as `attention_end`. Its branch points are "
        f"{', '.join(points)}."
    )


def stacked_copies(lower: keras.Model, count: int, noise: float) -> keras.Model:
    """M copies of S, (B, H, W, C) → (B, h, w, M·C'), with concatenated maps.

    All copies but the first have Gaussian `noise` on their kernels, relative
    to the standard deviation of each kernel.
    """
    copies = [copy_model(lower, name=f"tail_{m}") for m in range(count)]
    for copy in copies[1:]:
        for variable in copy.trainable_variables:
            if len(variable.shape) > 1:
                scale = noise * ops.std(variable)
                draw = keras.random.normal(variable.shape)
                variable.assign_add(scale * ops.cast(draw, variable.dtype))
    return side_by_side(copies, name=lower.name)
