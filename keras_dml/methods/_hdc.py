"""HDC: a cascade of embeddings, each trained on the pairs left to it."""

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import keras
from keras import ops

from keras_dml import backbones, losses
from keras_dml.backbones import splitting
from keras_dml.layers import FeaturePooling
from keras_dml.losses.base import LossLike
from keras_dml.losses.distances import inner_product
from keras_dml.losses.pairs import pair_masks
from keras_dml.methods.declaration import Traits, declare
from keras_dml.model.head import Head, Linear
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import LossObjective
from keras_dml.utils.arguments import check_count, check_divisible
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.models import ModelTemplate
from keras_dml.utils.serialization import register
from keras_dml.utils.types import (
    Config,
    Pooling,
    Shape,
    Shapes,
    Share,
    Tensor,
    Tensors,
    Units,
)

BRANCHES = {
    "bn_inception": ("inception_4a_output", "inception_4d_output"),
    "googlenet": ("inception_4a_output", "inception_4d_output"),
    "resnet50": ("conv3_block4_out", "conv4_block6_out"),
    "small_convnet": ("relu_1", "relu_2"),
    "torchvision_googlenet": ("inception4a_output", "inception4d_output"),
}
"""Where three models branch off, by name of the backbone."""


@register
class CascadeHead(Head):
    """A map → K embeddings of increasing depth → their concatenation.

    Model 1 pools and embeds the map itself; every further model first runs the
    next of `stages` on the map of the one before.

    Args:
        stages: K − 1 functional models: the rest of the backbone, in pieces.
            The head makes its own copies, which start from the same weights.
        embedding_dim: Dimensions of the whole embedding, D; each model has
            d = ⌊D / K⌋ of them, which `hdc` takes only where K divides D.
        **kwargs: See `Head`.

    Call arguments:
        features: The features at the first branch, (B, h, w, C) or (B, T, C).
        mask: Must be None: stages would not see which positions count.

    Returns:
        `{"embedding": (B, K·d), "parts": (B, K, d)}`: the concatenated unit
        embeddings divided by √K, and the unit embeddings, float32.

    Raises:
        ValueError: If D is less than K, or the features have a mask.
    """

    is_plain = False  # Files of models have it as one layer.

    def __init__(
        self,
        stages: Sequence[keras.Model],
        embedding_dim: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_models = len(stages) + 1
        self.embedding_dim = check_count(
            "hdc", "embedding_dim", embedding_dim, minimum=self.num_models
        )
        self._templates = [ModelTemplate(stage) for stage in stages]
        dtype = self.dtype_policy
        models = range(1, self.num_models + 1)
        self.pools = [
            FeaturePooling(self.pooling, dtype=dtype, name=f"pool_{k}")
            for k in models
        ]
        self.denses = [
            keras.layers.Dense(
                embedding_dim // self.num_models, dtype=dtype, name=f"dense_{k}"
            )
            for k in models
        ]

    def build(self, features_shape: Shape) -> None:
        self.stages = [
            template.copy(f"stage_{k}")
            for k, template in enumerate(self._templates, start=2)
        ]
        shapes = [features_shape, *(x.output_shape for x in self.stages)]
        for pool, dense, shape in zip(
            self.pools, self.denses, shapes, strict=True
        ):
            pool.build(shape)
            dense.build((None, shape[-1]))
        for template in self._templates:
            template.forget()

    def linear_layers(self) -> list[Linear]:
        return [Linear.of(dense) for dense in self.denses]

    def linear_inputs(
        self, features: Tensor, mask: Tensor | None = None
    ) -> list[Tensor]:
        maps = [features]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        return [pool(x) for pool, x in zip(self.pools, maps, strict=True)]

    def call(self, features: Tensor, mask: Tensor | None = None) -> Tensors:
        if mask is not None:
            raise ValueError(
                "hdc cannot branch in a sequence with a mask, because the "
                "layers after the branch would not see it. Received: features "
                f"of shape {features.shape} with a mask. For texts, use "
                "another method, such as bier."
            )
        pooled = self.linear_inputs(features)
        parts = ops.stack(
            [dense(x) for dense, x in zip(self.denses, pooled, strict=True)],
            axis=1,
        )
        parts = l2_normalize(parts)  # (B, K, d)
        flat = ops.reshape(parts, (-1, self.num_models * parts.shape[2]))
        embedding = flat / math.sqrt(self.num_models)
        return {"embedding": embedding, "parts": parts}

    def get_config(self) -> Config:
        return {
            **self.serialized_arguments(without=("stages",)),
            **keras.layers.Layer.get_config(self),
            "stages": [template.config for template in self._templates],
        }

    @classmethod
    def from_config(cls, config: Config) -> "CascadeHead":
        # A copy, because Keras takes configs of models apart.
        stages = [
            keras.saving.deserialize_keras_object(copy.deepcopy(stage))
            for stage in config["stages"]
        ]
        return cls(**{**config, "stages": stages})


@register
class CascadeObjective(LossObjective):
    """Each model's loss on the pairs that the models before it found hard.

    Model 1 is trained on all pairs of a batch. Model k is trained on the
    hardest of the pairs that model k − 1 was trained on, according to model
    k − 1: the positive pairs with the smallest and the negative pairs with the
    largest cosine. Their numbers are a share h_k of all positive and of all
    negative pairs of the batch.

    Args:
        loss: The loss of every model, on pairs or triplets. If it owns
            variables, every model has its own.
        hard_shares: h, one share per model, from 1 downwards.
        **kwargs: See `Objective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, K, d).
        targets: Dict with `"label"`, (B,).

    Returns:
        `{"metric": (B,)}`, the sum over models; with several losses, each under
        its own name.

    Raises:
        ValueError: If the loss is not computed from pairs of examples, or
            `hard_shares` are not as described.
    """

    def __init__(
        self,
        loss: losses.MetricLoss,
        hard_shares: Sequence[float],
        **kwargs: Any,
    ) -> None:
        super().__init__(loss, **kwargs)
        if not self.loss.weights_pairs:
            raise ValueError(
                "`loss` of hdc must be computed from pairs of examples, of "
                f"which models choose the hardest. Received: {self.loss!r}. "
                'Use, for example, "contrastive" or "binomial_deviance".'
            )
        self.hard_shares = list(hard_shares)
        falls = all(a >= b > 0 for a, b in pairwise(self.hard_shares))
        if not hard_shares or hard_shares[0] != 1 or not falls:
            raise ValueError(
                "`hard_shares` of hdc must be shares of the pairs for each "
                "model, 1 for the first and none larger than the one before. "
                f"Received: hard_shares={self.hard_shares!r}. Use "
                "(1.0, 0.5, 0.2)."
            )
        self.split_terms()

    def build(self, outputs_shape: Shapes) -> None:
        self.build_parts(outputs_shape, name="model")

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        labels = targets["label"]
        parts = outputs["parts"]
        total = dict.fromkeys(self.loss_terms, 0.0)
        masks = hard_pairs(labels, parts, self.hard_shares)
        for k, (loss, mask) in enumerate(
            zip(self.part_losses, masks, strict=True)
        ):
            values = loss.term_values(labels, parts[:, k], mask=mask)
            total = {term: total[term] + values[term] for term in total}
        return total


def hard_pairs(
    labels: Tensor, parts: Tensor, shares: Sequence[float]
) -> list[Tensor]:
    """The pairs that each model of a cascade is trained on: K (B, B) masks.

    Each is a subset of the one before, by the models' unit embeddings, (B, K,
    d), through which no gradient passes.
    """
    of_kind = pair_masks(labels)
    counts = [ops.sum(ops.cast(mask, "float32")) for mask in of_kind]
    masks = [ops.logical_or(*of_kind)]
    for k, share in enumerate(shares[1:]):
        cosine = inner_product(ops.stop_gradient(parts[:, k]))
        hard_masks = [
            hardest(difficulty, ops.logical_and(mask, masks[-1]), share * count)
            for difficulty, mask, count in zip(
                (-cosine, cosine), of_kind, counts, strict=True
            )
        ]
        masks.append(ops.logical_or(*hard_masks))
    return masks


def hardest(difficulty: Tensor, mask: Tensor, count: Tensor) -> Tensor:
    """The `count` most difficult entries of a mask, rounded up, with ties."""
    lowest = -1e9
    candidates = ops.where(mask, difficulty, lowest)
    ascending = ops.sort(ops.reshape(candidates, (-1,)))
    # Rounding of a share in float32 must not add one more.
    number = ops.cast(ops.ceil(count - 1e-3), "int32")
    place = ops.shape(ascending)[0] - ops.maximum(number, 1)
    return ops.logical_and(mask, candidates >= ops.take(ascending, place))


@declare(
    "hdc",
    "embeddings of growing depth, each trained on the pairs that those before "
    "it find hard",
    Traits(part="model"),
    examples={
        "embedding_dim": 12,
        "branches": ["relu_0"],
        "hard_shares": [1.0, 0.4],
        "pooling": "max",
        "rate_multipliers": {"backbone|/stage_": 0.5},
    },
)
def hdc(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 384,
    branches: tuple[str, ...] | None = None,
    hard_shares: tuple[Share, ...] = (1.0, 0.5, 0.2),
    loss: LossLike = "contrastive",
    pooling: Pooling = "avg",
    **kwargs: Any,
) -> MetricModel:
    r"""Hard-Aware Deeply Cascaded embedding, HDC (Yuan et al., 2017).

    What it computes: K models of increasing depth share their lower layers.
    Model k branches off the backbone after its k-th branch, pools and embeds;
    the last one uses the whole backbone. All pairs of a batch train the first
    model. Those that it finds hard train the second model, and so on: easy
    pairs only train the shallow models, hard ones the deep models, too. The
    embedding is the concatenation of all unit embeddings, divided by √K:

    $$
    \mathcal{L} = \sum_k \mathcal{L}_{metric}(x^{(k)}; P_k) , \qquad
    P_1 \supseteq P_2 \supseteq \dots \supseteq P_K ,
    $$

    with the unit embedding $x^{(k)}$ of model k, all pairs $P_1$, and the
    pairs $P_k$ of $P_{k-1}$ that are hardest for model k − 1: a share $h_k$ of
    all positive and of all negative pairs.

    The lower layers are the model's `backbone`; the layers above the first
    branch are in its `head`. In `rate_multipliers`, "backbone" matches the
    former, "/stage_" the latter, and "/dense_" the new layers.

    Args:
        backbone: See `baseline`.
        embedding_dim: Dimensions of the whole embedding, which K models share
            equally; K must divide them.
        branches: Names of K − 1 layers of the backbone, from below to above,
            after which models branch off. The default is known for three
            models on "googlenet" (as in the release), "torchvision_googlenet",
            "bn_inception", "resnet50" and "small_convnet". For others, the
            error message lists the branch points.
        hard_shares: h, one per model: the shares of the pairs of a batch that
            each is trained on, from 1 downwards.
        loss: The loss of every model, see `baseline`, on pairs or triplets.
        pooling: See `Head`: "avg", "max", "gem", "cls" or "none".
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`.

    Raises:
        ValueError: If the backbone cannot be cut as requested, or an argument
            is not as described.

    Deviations:
        - The paper ranks pairs by their loss. Here they are ranked by cosine,
          which is the same for a loss that is monotonic in the distance.
        - In the released code, each model ranks the pairs by its own distances,
          not by those of the model before.
        - The released code has one mean over pairs of both kinds, in which
          negatives weigh ten times as much: `loss={"name": "contrastive",
          "joint": True, "negative_weight": 10.0}`.
        - Branches are pooled as the last model is. The release has a 1×1
          convolution and a dense layer of 1,024 units with dropout before the
          embedding of the lower branches, the auxiliary classifiers of
          GoogLeNet.

    Reference:
        Yuan et al., "Hard-Aware Deeply Cascaded Embedding", ICCV 2017,
        https://arxiv.org/abs/1611.05720.
    """
    whole = backbones.get(backbone)
    names = branches or BRANCHES.get(whole.name)
    if not names:
        points = splitting.cut_points(whole)
        raise ValueError(
            "`branches` of hdc must name layers of a backbone other than "
            f"{tuple(BRANCHES)}. Received: branches={branches!r} with backbone "
            f"{whole.name!r}. Its branch points are {', '.join(points)}. Use, "
            "for example, the outputs of the second and third to last stages."
        )
    if len(hard_shares) != len(names) + 1:
        raise ValueError(
            "`hard_shares` of hdc must be one more than the branches, "
            f"{list(names)}. Received: hard_shares={hard_shares!r}. Use one "
            "share per branch, and one for the whole backbone."
        )
    check_divisible(
        "hdc", embedding_dim, "the number of its models", len(hard_shares)
    )
    ends = [*names[1:], None]
    return MetricModel(
        backbone=splitting.lower_part(whole, names[0]),
        head=CascadeHead(
            [
                splitting.copy_between(whole, start, end)
                for start, end in zip(names, ends, strict=True)
            ],
            embedding_dim,
            pooling=pooling,
            name="head",
        ),
        objective=CascadeObjective(
            losses.get(loss), hard_shares, name="objective"
        ),
        **kwargs,
    )
