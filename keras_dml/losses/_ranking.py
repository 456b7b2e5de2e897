"""Losses on soft ranks: Smooth-AP, the recall@k surrogate and PNP.

All three use one soft rank; nearly half of the file is their documentation.
"""

from collections.abc import Sequence
from typing import Any, Literal

from keras import ops

from keras_dml.losses.base import LOSSES, MetricLoss
from keras_dml.losses.mining.miner import State, for_each_true, value_at
from keras_dml.losses.pairs import Batch, Pairs
from keras_dml.utils.arguments import (
    check_not_empty,
)
from keras_dml.utils.gradients import custom_gradient
from keras_dml.utils.types import Count, Positive, Tensor


class _RankingLoss(MetricLoss):
    """Base: how many references rank above each positive, with a gradient.

    The step function of "n is closer to the anchor than p" becomes a
    sigmoid of the difference of their cosine similarities.
    """

    weights_pairs = True
    needs_triplets = True

    def __init__(
        self,
        temperature: Positive,
        include_self: bool,
        reduction: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(reduction, **kwargs)
        self.temperature = temperature
        self.include_self = include_self

    def call(self, batch: Batch) -> Tensor:
        pairs = batch.compare("cosine")
        has_positive = ops.any(pairs.positive, axis=1)
        return self.reduce(self.values(pairs), has_positive)

    def values(self, pairs: Pairs) -> Tensor:
        """(B,): the loss of every anchor."""
        raise NotImplementedError

    def above(self, pairs: Pairs, count: Tensor) -> Tensor:
        """(B, R): how much of `count`, (B, R), is above each positive."""
        return count_above(
            -pairs.distances, pairs.positive, count, self.temperature
        )

    def self_is_above(self, pairs: Pairs) -> Tensor:
        """(B, R): how far an anchor, at similarity 1, is above a positive."""
        return ops.sigmoid((1.0 + pairs.distances) / self.temperature)

    def above_self(self, pairs: Pairs, count: Tensor) -> Tensor:
        """(B,): how much of `count` is above the anchor itself."""
        soft = ops.sigmoid((-1.0 - pairs.distances) / self.temperature)
        return ops.sum(soft * ops.cast(count, "float32"), axis=1)


def _mean_over_positives(
    pairs: Pairs, terms: Tensor, of_self: Tensor | None
) -> Tensor:
    """(B,): the mean of (B, R) terms over the positives of each anchor.

    Args:
        pairs: The pairs of the batch.
        terms: (B, R).
        of_self: (B,) terms of the anchors themselves, which count as one
            more positive; None leaves them out.
    """
    count = ops.sum(ops.cast(pairs.positive, "float32"), axis=1)
    weight = ops.cast(pairs.counts()[0], "float32")
    total = ops.sum(weight * ops.where(pairs.positive, terms, 0.0), axis=1)
    if of_self is not None:
        return (total + of_self) / (count + 1.0)
    return total / ops.where(count > 0, count, 1.0)


@LOSSES.register("smooth_ap", examples={"include_self": True})
class SmoothAPLoss(_RankingLoss):
    r"""Smooth-AP: one minus the average precision from soft ranks.

    For an anchor with positives $P$ and negatives $N$, at cosine similarities
    $s$ to it, and with the sigmoid $\sigma$,

    $$
    \ell_a = 1 - \frac{1}{|P|} \sum_{i \in P} \frac{1 +
    \sum_{j \in P, j \ne i} \sigma\left( \frac{s_j - s_i}{\tau} \right)}{1 +
    \sum_{j \in P \cup N, j \ne i} \sigma\left( \frac{s_j - s_i}{\tau} \right)}
    .
    $$

    Terms are the anchors that have a positive. `pair_weights` multiply the
    contribution of each positive i, and the count of each pair in the ranks.

    Time is O(B·P·R) and memory O(B·R), with P the largest number of positives
    of any anchor.

    With σ as `sigmoid`, this computes

    ```python
    for a, i in np.argwhere(positive):
        above = sigmoid((s[a] - s[a, i]) / temperature)
        positives = above[positive[a]].sum() - above[i]
        negatives = above[negative[a]].sum()
        precision = (1 + positives) / (1 + positives + negatives)
        terms[a] += (1 - precision) / positive[a].sum()
    ```

    When to use it:
        To optimize mean average precision; large batches with several
        images per class.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        temperature: τ of the sigmoid. Smaller values approximate the true ranks
            better, but fewer pairs have a gradient.
        include_self: Whether an anchor counts as its own positive, with
            similarity 1, as in the authors' code and in
            pytorch-metric-learning.
        reduction, **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Requirements:
        Several images per class in every batch. Large batches work better,
        because the AP among a few images says little.

    Deviations:
        - Classes can have any number of images; the authors' code requires the
          same number for every class. pytorch-metric-learning 2.9 assumes that
          this number equals the number of classes, so it is only correct for
          batches of n classes with n images each.

    Also known as:
        - pytorch-metric-learning: `SmoothAPLoss(temperature)` is
          `SmoothAPLoss(temperature, include_self=True)`, for batches of n
          classes of n images.

    Example:
        >>> x = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> # The positive of anchor 0 comes first, that of anchor 1 second.
        >>> round(float(SmoothAPLoss()([0, 0, 1], x)), 4)
        0.25

    Reference:
        Brown et al., "Smooth-AP: Smoothing the Path Towards Large-Scale Image
        Retrieval", ECCV 2020, Eq. 7, https://arxiv.org/abs/2007.12163.
    """

    def __init__(
        self,
        temperature: float = 0.01,
        include_self: bool = False,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(temperature, include_self, reduction, **kwargs)

    def values(self, pairs: Pairs) -> Tensor:
        counts = pairs.counts()
        positives, negatives = (self.above(pairs, c) for c in counts)
        of_self = None
        if self.include_self:
            positives = positives + self.self_is_above(pairs)
            of_self = _lost_precision(
                *(self.above_self(pairs, c) for c in counts)
            )
        terms = _lost_precision(positives, negatives)
        return _mean_over_positives(pairs, terms, of_self)


def _lost_precision(positives: Tensor, negatives: Tensor) -> Tensor:
    """One minus the precision at a positive, by the counts above it."""
    return negatives / (1.0 + positives + negatives)


@LOSSES.register(
    "pnp", examples={"variant": "I_b", "b": 3.0, "include_self": True}
)
class PNPLoss(_RankingLoss):
    r"""PNP: only negatives ranked above a positive are penalized.

    For an anchor with positives $P$ and negatives $N$, at cosine similarities
    $s$ to it, and with the sigmoid $\sigma$,

    $$
    \ell_a = \frac{1}{|P|} \sum_{i \in P} f(N_i) , \qquad
    N_i = \sum_{n \in N} \sigma\left( \frac{s_n - s_i}{\tau} \right) ,
    $$

    where $N_i$ is the soft number of negatives ranked above i, and `variant`
    selects $f$:

    - "O": $N$.
    - "I_u": $(1 + N) \log(1 + N)$, with an unbounded slope.
    - "I_b": $(b N - \log(1 + b N)) / b^2$, with a slope that rises to 1/b.
    - "D_s": $\log(1 + N)$, with a slope that falls slowly.
    - "D_q": $1 - (1 + N)^{-\alpha}$, with a slope that falls quickly.

    Terms are the anchors that have a positive. `pair_weights` multiply the
    contribution of each positive i, and the count of each negative in N_i. Time
    is O(B·P·R) and memory O(B·R).

    With σ as `sigmoid`, this computes

    ```python
    for a, i in np.argwhere(positive):
        above = sigmoid((s[a, negative[a]] - s[a, i]) / temperature)
        terms[a] += f(above.sum()) / positive[a].sum()
    ```

    When to use it:
        A ranking loss that tolerates wrong labels: `variant="D_q"`.
        Large batches.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        variant: f. The best ones in the paper are "D_q" and "D_s", which first
            correct rankings that are almost right, and tolerate wrong labels
            better.
        alpha: α of "D_q".
        b: b of "I_b".
        temperature: τ of the sigmoid.
        include_self: Whether an anchor counts as its own positive, with
            similarity 1, as in the authors' code and in
            pytorch-metric-learning.
        reduction, **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `variant` is unknown, or `alpha`, `b` or
            `temperature` is not positive.

    Deviations:
        - `variant` is "D_q" by default; in pytorch-metric-learning it is "O".

    Also known as:
        - pytorch-metric-learning: `PNPLoss(b, alpha, anneal, variant)` is
          `PNPLoss(variant, alpha, b, anneal, include_self=True)`; "Ds" there is
          "D_s" here, and so on.

    Example:
        `PNPLoss("D_s")(labels, embeddings)`

    Reference:
        Li et al., "Rethinking the Optimization of Average Precision: Only
        Penalizing Negative Instances before Positive Ones is Enough", AAAI
        2022, https://arxiv.org/abs/2102.04640.
    """

    def __init__(
        self,
        variant: Literal["O", "I_u", "I_b", "D_s", "D_q"] = "D_q",
        alpha: Positive = 1.0,
        b: Positive = 2.0,
        temperature: float = 0.01,
        include_self: bool = False,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(temperature, include_self, reduction, **kwargs)
        self.variant = variant
        self.alpha = alpha
        self.b = b

    def values(self, pairs: Pairs) -> Tensor:
        negatives = pairs.counts()[1]
        of_self = None
        if self.include_self:
            of_self = self._penalty(self.above_self(pairs, negatives))
        terms = self._penalty(self.above(pairs, negatives))
        return _mean_over_positives(pairs, terms, of_self)

    def _penalty(self, negatives: Tensor) -> Tensor:
        if self.variant == "O":
            return negatives
        if self.variant == "I_b":
            scaled = self.b * negatives
            return (scaled - ops.log1p(scaled)) / self.b**2
        log = ops.log1p(negatives)
        if self.variant == "I_u":
            return (1.0 + negatives) * log
        return log if self.variant == "D_s" else -ops.expm1(-self.alpha * log)


@LOSSES.register(
    "recall_at_k",
    examples={
        "k": (1, 3),
        "rank_temperature": 0.7,
        "attainable": True,
        "include_self": True,
    },
)
class RecallAtKLoss(_RankingLoss):
    r"""Recall@k surrogate: one minus the recall from soft ranks, at several k.

    For an anchor with positives $P$, at cosine similarities $s$ to it, and
    with the sigmoid $\sigma$,

    $$
    \ell_a = 1 - \frac{1}{|K|} \sum_{k \in K} \frac{1}{|P|} \sum_{i \in P}
    \sigma\left( \frac{k - 1 - A_i}{\tau_1} \right) , \qquad
    A_i = \sum_{j \ne i} \sigma\left( \frac{s_j - s_i}{\tau_2} \right) ,
    $$

    where $A_i$ is the soft number of references ranked above the positive i.

    Terms are the anchors that have a positive. `pair_weights` multiply the
    contribution of each positive i, and the count of each pair in the ranks;
    recall is then a fraction of the weights. Time is O(B·P·R) and memory
    O(B·R·|K|).

    With σ as `sigmoid`, this computes

    ```python
    terms = np.ones(len(s))
    for a, i in np.argwhere(positive):
        above = sigmoid((s[a] - s[a, i]) / temperature)
        rank = above[positive[a] | negative[a]].sum() - above[i]
        recall = sigmoid((np.array(k) - 1 - rank) / rank_temperature)
        terms[a] -= recall.mean() / positive[a].sum()
    ```

    When to use it:
        To optimize recall@k; batches of several hundred images or more,
        for which a model has `accumulate`.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        k: The values of k, K.
        rank_temperature: τ₁, in ranks: a number, or one for each k. The
            authors' code has τ₁ = 1; until November 2024, τ₁ = k.
        temperature: τ₂, in similarities.
        attainable: Whether recall is divided by min(k, |P|), the largest number
            of positives among k places, and counts at most k positives, as in
            the authors' code. Otherwise, it is divided by |P|, as in the paper.
        include_self: Whether an anchor counts as one of the references above
            its positives, as in the authors' code.
        reduction, **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `k` is empty or contains anything but positive integers,
            or a temperature is not positive.

    Requirements:
        Large batches: the paper trains with 4,000 images. In a batch of B
        images there are no ranks beyond B.

    Deviations:
        - Similarity mixup, the other half of the paper, is not included.

    Also known as:
        None of the compared libraries has an equivalent.

    Example:
        `RecallAtKLoss(k=(1, 2, 4))(labels, embeddings)`

    Reference:
        Patel et al., "Recall@k Surrogate Loss with Large Batches and Similarity
        Mixup", CVPR 2022, Sec. 3, https://arxiv.org/abs/2108.11179.
    """

    def __init__(
        self,
        k: Sequence[Count] = (1, 2, 4, 8, 16),
        rank_temperature: Positive | Sequence[Positive] = 1.0,
        temperature: float = 0.01,
        attainable: bool = False,
        include_self: bool = False,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(temperature, include_self, reduction, **kwargs)
        check_not_empty("RecallAtKLoss", "k", k)
        self.k = tuple(k)
        temperatures = rank_temperature
        if isinstance(temperatures, Sequence) and len(temperatures) != len(k):
            raise ValueError(
                "`rank_temperature` of RecallAtKLoss must be a number, or one "
                f"for each k of {self.k}. Received: rank_temperature="
                f"{rank_temperature!r}. Use rank_temperature={self.k}."
            )
        self.rank_temperature = rank_temperature
        self.attainable = attainable

    def values(self, pairs: Pairs) -> Tensor:
        positives, negatives = (
            ops.cast(count, "float32") for count in pairs.counts()
        )
        above = self.above(pairs, positives + negatives)
        if self.include_self:
            above = above + self.self_is_above(pairs)
        weight = positives
        total = ops.sum(weight, axis=1)
        losses = ops.zeros_like(total)
        temperatures: Any = self.rank_temperature
        if not isinstance(temperatures, Sequence):
            temperatures = [temperatures] * len(self.k)
        for k, temperature in zip(self.k, temperatures, strict=True):
            inside = ops.sigmoid((k - 1.0 - above) / temperature)
            hits = ops.sum(weight * inside, axis=1)
            max_hits = total
            if self.attainable:
                hits = ops.minimum(hits, float(k))
                max_hits = ops.minimum(total, float(k))
            # Nothing is lost where there is nothing to find.
            share = hits / ops.where(max_hits > 0, max_hits, 1.0)
            losses = losses + ops.where(max_hits > 0, 1.0 - share, 0.0)
        return losses / len(self.k)


def count_above(
    similarity: Tensor, positive: Tensor, count: Tensor, temperature: float
) -> Tensor:
    """How much is above each positive of a row.

    Above the positive i, Σ_j count_j σ((s_j − s_i)/τ) without j = i. Goes
    through the k-th positive of all rows at once, so that memory is O(B·R);
    the gradient is a loop of its own, which makes it work where loops of
    unknown length have no gradient (XLA, JAX). All are (B, R), and the result
    is 0 where nothing is positive.
    """
    count = ops.cast(count, "float32")
    scale = 1.0 / temperature

    def shares(similarity: Tensor, marked: Tensor) -> Tensor:
        at = value_at(similarity, marked)
        soft = ops.sigmoid((similarity - at) * scale)
        return ops.where(marked, 0.0, soft)

    @custom_gradient
    def above(similarity: Tensor) -> Any:
        def add(k: Any, score: Tensor, marked: Tensor, old: Tensor) -> State:
            soft = shares(similarity, marked)
            total = ops.sum(soft * count, axis=1, keepdims=True)
            return (ops.where(marked, total, old),)

        def gradient(upstream: Tensor) -> Tensor:
            def move(
                k: Any, score: Tensor, marked: Tensor, slopes: Tensor
            ) -> State:
                soft = shares(similarity, marked)
                slope = soft * (1.0 - soft) * count
                slope = value_at(upstream, marked) * slope
                total = ops.sum(slope, axis=1, keepdims=True)
                return (slopes + ops.where(marked, -total, slope),)

            initial = (ops.zeros_like(similarity),)
            return scale * for_each_true(positive, move, initial)[0]

        initial = (ops.zeros_like(similarity),)
        return for_each_true(positive, add, initial)[0], gradient

    return above(similarity)
