"""BIER: groups of growing size, each trained on the errors of earlier ones."""

from collections.abc import Sequence
from itertools import accumulate, combinations, pairwise
from typing import Any, Literal, TypeAlias

import keras
from keras import layers, ops

from keras_dml import backbones, losses
from keras_dml.layers import GradientReversal
from keras_dml.losses import BinomialDevianceLoss
from keras_dml.losses.base import LossLike
from keras_dml.losses.distances import inner_product
from keras_dml.losses.regularizers import correlation
from keras_dml.methods.declaration import Traits, declare
from keras_dml.model.head import Head, Linear
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import LossObjective
from keras_dml.utils.gradients import l2_normalize
from keras_dml.utils.serialization import Serializable, register
from keras_dml.utils.types import (
    NonNegative,
    Pooling,
    Shape,
    Shapes,
    Tensor,
    Tensors,
    Units,
)

Slope: TypeAlias = Literal["exponent", "similarity"]
Independence: TypeAlias = Literal["activation", "adversarial"]


def boosting_weights(num_learners: int) -> list[float]:
    """The share of each learner in s^M: α_m = 2m / (M (M + 1)).

    s^M is the sum of α_m s_m, where α_m = η_m Π_{n>m} (1 − η_n) and 1 − η_n =
    (n − 1) / (n + 1). For three learners, these are 1/6, 1/3 and 1/2.
    """
    total = num_learners * (num_learners + 1)
    return [2 * m / total for m in range(1, num_learners + 1)]


def split_dimensions(embedding_dim: int, sizes: Sequence[int]) -> list[int]:
    """Splits `embedding_dim` units into groups of proportional sizes."""
    total = sum(sizes)
    ends = [round(embedding_dim * end / total) for end in accumulate(sizes)]
    groups = [end - start for start, end in pairwise([0, *ends])]
    if not groups or min(groups) < 1:
        raise ValueError(
            "`group_sizes` of bier must leave at least one dimension for "
            f"every group. Received: group_sizes={list(sizes)}, "
            f"embedding_dim={embedding_dim} (groups of {groups}). Use fewer "
            "groups or a larger embedding_dim."
        )
    return groups


@register
class UnitRows(Serializable, keras.regularizers.Regularizer):
    """Penalty that keeps the rows of a weight matrix W at length 1.

    factor · mean_r (w_r·w_r − 1)², where w_r are the weights of one unit: a
    column of a Keras kernel.

    Args:
        factor: λ_w.
    """

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def __call__(self, kernel: Tensor) -> Tensor:
        squared = ops.sum(ops.square(kernel), axis=0)
        return self.factor * ops.mean(ops.square(squared - 1.0))


@register
class BoostedHead(Head):
    """Pooled features → `Dense(D)` → weighted, concatenated unit groups.

    Args:
        group_sizes: Dimensions of each group.
        norm_penalty: See `bier`.
        **kwargs: See `Head`.

    Returns:
        Three float32 tensors. `"embedding"`, (B, D): the unit groups times
        √α_m, so that the cosine of two embeddings is s^M. `"parts"`, (B, M,
        d): the unit groups, padded with zeros to the largest. `"activations"`,
        (B, D), for the independence loss: the product of the dense layer
        without its bias, which passes no gradient to the backbone.
    """

    def __init__(
        self,
        group_sizes: Sequence[int],
        norm_penalty: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.group_sizes = list(group_sizes)
        self.norm_penalty = norm_penalty
        self.embedding_dim = sum(group_sizes)
        self.dense = layers.Dense(
            self.embedding_dim,
            kernel_regularizer=UnitRows(norm_penalty),
            dtype=self.dtype_policy,
            name="dense",
        )

    def build(self, features_shape: Shape) -> None:
        super().build(features_shape)
        self.dense.build((None, features_shape[-1]))

    def linear_layers(self) -> list[Linear]:
        # Lengths for which the penalty of weights is zero.
        return [Linear.of(self.dense, is_rotated=True, has_unit_columns=True)]

    def embed(self, pooled: Tensor) -> Tensors:
        sizes = self.group_sizes
        groups = [
            l2_normalize(group) for group in cut(self.dense(pooled), sizes)
        ]
        alphas = boosting_weights(len(groups))
        weighted = [a**0.5 * x for a, x in zip(alphas, groups, strict=True)]
        padded = [
            ops.pad(x, ((0, 0), (0, max(sizes) - size)))
            for x, size in zip(groups, sizes, strict=True)
        ]
        fixed = ops.stop_gradient(pooled)
        return {
            "embedding": ops.concatenate(weighted, axis=-1),
            "parts": ops.stack(padded, axis=1),
            "activations": ops.matmul(fixed, self.dense.kernel),
        }


@register
class BoostedObjective(LossObjective):
    """Gradient boosting over pairs, and independence of the groups.

    Learner m sees every pair of the batch with a weight. The weight is 1 for
    the first learner; for later ones, it is the slope of the binomial deviance
    at the similarity s^{m−1} that the previous learners together give the
    pair. Pairs that they get right have almost no weight.

    Args:
        loss: The loss of every learner, on pairs or triplets. Weights come
            from this loss if it is a `BinomialDevianceLoss`, otherwise from
            one with default arguments.
        group_sizes: Dimensions of each group.
        slope: The variable of the derivative that gives the weight: the
            "exponent" of the binomial deviance, ±αβ (s − m), as in the
            released code, or the "similarity" s, which makes the weight αβ
            times as large.
        independence: See `bier`.
        regressor_units: See `bier`.
        norm_penalty: See `bier`; applies to the regressors.
        **kwargs: See `LossObjective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, M, d), and `"activations"`, (B, D).
        targets: Dict with `"label"`, (B,).

    Returns:
        `{"metric": (B,), "independence": (B,)}`: the mean of the learners'
        losses (with several losses, each under its own name), and the
        independence loss.

    Raises:
        ValueError: If `slope` or `independence` is unknown, or the loss does
            not accept weights of pairs.
    """

    terms = ("metric", "independence")

    def __init__(
        self,
        loss: losses.MetricLoss,
        group_sizes: Sequence[int],
        slope: Slope = "exponent",
        independence: Independence = "activation",
        regressor_units: int = 512,
        norm_penalty: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(loss, **kwargs)
        if not self.loss.weights_pairs:
            raise ValueError(
                "`loss` of bier must be computed from pairs of examples, "
                "which its "
                f"learners weight. Received: {type(self.loss).__name__} "
                f"{self.loss.name!r}, which does not accept weights of pairs. "
                'Use, for example, "binomial_deviance" or "contrastive".'
            )
        self.slope = slope
        self.group_sizes = list(group_sizes)
        self.independence = independence
        self.regressor_units = regressor_units
        self.norm_penalty = norm_penalty
        self.split_terms()
        is_deviance = isinstance(self.loss, BinomialDevianceLoss)
        self.deviance: Any = (
            self.loss if is_deviance else BinomialDevianceLoss()
        )
        self.reversal = GradientReversal(name="reversal")
        # From the later group of each pair to the earlier one.
        self.pairs: list[tuple[int, int]] = []
        if independence == "adversarial":
            self.pairs = list(combinations(range(len(group_sizes)), 2))
        self.regressors = [self._regressor(i, j) for i, j in self.pairs]

    def _regressor(self, i: int, j: int) -> keras.Sequential:
        # Without bounds, products with the regressors' outputs would grow
        # although the groups have nothing in common.
        bounded = {
            "kernel_regularizer": UnitRows(self.norm_penalty),
            "bias_constraint": keras.constraints.MaxNorm(1.0, axis=0),
            "dtype": "float32",
        }
        hidden = layers.Dense(self.regressor_units, "relu", **bounded)
        output = layers.Dense(self.group_sizes[i], **bounded)
        return keras.Sequential([hidden, output], name=f"regressor_{j}_to_{i}")

    def build(self, outputs_shape: Shapes) -> None:
        self.build_parts(outputs_shape, name="group")
        for regressor, (_, j) in zip(self.regressors, self.pairs, strict=True):
            regressor.build((None, self.group_sizes[j]))

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        groups = cut(outputs["activations"], self.group_sizes)
        adversarial = self.independence == "adversarial"
        compare = self._adversarial if adversarial else activation_loss
        return {
            **self._boost(outputs["parts"], targets["label"]),
            "independence": compare(groups),
        }

    def _boost(self, parts: Tensor, labels: Tensor) -> Tensors:
        weights = None  # The first learner sees every pair as it is.
        together: Tensor = 0.0  # s^0
        values = []
        for m, loss in enumerate(self.part_losses, start=1):
            part = parts[:, m - 1]
            values.append(loss.term_values(labels, part, pair_weights=weights))
            similarity = inner_product(ops.stop_gradient(part))
            rate = 2 / (m + 1)  # η_m
            together = (1 - rate) * together + rate * similarity
            weights = self.pair_weights(together)
        return {
            term: sum(each[term] for each in values) / len(values)
            for term in self.loss_terms
        }

    def pair_weights(self, similarity: Tensor) -> tuple[Tensor, Tensor]:
        """|ℓ′| of the binomial deviance, for any similarity.

        ℓ = log(1 + exp(∓αβ (s − m))) for a positive and for a negative pair.
        The weights are sigmoid(∓αβ (s − m)) with respect to the exponent, and
        αβ times that with respect to s.

        Args:
            similarity: s, (B, B).

        Returns:
            Two matrices, (B, B): the weights if all pairs were positive, and
            if all were negative.
        """
        deviance = self.deviance
        excess = deviance.alpha * (similarity - deviance.threshold)

        def steepness(scale: float) -> Tensor:
            by_s = self.slope == "similarity"
            factor = deviance.alpha * abs(scale) if by_s else 1.0
            return factor * ops.sigmoid(scale * excess)

        return (
            steepness(-deviance.positive_scale),
            steepness(deviance.negative_scale),
        )

    def _adversarial(self, groups: list[Tensor]) -> Tensor:
        """−Σ_{i<j} mean_k (R(f_i) ∘ g_ji(R(f_j)))²_k, R gradient reversal.

        A regressor learns to increase the correlation, the groups to decrease
        it.
        """
        reversed_groups = [self.reversal(group) for group in groups]
        total = ops.zeros_like(groups[0][:, 0])
        for regressor, (i, j) in zip(self.regressors, self.pairs, strict=True):
            estimate = regressor(reversed_groups[j])
            total -= correlation(reversed_groups[i], estimate)
        return total


def cut(x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Splits (B, D) into tensors (B, d_m) for `sizes`, which sum to D."""
    ends = accumulate(sizes)
    return [x[:, end - d : end] for end, d in zip(ends, sizes, strict=True)]


def activation_loss(groups: list[Tensor]) -> Tensor:
    """Σ_{i<j} mean_{k,l} (f_ik f_jl)², (B,), of activations f_m, (B, d_m).

    The mean of the squared outer product of two groups is the product of
    their mean squares.
    """
    squares = [ops.mean(ops.square(group), axis=-1) for group in groups]
    total = ops.zeros_like(squares[0])
    for a, b in combinations(squares, 2):
        total += a * b
    return total


@declare(
    "bier",
    "groups of growing size, each trained on the errors of those before it",
    Traits(part="group"),
    examples={
        "group_sizes": [1, 1, 3],
        "slope": "similarity",
        "regressor_units": 5,
        "norm_penalty": 0.5,
        "pooling": "max",
        "loss_weights": {"independence": 0.5},
    },
)
def bier(
    backbone: str | keras.Model = "small_convnet",
    *,
    embedding_dim: Units = 512,
    group_sizes: tuple[Units, ...] = (96, 160, 256),
    loss: LossLike = "binomial_deviance",
    slope: Slope = "exponent",
    independence: Independence = "activation",
    regressor_units: Units = 512,
    norm_penalty: NonNegative = 1.0,
    pooling: Pooling = "avg",
    **kwargs: Any,
) -> MetricModel:
    r"""Boosting Independent Embeddings Robustly, BIER (Opitz et al., 2017).

    What it computes: backbone → pooling → `Dense(embedding_dim)`, cut into M
    groups of increasing size. Each group is a learner in an online gradient
    boosting over pairs: its loss weights a pair by how wrong the previous
    learners together are about that pair. With $s_m$ the similarity of a pair
    in group m, $s^0 = 0$ and the binomial deviance ℓ,

    $$
    s^m = (1 - \eta_m) \, s^{m-1} + \eta_m s_m , \qquad
    \eta_m = \frac{2}{m + 1} , \qquad
    w^1 = 1 , \qquad w^{m+1} = -\ell'(s^m) ,
    $$

    $$
    \mathcal{L} = \frac{1}{M} \sum_m \mathcal{L}_{metric}(x_m; w^m) +
    \lambda \, \mathcal{L}_{independence} .
    $$

    The independence loss keeps groups from being active together. The
    embedding is the concatenation of the unit groups, each multiplied by the
    square root of its boosting weight, so that the cosine of two embeddings is
    s^M.

    Args:
        backbone: See `baseline`.
        embedding_dim: Dimensions of the whole embedding, D.
        group_sizes: Relative sizes of the groups: the default results in
            groups of 96, 160 and 256 for D = 512.
        loss: The loss of every learner, see `baseline`, on pairs or triplets.
        slope: See `BoostedObjective`: "exponent" or "similarity".
        independence: "activation" (BIER): activations of two groups should not
            be large for the same image. "adversarial" (A-BIER): regressors
            learn to find what two groups have in common, and the groups,
            behind a gradient reversal, learn to have nothing in common. The
            weight is `loss_weights["independence"]`, 1 by default.
        regressor_units: Hidden units of each adversarial regressor.
        norm_penalty: λ_w, how strongly the weights of every unit of the
            embedding and of the regressors are kept at length 1. Without it,
            small weights would minimize the independence loss.
        pooling: See `Head`: "avg", "max", "avg_max", "gem", "cls" or
            "none".
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`.

    Raises:
        ValueError: If a group would be empty, or a choice is unknown.

    Deviations:
        - The paper does not say with respect to which variable ℓ is
          differentiated. With respect to the similarity, negative pairs would
          have β₋ = 25 times the weight of positive ones; with respect to the
          exponent, as in the released code, all weights are between 0 and 1,
          like those of the first learner.
        - The learners' losses are averaged, as in the released code; Algorithm
          1 sums them.
        - The embedding is weighted by √α_m. The released code weights the unit
          groups by their share of the dimensions, which weights similarities
          by the square of that share.
        - The independence loss trains the embedding layer but not the
          backbone, as in the released code.
        - The paper of 2017 minimizes the activation loss once, for
          initialization; here it is part of training, as in the paper of 2018.
        - A constraint keeps the length of the regressors' biases at 1 or less;
          A-BIER has a penalty. The released code limits the weights of each
          input of a regressor, here those of each output are.
        - The released code has a second rule, which its printed run uses:
          activations start at 0.5 and grow by 0.06 (s − β) α m, and negative
          pairs weigh twice as much afterwards.
        - The released code divides the positive pairs by a number that includes
          the diagonal: half the weight with two images of a class.

    Reference:
        Opitz et al., "BIER: Boosting Independent Embeddings Robustly", ICCV
        2017,
        https://openaccess.thecvf.com/content_ICCV_2017/papers/Opitz_BIER_-_Boosting_ICCV_2017_paper.pdf;
        Opitz et al., "Deep Metric Learning with BIER: Boosting Independent
        Embeddings Robustly", PAMI 2018, https://arxiv.org/abs/1801.04815.
    """
    sizes = split_dimensions(embedding_dim, group_sizes)
    return MetricModel(
        backbone=backbones.get(backbone),
        head=BoostedHead(sizes, norm_penalty, pooling=pooling, name="head"),
        objective=BoostedObjective(
            losses.get(loss),
            sizes,
            slope=slope,
            independence=independence,
            regressor_units=regressor_units,
            norm_penalty=norm_penalty,
            name="objective",
        ),
        **kwargs,
    )
