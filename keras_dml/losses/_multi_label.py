"""Supervised contrastive loss of examples with several labels."""

from typing import Any

from keras import backend, ops

from keras_dml.losses._softmax import SupConLoss
from keras_dml.losses.base import LOSSES
from keras_dml.losses.distances import DistanceLike
from keras_dml.losses.pairs import Pairs, PairWeights
from keras_dml.losses.reductions import masked_logsumexp
from keras_dml.utils.types import Fraction, Tensor


@LOSSES.register("multi_sup_con")
class MultiSupConLoss(SupConLoss):
    r"""Multi-label SupCon: examples attract by the overlap of their labels.

    For an anchor $a$,

    $$
    \ell_a = -\frac{1}{|P|} \sum_{p \in P} J(a, p) \log
    \frac{e^{s(a, p) / \tau}}{\sum_{k \ne a} e^{s(a, k) / \tau}} ,
    \qquad J(a, p) = \frac{|L_a \cap L_p|}{|L_a \cup L_p|} ,
    $$

    where $J$ is the Jaccard overlap of two label sets, $P$ are the examples
    with $J$ ≥ `threshold`, and $k$ runs over all other examples. Terms are the
    anchors that have a positive. `pair_weights` multiply the contribution of
    each p, and the exponentials of negative pairs.

    Class ids and relation matrices are also accepted; J is then 1, and the loss
    is SupCon.

    Labels:
        (B, C) booleans that mark the labels of each example; or (B,) class ids
        or a (B, R) relation matrix, as for `SupConLoss`.

    Args:
        threshold: Smallest overlap of a positive pair, between 0 and 1.
        weighted: Whether J multiplies the contribution of each p. Otherwise,
            all positives count equally.
        temperature: τ.
        distance, mining, reduction, **kwargs: As for `PairLoss`.

    Raises:
        ValueError: If `threshold` is not between 0 and 1, or `temperature` is
            not positive.

    Deviations:
        - The default of `temperature` is that of SupCon rather than the 0.07 of
          the code that this loss follows. pytorch-metric-learning 3 does not
          use weights, and requires an overlap above the threshold rather than
          at least equal to it.

    Also known as:
        - pytorch-metric-learning: `MultiSupConLoss`, from its version 3 on, has
          `weighted=False` and wants an overlap above the threshold, not at it.

    Example:
        `MultiSupConLoss(threshold=0.5)(label_sets, embeddings)`

    Reference:
        Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, Eq. 2,
        https://arxiv.org/abs/2004.11362; with label sets:
        https://github.com/WolodjaZ/MultiSupContrast.
    """

    def __init__(
        self,
        threshold: Fraction = 0.3,
        weighted: bool = True,
        temperature: float = 0.1,
        distance: DistanceLike = "cosine",
        mining: Any = "all",
        reduction: str = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(temperature, distance, mining, reduction, **kwargs)
        self.threshold = threshold
        self.weighted = weighted

    def per_example(
        self,
        labels: Tensor,
        embeddings: Tensor,
        ref_labels: Tensor | None = None,
        ref_embeddings: Tensor | None = None,
        pair_weights: PairWeights | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        sets = ops.convert_to_tensor(labels)
        is_sets = backend.standardize_dtype(sets.dtype) == "bool"
        if is_sets and len(sets.shape) == 2:
            others = sets if ref_labels is None else ref_labels
            overlap = _jaccard(sets, ops.convert_to_tensor(others))
            labels = ops.cast(overlap >= self.threshold, "int32")
            ref_labels = None
            if self.weighted:
                positive, negative = pair_weights or (1.0, 1.0)
                ones = ops.ones_like(overlap)
                pair_weights = overlap * positive, ones * negative
        return super().per_example(
            labels,
            embeddings,
            ref_labels,
            ref_embeddings,
            pair_weights,
            mask,
        )

    def values(self, pairs: Pairs) -> Tensor:
        positive, negative = self.mined(pairs)
        of_positives, of_negatives = pairs.weights
        logits = -pairs.distances / self.temperature
        is_positive = ops.cast(positive, "bool")
        everything = ops.logical_or(is_positive, ops.cast(negative, "bool"))
        exponentials = None
        if of_negatives is not None:
            exponentials = ops.where(is_positive, 1.0, of_negatives)
        log_total = masked_logsumexp(logits, everything, weights=exponentials)
        share = ops.cast(positive, "float32")
        count = ops.sum(share, axis=1)
        if of_positives is not None:
            share = share * ops.where(is_positive, of_positives, 0.0)
        lost = ops.where(is_positive, share * (log_total - logits), 0.0)
        divisor = ops.where(count > 0, count, 1.0)
        return self.reduce(ops.sum(lost, axis=1) / divisor, count > 0)


def _jaccard(sets: Tensor, others: Tensor) -> Tensor:
    """(B, R): the overlap of (B, C) and (R, C) sets; 0 if both are empty."""
    sets, others = (ops.cast(x, "float32") for x in (sets, others))
    both = ops.matmul(sets, ops.transpose(others))
    sizes = (ops.sum(x, axis=1) for x in (sets, others))
    first, second = sizes
    either = first[:, None] + second[None, :] - both
    return both / ops.where(either > 0, either, 1.0)
