"""Objective of ABE: the learners' losses, and their divergence."""

from typing import Any, Literal, TypeAlias, get_args

from keras import ops

from keras_dml import losses
from keras_dml.losses.pairs import IGNORE
from keras_dml.losses.regularizers import divergence
from keras_dml.model.objective import LossObjective
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Shape, Tensor

Pairs: TypeAlias = Literal["all", "constructed"]


@register
class DivergentObjective(LossObjective):
    """The learners' losses, and a term that keeps them apart (Eq. 8).

    "metric" is Σ_m L_metric,(m); "divergence" is Eq. 9, whose weight λ_div
    is the model's `loss_weights["divergence"]`.

    Args:
        loss: The loss of every learner, a loss of `keras_dml.losses`.
            Where it owns variables, every learner has its own.
        diverge: Whether there is a divergence term.
        divergence_margin: m_div, a squared distance.
        pairs: "all" pairs of a batch, or those "constructed" by
            `data.PairSampler`: the batch is `[anchors, partners]`, and only
            an anchor and its own partner are a pair.
        **kwargs: As for `Objective`.

    Call arguments:
        outputs: Dict with `"parts"`, (B, M, d).
        targets: Dict with `"label"`, (B,).

    Returns:
        `{"metric": (B,), "divergence": (B,)}`, the latter if `diverge`.

    Raises:
        ValueError: If `pairs` is unknown, or if "constructed" pairs are
            asked of a batch of odd size.

    Reference:
        Kim et al., "Attention-based Ensemble for Deep Metric Learning",
        ECCV 2018, Sec. 3.4 and 4.
    """

    def __init__(
        self,
        loss: losses.MetricLoss,
        diverge: bool = True,
        divergence_margin: float = 1.0,
        pairs: str = "all",
        **kwargs: Any,
    ) -> None:
        super().__init__(loss, **kwargs)
        check_choice("abe", "pairs", pairs, get_args(Pairs))
        self.diverge = diverge
        self.divergence_margin = divergence_margin
        self.pairs = pairs
        self.terms = ("metric", "divergence") if diverge else ("metric",)

    def build(self, outputs_shape: dict[str, Shape]) -> None:
        self.build_parts(outputs_shape)

    def call(
        self, outputs: dict[str, Tensor], targets: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        parts = outputs["parts"]
        labels = targets["label"]
        if self.pairs == "constructed":
            labels = constructed_pairs(labels)
        metric = sum(self.part_values(labels, parts))
        if not self.diverge:
            return {"metric": metric}
        apart = divergence(parts, self.divergence_margin)
        return {"metric": metric, "divergence": apart}


def constructed_pairs(labels: Tensor) -> Tensor:
    """The relation matrix of a batch `[anchors, partners]`.

    Args:
        labels: (B,) class ids; B even. Anchor i has partner i + B / 2.

    Returns:
        (B, B): 1 or 0 where two images are each other's partner, of one
        class or two; −1 elsewhere.

    Raises:
        ValueError: If B is odd.
    """
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
