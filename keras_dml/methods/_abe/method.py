"""ABE: one embedding network, M learners that attend to different parts."""

from typing import Any, Literal, TypeAlias, get_args

import keras

from keras_dml import backbones, losses
from keras_dml.backbones import splitting
from keras_dml.layers import AttentionEnsemble
from keras_dml.losses.base import LossLike
from keras_dml.methods._abe.branches import (
    context_network,
    find_layer,
    stacked_copies,
)
from keras_dml.methods._abe.objective import DivergentObjective, Pairs
from keras_dml.methods.declaration import Arguments, Traits, Uses, declare
from keras_dml.model.head import Head
from keras_dml.model.metric_model import MetricModel
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.serialization import register
from keras_dml.utils.types import (
    Config,
    Count,
    NonNegative,
    Pooling,
    Positive,
    Shape,
    Tensor,
)

Variant: TypeAlias = Literal["abe", "heads", "heads_attention", "tails"]
# Eq. 10: the sum over all pairs, divided by B.
PAPER_LOSS = {"name": "contrastive", "reduction": "sum_over_pairs"}
VARIANTS: tuple[Variant, ...] = get_args(Variant)


@register
class EnsembleHead(Head):
    """The map S(x) → `AttentionEnsemble` → embedding and its parts.

    Args:
        ensemble: The layer. It pools where the paper does, within G.
        **kwargs: As for `Head`.

    Call arguments:
        features: As the ensemble takes them, (B, h, w, C) or (B, h, w, M·C).

    Returns:
        `{"embedding": (B, D), "parts": (B, M, D / M)}`: unit embedding and
        the learners' unit embeddings, float32; with attention also
        `"attention"`, the masks, (B, M, h, w, C).
    """

    def __init__(self, ensemble: AttentionEnsemble, **kwargs: Any) -> None:
        super().__init__(pooling=ensemble.pooling, **kwargs)
        self.ensemble = ensemble

    def build(self, features_shape: Shape) -> None:
        self.ensemble.build(features_shape)

    def call(self, features: Tensor) -> dict[str, Tensor]:
        if self.ensemble.has_attention:
            parts, masks = self.ensemble(features, return_attention_scores=True)
            attention = {"attention": masks}
        else:
            parts, attention = self.ensemble(features), {}
        embedding = self.ensemble.merge(parts)
        return {"embedding": embedding, "parts": parts, **attention}

    def compute_output_shape(self, features_shape: Shape) -> dict[str, Shape]:
        parts = self.ensemble.compute_output_shape(features_shape)
        shapes = {
            "embedding": (parts[0], self.ensemble.embedding_dim),
            "parts": parts,
        }
        if self.ensemble.has_attention:
            shapes["attention"] = (*parts[:2], *features_shape[1:])
        return shapes

    def get_config(self) -> Config:
        config = super().get_config()
        del config["pooling"]
        # Not a serialized layer: that would be built when it is restored,
        # before it is known to be in this head, and name its weights so.
        config["ensemble"] = self.ensemble.get_config()
        return config

    @classmethod
    def from_config(cls, config: Config) -> "EnsembleHead":
        ensemble = AttentionEnsemble.from_config(config["ensemble"])
        return cls(**{**config, "ensemble": ensemble})


def _pairs(method: Arguments, batches: Arguments) -> Arguments:
    """A batch of pairs has as many images as one of whole classes."""
    return {
        "num_pairs": batches["classes_per_batch"]
        * batches["images_per_class"]
        // 2,
        "steps_per_epoch": batches["steps_per_epoch"],
    }


def _are_constructed(pairs: str, method: Arguments) -> None:
    if pairs == "constructed" and not method.get("pair_batches"):
        raise ValueError("needs `pair_batches: true`")


@declare(
    "abe",
    "one network, learners that each see the image through a mask of their own",
    Traits(
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
    embedding_dim: Count = 512,
    num_learners: Count = 8,
    loss: LossLike = PAPER_LOSS,
    branch: str | None = None,
    attention_end: str | None = None,
    variant: Variant = "abe",
    divergence: bool | None = None,
    divergence_margin: Positive = 1.0,
    pairs: Pairs = "all",
    tail_noise: NonNegative = 0.1,
    pooling: Pooling = "avg",
    **kwargs: Any,
) -> MetricModel:
    """Attention-based Ensemble, ABE-M (Kim et al., 2018).

    What it computes: the backbone up to a branching point is S. Each of M
    learners multiplies the map S(x) by a mask of its own,
    A_m(S(x)) = sigmoid(A'_m(C(S(x)))), and all embed the masked maps by the
    same network G: the rest of the backbone, pooling and one dense layer.
    A metric loss trains every learner's unit embedding, the divergence
    loss keeps the learners' embeddings of one image apart. The embedding
    is all of them side by side, divided by √M.

    The model's `backbone` is S, and C, A'_m and G are its `head`. In
    `rate_multipliers`, "backbone" is S, "/trunk_" the layers of G and
    "/attention/" those of C that come from the backbone;
    "/projection_" and "/mask_" are what starts from scratch.

    Args:
        backbone: A name or path for `backbones.get`, or the Keras model
            that it returns, from images (B, H, W, C) to features.
        embedding_dim: Dimensions of the whole embedding, D; M divides it.
        num_learners: Number of learners, M.
        loss: The loss of every learner: a loss of `keras_dml.losses`, or
            its name, or its config. The default is that of Eq. 10.
        branch: Name of the backbone's layer whose output is S(x). The
            default is known for "googlenet" (as in the paper),
            "torchvision_googlenet", "bn_inception", "resnet50" and
            "small_convnet".
        attention_end: Name of the layer with which C, the copy of the
            layers after `branch`, ends. Default as for `branch`.
        variant: "abe"; "heads": M copies of G and no attention;
            "heads_attention": M copies of G, with attention; "tails": M
            copies of S, one G, no attention (Tables 1 and 8).
        divergence: Whether to train with the divergence loss, whose weight
            λ_div is `loss_weights["divergence"]`, 1 by default. None: as in
            the paper, for "abe" and "tails" with two or more learners.
        divergence_margin: m_div, a squared distance.
        pairs: "all" pairs of a batch, or those "constructed" by
            `data.PairSampler`, an anchor and its own partner.
        tail_noise: Gaussian noise on the kernels of all tails but the
            first, relative to the standard deviation of each kernel.
        pooling: "avg" or "max", within G.
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel` that is built and waits for `compile`.

    Raises:
        ValueError: If `variant` or `pairs` is unknown, if the backbone
            cannot be cut as asked, or if M does not divide D.

    Deviations:
        - The paper leaves the reductions open. The metric loss runs over
          all ordered pairs i ≠ j, divided by the batch size; divergence
          over the unordered pairs of learners, averaged over the batch.
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
    check_choice("abe", "variant", variant, VARIANTS)
    whole = backbones.get(backbone)
    branch = find_layer(whole, "branch", branch)
    lower = splitting.lower_part(whole, branch)
    attention = None
    if variant in ("abe", "heads_attention"):
        attention = context_network(whole, branch, attention_end)
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
            pairs=pairs,
            name="objective",
        ),
        **kwargs,
    )
