"""ABE: one embedding network, M learners that attend to different parts."""

from typing import Any, Literal, TypeAlias, get_args

import keras
from keras import ops

from keras_dml import backbones, losses
from keras_dml.backbones import splitting
from keras_dml.backbones.networks import known_branches
from keras_dml.layers import AttentionEnsemble
from keras_dml.losses.base import LossLike
from keras_dml.losses.pairs import IGNORE
from keras_dml.losses.regularizers import divergence
from keras_dml.methods.declaration import Arguments, Traits, Uses, declare
from keras_dml.model.head import Head
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import LossObjective
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.model_copy import copy_model
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
    """The map S(x) → `AttentionEnsemble` → embedding and its parts.

    Args:
        ensemble: The layer. It pools where the paper does, within G.
        **kwargs: As for `Head`.

    Call arguments:
        features: As the ensemble takes them, (B, h, w, C), (B, T, C), or
            with M·C channels.
        mask: None: an ensemble does not know which of its tokens count.

    Returns:
        `{"embedding": (B, D), "parts": (B, M, D / M)}`: unit embedding and
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

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensors:
        if mask is not None:
            raise ValueError(
                "abe cannot branch in a sequence with a mask, which the "
                "layers after its branch would not see. Received: features "
                f"of shape {features.shape} with a mask. Use another method, "
                "such as attentive_grouping, for texts."
            )
        attention = {}
        if self.ensemble.has_attention:
            parts, attention["attention"] = self.ensemble(
                features, return_attention_scores=True
            )
        else:
            parts = self.ensemble(features)
        embedding = self.ensemble.merge(parts)
        return {"embedding": embedding, "parts": parts, **attention}


@register
class DivergentObjective(LossObjective):
    """The learners' losses, and a term that keeps them apart (Eq. 8).

    "metric" is Σ_m L_metric,(m); "divergence" is Eq. 9.

    Args:
        loss: The loss of every learner. Where it owns variables, every
            learner has its own.
        diverge: Whether there is a divergence term.
        divergence_margin: As for `abe`.
        divergence_reduction: As for `abe`.
        pairs: As for `abe`. With "constructed" the batch is `[anchors,
            partners]`, and only an anchor and its own partner are a pair.
        **kwargs: As for `Objective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, M, d).
        targets: Dict with `"label"`, (B,).

    Returns:
        `{"metric": (B,), "divergence": (B,)}`, the latter if `diverge`; of
        several losses, each by its name.

    Raises:
        ValueError: If `pairs` is unknown, or if "constructed" pairs are
            asked of a batch of odd size.
    """

    def __init__(
        self,
        loss: losses.MetricLoss,
        diverge: bool = True,
        divergence_margin: float = 1.0,
        divergence_reduction: str = "mean",
        pairs: str = "all",
        **kwargs: Any,
    ) -> None:
        super().__init__(loss, **kwargs)
        self.pairs = check_choice("abe", "pairs", pairs, get_args(Pairs))
        self.diverge = diverge
        self.divergence_margin = divergence_margin
        self.divergence_reduction = check_choice(
            "abe", "divergence_reduction", divergence_reduction,
            get_args(Reduction),
        )  # fmt: skip
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
    """The relation matrix of a batch `[anchors, partners]`.

    Args:
        labels: (B,) class ids. Anchor i has partner i + B / 2.

    Returns:
        (B, B): 1 or 0 where two images are each other's partner, of one
        class or two; −1 elsewhere.

    Raises:
        ValueError: If B is odd.
    """
    if len(labels.shape) != 1:
        raise ValueError(
            '`pairs="constructed"` of abe takes one class for each image. '
            f"Received: labels of shape {tuple(labels.shape)}. Use "
            'pairs="all".'
        )
    size = labels.shape[0]
    if size is not None and size % 2:
        raise ValueError(
            '`pairs="constructed"` of abe takes batches [anchors, partners]. '
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
    """A batch of pairs has as many images as one of whole classes."""
    size = batches["classes_per_batch"] * batches["images_per_class"]
    return {
        "num_pairs": size // 2,
        "steps_per_epoch": batches["steps_per_epoch"],
    }


def _are_constructed(pairs: str, method: Arguments) -> None:
    if pairs == "constructed" and not method.get("pair_batches"):
        raise ValueError("needs `pair_batches: true`")


@declare(
    "abe",
    "one network, learners that each see the image through a mask of their own",
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

    What it computes: the backbone up to a branching point is S. Each of M
    learners multiplies the map S(x) by a mask of its own,
    A_m(S(x)) = sigmoid(A'_m(C(S(x)))), and all embed the masked maps by the
    same network G: the rest of the backbone, pooling and one dense layer.
    A metric loss trains every learner's unit embedding, the divergence
    loss keeps the learners' embeddings of one image apart. The embedding
    is all of them side by side, divided by √M. With $B_m(x)$ the unit
    embedding of learner m, the objective is, for each image (Eq. 8 and 9),

    $$
    \mathcal{L} = \sum_m \mathcal{L}_{metric}(B_m) + \lambda_{div}
    \sum_{p < q} \left[ m_{div} - \| B_p(x) - B_q(x) \|^2 \right]_+ .
    $$

    [The method's page](../methods/abe.md) has a drawing, costs
    and results.

    The model's `backbone` is S, and C, A'_m and G are its `head`. In
    `rate_multipliers`, "backbone" is S, "/trunk_" the layers of G and
    "/attention/" those of C that come from the backbone;
    "/projection_" and "/mask_" are what starts from scratch.

    Args:
        backbone: As for `baseline`.
        embedding_dim: Dimensions of the whole embedding, D; M divides it.
        num_learners: Number of learners, M.
        loss: The loss of every learner, as for `baseline`. The default is
            that of Eq. 10.
        branch: Name of the backbone's layer whose output is S(x). The
            default is known for "googlenet" (as in the paper),
            "torchvision_googlenet", "bn_inception", "resnet50" and
            "small_convnet". For others the error lists the branch points:
            those of CLIP's and SigLIP's image towers are their blocks; ViT
            and DINO of KerasHub have all blocks in one layer, and none.
        attention_end: Name of the layer with which C, the copy of the
            layers after `branch`, ends. Default as for `branch`.
        variant: "abe"; "heads": M copies of G and no attention;
            "heads_attention": M copies of G, with attention; "tails": M
            copies of S, one G, no attention (Tables 1 and 8).
        divergence: Whether to train with the divergence loss, whose weight
            λ_div is `loss_weights["divergence"]`, 1 by default. None: as in
            the paper, for "abe" and "tails" with two or more learners.
        divergence_margin: m_div, a squared distance.
        divergence_reduction: "mean", or "sum" as Eq. 9 prints it, which is
            2B times as much, B the images of a batch: see
            `losses.regularizers.divergence`.
        pairs: "all" pairs of a batch, or those "constructed" by
            `data.PairSampler`, an anchor and its own partner.
        tail_noise: Gaussian noise on the kernels of all tails but the
            first, relative to the standard deviation of each kernel.
        pooling: As for `layers.FeaturePooling`, within G.
        **kwargs: Passed to `MetricModel`.

    Returns:
        As `baseline` does.

    Raises:
        ValueError: If `variant` or `pairs` is unknown, if the backbone
            cannot be cut as asked, or if M does not divide D.

    Deviations:
        - The metric loss runs over all ordered pairs i ≠ j, divided by the
          batch size; divergence over the unordered pairs of learners,
          averaged over the batch, where Eq. 9 prints ordered pairs and no
          1/N: `divergence_reduction="sum"`.
        - Masks "from 0 to 1" are made by a sigmoid.
        - "We remove all the pooling layers in our attention module": those
          that halve the map, so that masks fit it. Those within an
          Inception module keep its size, and stay. Strided convolutions of
          other backbones lose their strides.
        - The paper does not say what makes tails differ. Equal copies of S
          under one G get equal gradients and stay equal: hence
          `tail_noise`.
        - The dropout before GoogLeNet's classifier is left out.
        - Masks and their products with the map are float32 under mixed
          precision; inside C and G every layer keeps its policy.

    Reference:
        Kim et al., "Attention-based Ensemble for Deep Metric Learning", ECCV
        2018, https://arxiv.org/abs/1804.00382.
    """
    check_choice("abe", "variant", variant, get_args(Variant))
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


def _layer(backbone: keras.Model, argument: str, given: str | None) -> str:
    """The layer that an argument of abe names; of a known backbone its own."""
    if given is not None:
        return given
    known = known_branches()
    if backbone.name not in known:
        raise ValueError(
            f"`{argument}` of abe must name a layer of a backbone other than "
            f"{tuple(known)}. Received: {argument}=None with backbone "
            f"{backbone.name!r}. {_branch_points(backbone)}"
        )
    branch, attention_end = known[backbone.name]
    return branch if argument == "branch" else attention_end


def _branch_points(backbone: keras.Model) -> str:
    points = splitting.cut_points(backbone)
    if len(points) < 2:
        return (
            f"Its branch points are {points}, and two are needed: its blocks "
            "are inside of one layer. Use a backbone whose blocks are layers "
            "of their own, such as a convolutional network or the image "
            "towers of CLIP and SigLIP."
        )
    return (
        "Use for instance the output of the second last stage as `branch` "
        "and of the last as `attention_end`. Its branch points are "
        f"{', '.join(points)}."
    )


def stacked_copies(lower: keras.Model, count: int, noise: float) -> keras.Model:
    """M copies of S, (B, H, W, C) → (B, h, w, M·C'), maps side by side.

    All but the first have Gaussian `noise` on their kernels, relative to the
    standard deviation of each.
    """
    inputs = keras.Input(
        batch_shape=lower.input_shape, dtype=lower.inputs[0].dtype, name="image"
    )
    maps = []
    for m in range(count):
        copy = copy_model(lower, name=f"tail_{m}")
        if m > 0:
            _add_noise(copy, noise)
        maps.append(copy(inputs))
    outputs = keras.layers.Concatenate(name="tails")(maps)
    return keras.Model(inputs, outputs, name=lower.name)


def _add_noise(model: keras.Model, noise: float) -> None:
    for variable in model.trainable_variables:
        if len(variable.shape) > 1:
            scale = noise * ops.std(variable)
            draw = keras.random.normal(variable.shape)
            variable.assign_add(scale * ops.cast(draw, variable.dtype))
