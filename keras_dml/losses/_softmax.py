"""Softmax losses on pairs: NT-Xent, N-pair, supervised contrastive."""

from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs
from keras_dml.losses.reductions import masked_logsumexp
from keras_dml.utils.arguments import check_positive
from keras_dml.utils.types import Tensor


class _SoftmaxLoss(PairLoss):
    """Base: the temperature by which similarities are divided."""

    needs_triplets = True

    def __init__(
        self,
        temperature: float = 0.1,
        distance: DistanceLike = "cosine",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(distance, mining, reduction, **kwargs)
        check_positive(type(self).__name__, "temperature", temperature)
        self.temperature = temperature


@LOSSES.register("nt_xent")
class NTXentLoss(_SoftmaxLoss):
    """NT-Xent (SimCLR, InfoNCE): each positive against all negatives.

    The normalized temperature-scaled cross entropy
    −log(exp(s(a, p)/τ) / (exp(s(a, p)/τ) + Σ_n exp(s(a, n)/τ))) for each
    positive pair. Terms are positive pairs; `pair_weights` multiply them,
    and the exponentials of negative pairs.

    Args:
        temperature: τ.
        distance, mining, reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Deviations:
        - With more than one positive, an anchor's other positives are not
          in the denominator; SimCLR has one positive, where both agree.

    Reference:
        Chen et al., "A Simple Framework for Contrastive Learning of Visual
        Representations", ICML 2020, Eq. 1, https://arxiv.org/abs/2002.05709.
    """

    def values(self, pairs: Pairs) -> Tensor:
        positive, negative = self.mined(pairs)
        of_positives, of_negatives = pairs.weights
        logits = -pairs.distances / self.temperature
        negatives = masked_logsumexp(
            logits, ops.cast(negative, "bool"), weights=of_negatives
        )
        terms = ops.softplus(negatives - logits)
        return self.reduce(terms, positive, of_positives)


@LOSSES.register("n_pair")
class NPairLoss(NTXentLoss):
    """N-pair loss: NT-Xent of raw inner products, without temperature.

    log(1 + Σ_n exp(x_a·x_n − x_a·x_p)) for each positive pair. The paper's
    batch of N pairs is the anchors as `embeddings` and their positives as
    `ref_embeddings`; a P×K batch uses all its pairs.

    Args:
        temperature, distance, **kwargs: As for `NTXentLoss`.
        normalize: As for `MetricLoss`; the paper does not normalize.

    Requirements:
        Without normalization the norms must be held back, as the paper
        does by an L2 penalty on the embeddings: add it to the layer,
        `Dense(dim, activity_regularizer=keras.regularizers.L2(...))`.

    Reference:
        Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss
        Objective", NIPS 2016, Eq. 7.
    """

    def __init__(
        self,
        temperature: float = 1.0,
        distance: DistanceLike = "dot",
        normalize: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(temperature, distance, normalize=normalize, **kwargs)


@LOSSES.register("sup_con")
class SupConLoss(_SoftmaxLoss):
    """Supervised contrastive loss: each positive against all, by a softmax.

    −1/|P(a)| Σ_p log(exp(s(a, p)/τ) / Σ_k exp(s(a, k)/τ)), k over all
    other examples, positives included. Terms are the anchors that have a
    positive. `pair_weights` multiply the part of each p, and the
    exponential of each k.

    Args:
        temperature: τ.
        distance, mining, reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Reference:
        Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, Eq. 2,
        https://arxiv.org/abs/2004.11362.
    """

    def values(self, pairs: Pairs) -> Tensor:
        positive, negative = self.mined(pairs)
        logits = -pairs.distances / self.temperature
        used = [ops.cast(counts, "bool") for counts in (positive, negative)]
        everything = ops.logical_or(*used)
        positive = ops.cast(positive, "float32")
        count = ops.sum(positive, axis=1)
        divisor = ops.where(count > 0, count, 1.0)
        if pairs.weights[0] is None:
            log_total = masked_logsumexp(logits, everything)[:, 0]
        else:
            weights = ops.where(used[0], *pairs.weights)
            log_total = masked_logsumexp(logits, everything, weights=weights)
            positive *= ops.where(used[0], weights, 0.0)
            log_total = log_total[:, 0] * (ops.sum(positive, axis=1) / divisor)
        pull = ops.sum(ops.where(used[0], positive * logits, 0.0), axis=1)
        return self.reduce(log_total - pull / divisor, count > 0)
