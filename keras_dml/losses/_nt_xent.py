"""NT-Xent and N-pair: each positive against all negatives, by softmax."""

from typing import Any

from keras import ops

from keras_dml.losses import distances
from keras_dml.losses.base import LOSSES
from keras_dml.losses.mining import Seed
from keras_dml.losses.mining import get as get_miner
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import PairWeights, compare
from keras_dml.losses.reductions import (
    masked_logsumexp,
    reduce_terms,
    sum_terms,
)
from keras_dml.utils.arguments import check_positive
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Tensor


def nt_xent(
    labels: Tensor,
    embeddings: Tensor,
    ref_labels: Tensor | None = None,
    ref_embeddings: Tensor | None = None,
    pair_weights: PairWeights | None = None,
    *,
    temperature: float = 0.1,
    distance: str = "cosine",
    mining: Any = "all",
    seed: Seed = None,
    reduction: str = "mean",
) -> Tensor:
    """NT-Xent loss of every example, (B,); see `NTXentLoss`."""
    pairs = compare(
        labels, embeddings, ref_labels, ref_embeddings, distance, pair_weights
    )
    positive, negative = get_miner(mining).pair_weights(pairs, seed)
    logits = -pairs.distances / temperature
    of_positive, of_negative = pairs.weights
    negatives = masked_logsumexp(
        logits, ops.cast(negative, "bool"), weights=of_negative
    )
    terms = ops.softplus(negatives - logits)
    return reduce_terms(sum_terms(terms, positive, of_positive), reduction)


@LOSSES.register("nt_xent", "each positive against all negatives, by a softmax")
@register
class NTXentLoss(PairLoss):
    """Normalized temperature-scaled cross entropy (SimCLR, InfoNCE).

    −log(exp(s(a, p)/τ) / (exp(s(a, p)/τ) + Σ_n exp(s(a, n)/τ))) for each
    positive pair. Terms are positive pairs; `pair_weights` multiply them,
    and the exponentials of negative pairs.

    Args:
        temperature: τ.
        distance: A name in `keras_dml.losses.distances.DISTANCES`.
        mining: As for `PairLoss`.
        reduction: As for `MetricLoss`.
        **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Deviations:
        - With more than one positive, an anchor's other positives are not
          in the denominator; SimCLR has one positive, where both agree.

    Reference:
        Chen et al., "A Simple Framework for Contrastive Learning of Visual
        Representations", ICML 2020, Eq. 1, https://arxiv.org/abs/2002.05709.
    """

    function = staticmethod(nt_xent)

    def __init__(
        self,
        temperature: float = 0.1,
        distance: str = "cosine",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(mining, reduction=reduction, **kwargs)
        check_positive(type(self).__name__, "temperature", temperature)
        self.distance = distances.get(distance).name
        self.temperature = temperature


@LOSSES.register("n_pair", "as nt_xent, of raw inner products")
@register
class NPairLoss(NTXentLoss):
    """N-pair loss: NT-Xent of raw inner products, without temperature.

    log(1 + Σ_n exp(x_a·x_n − x_a·x_p)) for each positive pair. The paper's
    batch of N pairs is the anchors as `embeddings` and their positives as
    `ref_embeddings`; a P×K batch uses all its pairs.

    Args:
        temperature: As for `NTXentLoss`.
        distance: As for `NTXentLoss`.
        normalize: As for `MetricLoss`; the paper does not normalize.
        **kwargs: As for `NTXentLoss`.

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
        distance: str = "dot",
        normalize: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            temperature, distance=distance, normalize=normalize, **kwargs
        )
