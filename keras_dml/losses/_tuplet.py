"""The tuplet margin loss, and the intra-pair variance loss."""

import math
from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike, safe_sqrt
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs
from keras_dml.losses.reductions import masked_logsumexp
from keras_dml.utils.arguments import check_angle
from keras_dml.utils.types import Positive, Tensor


@LOSSES.register("tuplet_margin", examples={"scale": 9.0})
class TupletMarginLoss(PairLoss):
    r"""Tuplet margin: each positive against all negatives, with angular slack.

    For each positive pair, with the negatives $N_a$ of the anchor and the
    angles $\theta$ between embeddings,

    $$
    \ell_{ap} = \log\left( 1 + \sum_{n \in N_a} e^{s \left(
    \cos \theta_{an} - \cos(\theta_{ap} - \beta) \right)} \right) .
    $$

    The slack β relieves the hardest positives. Terms are positive pairs;
    `pair_weights` multiply them, and the exponentials of negative pairs.

    When to use it:
        In place of triplets, without mining.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        margin: β, in radians, between 0 and π; 0.1 is the paper's 5.73°.
        scale: s, the factor of the cosines.
        distance: As for `PairLoss`; cosine similarity in the paper.
        mining, reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `scale` is not positive, or `margin` is out of range.

    Also known as:
        - pytorch-metric-learning: `TupletMarginLoss(margin, scale)` is
          `TupletMarginLoss(np.radians(margin), scale)`.

    Example:
        `TupletMarginLoss(margin=0.1, scale=32.0)(labels, embeddings)`

    Reference:
        Yu and Tao, "Deep Metric Learning with Tuplet Margin Loss", ICCV 2019,
        Sec. 3.
    """

    needs_triplets = True

    def __init__(
        self,
        margin: float = 0.1,
        scale: Positive = 64.0,
        distance: DistanceLike = "cosine",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.scale = scale
        self.margin = check_angle("TupletMarginLoss", "margin", margin)

    def values(self, pairs: Pairs) -> Tensor:
        positive, negative = self.mined(pairs)
        positive_weights, negative_weights = pairs.weights
        cosines = -pairs.distances
        sines = safe_sqrt(1.0 - ops.square(cosines))
        # cos(θ − β)
        eased = math.cos(self.margin) * cosines + math.sin(self.margin) * sines
        negatives = masked_logsumexp(
            self.scale * cosines,
            ops.cast(negative, "bool"),
            weights=negative_weights,
        )
        terms = ops.softplus(negatives - self.scale * eased)
        return self.reduce(terms, positive, positive_weights)


@LOSSES.register(
    "intra_pair_variance",
    examples={"positive_slack": 0.1, "negative_slack": 0.2},
)
class IntraPairVarianceLoss(PairLoss):
    r"""Intra-pair variance: limits how far pairs fall behind their average.

    For a positive and a negative pair with similarity $s$,

    $$
    \ell_+ = \left[ (1 - \epsilon_+) \mu_+ - s \right]_+^2 , \qquad
    \ell_- = \left[ s - (1 + \epsilon_-) \mu_- \right]_+^2 ,
    $$

    where $\mu_+$ and $\mu_-$ are the mean similarities of all positive and all
    negative pairs. The gradient passes through the means.

    Terms are pairs, which are multiplied by `pair_weights`; "mean" averages
    positive and negative pairs separately, and adds the two. The loss is
    intended to be added to another one: by itself, it is minimized by a
    constant embedding. The paper adds half of it to the tuplet margin loss.

    When to use it:
        Beside another loss, such as `TupletMarginLoss`.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        positive_slack: ε₊.
        negative_slack: ε₋.
        distance: As for `PairLoss`; cosine similarity in the paper. With a
            distance, the inequalities are reversed.
        mining, reduction, **kwargs: As for `PairLoss`.

    Also known as:
        - pytorch-metric-learning: `IntraPairVarianceLoss(pos_eps, neg_eps)`.

    Example:
        `IntraPairVarianceLoss(0.05, 0.05)(labels, embeddings)`

    Reference:
        Yu and Tao, "Deep Metric Learning with Tuplet Margin Loss", ICCV 2019,
        Sec. 4.
    """

    def __init__(
        self,
        positive_slack: float = 0.01,
        negative_slack: float = 0.01,
        distance: DistanceLike = "cosine",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        self.positive_slack = positive_slack
        self.negative_slack = negative_slack

    def values(self, pairs: Pairs) -> Tensor:
        positive, negative = (
            ops.cast(counts, "float32") for counts in self.mined(pairs)
        )
        distances, sign = pairs.distances, pairs.metric.orient(1.0)
        near = (1.0 + sign * self.positive_slack) * _mean(distances, positive)
        far = (1.0 - sign * self.negative_slack) * _mean(distances, negative)
        excess = ops.square(ops.relu(distances - near))
        lack = ops.square(ops.relu(far - distances))
        positive_weights, negative_weights = pairs.weights
        return self.reduce(excess, positive, positive_weights) + self.reduce(
            lack, negative, negative_weights
        )


def _mean(values: Tensor, counts: Tensor) -> Tensor:
    count = ops.sum(counts)
    total = ops.sum(ops.where(counts > 0, counts * values, 0.0))
    return total / ops.where(count > 0, count, 1.0)
