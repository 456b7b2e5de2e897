"""Contrastive loss in hyperbolic space, the Poincaré ball."""

import math
from typing import Any

from keras import ops

from keras_dml.losses.base import LOSSES, MetricLoss
from keras_dml.losses.distances import safe_sqrt, squared_distance
from keras_dml.losses.pairs import Batch
from keras_dml.losses.reductions import masked_logsumexp
from keras_dml.utils.types import Positive, Tensor

# Points stay this far inside the unit ball, for the precision of float32.
_RIM_WIDTH = 1e-3


@LOSSES.register(
    "hyperbolic", examples={"curvature": 0.3, "clip": 1.1, "normalize": True}
)
class HyperbolicContrastiveLoss(MetricLoss):
    r"""Hyperbolic contrastive: NT-Xent with distances in the Poincaré ball.

    For each positive pair, with the negatives $N_a$ of the anchor and the
    hyperbolic distance $D$,

    $$
    \ell_{ap} = -\log \frac{e^{-D(a, p) / \tau}}
    {e^{-D(a, p) / \tau} + \sum_{n \in N_a} e^{-D(a, n) / \tau}} .
    $$

    Embeddings are clipped to length r at most, and mapped into the ball of
    curvature −c by the exponential map at the origin, where

    $$
    x = \tanh\left( \sqrt{c} \, \|v\| \right) \frac{v}{\sqrt{c} \, \|v\|} ,
    \qquad
    D(x, y) = \frac{2}{\sqrt{c}} \operatorname{arsinh}
    \sqrt{\frac{c \, \|x - y\|^2}{(1 - c \|x\|^2)(1 - c \|y\|^2)}} .
    $$

    Terms are positive pairs; `pair_weights` multiply them, and the
    exponentials of negative pairs.

    When to use it:
        Hierarchies of classes; embeddings that are not normalized.

    Labels:
        (B,) class ids, integers of any size or strings; (B, C) booleans, for
        several labels per example; or a (B, R) relation matrix of 1 (positive),
        0 (negative) and −1 (ignored). See `MetricLoss`.

    Args:
        curvature: c. As c approaches 0, the space becomes Euclidean.
        clip: r, which prevents vanishing gradients near the boundary of the
            ball. None: no clipping.
        temperature: τ.
        normalize: As for `MetricLoss`; False by default, because the length of
            an embedding represents how general it is.
        reduction, **kwargs: As for `MetricLoss`.

    Raises:
        ValueError: If `curvature`, `clip` or `temperature` is not positive.

    Requirements:
        Embeddings of any length. Embeddings of the methods have unit length, so
        they would lie on one sphere of the ball: use `baseline(...,
        loss_input="activation")`, or your own Keras model with
        `compile(loss=HyperbolicContrastiveLoss())`. After training, compare
        them by `poincare_distance`; for those longer than `clip`, it ranks as
        the cosine does.

    Deviations:
        - D is expressed by arsinh, which equals the paper's 2/√c · artanh(√c
          ‖−x ⊕ y‖) and requires a single matrix product. Its gradient at
          distance 0 is 0.
        - The authors' code compares pairs of views with one image per class.
          Here, as in `NTXentLoss`, all examples of other classes in the batch
          are negatives of an anchor, and its other positives are ignored.
        - The gradient is that of the formula, as in the authors' code, which
          can also rescale it by the inverse of the metric of the ball, (1 −
          c‖x‖²)²/4, but does not.
        - Points are kept 0.1 % away from the boundary, as in the authors' code.

    Also known as:
        None of the compared libraries has an equivalent.

    Example:
        `HyperbolicContrastiveLoss(curvature=0.3)(labels, embeddings)`

    Reference:
        Ermolov et al., "Hyperbolic Vision Transformers: Combining Improvements
        in Metric Learning", CVPR 2022, Eq. 1 to 6 (numbers not verified),
        https://arxiv.org/abs/2203.10833; clipping: Guo et al., "Clipped
        Hyperbolic Classifiers Are Super-Hyperbolic Classifiers", CVPR 2022.
    """

    weights_pairs = True
    needs_triplets = True

    def __init__(
        self,
        curvature: Positive = 0.1,
        clip: Positive | None = 2.3,
        temperature: Positive = 0.2,
        reduction: str = "mean",
        normalize: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(reduction, normalize, **kwargs)
        self.curvature = curvature
        self.temperature = temperature
        self.clip = clip

    def call(self, batch: Batch) -> Tensor:
        pairs = batch.compare("squared")  # for its masks
        distances = poincare_distance(
            batch.embeddings, batch.ref_embeddings, self.curvature, self.clip
        )
        logits = -distances / self.temperature
        positive_weights, negative_weights = pairs.weights
        negatives = masked_logsumexp(
            logits, pairs.negative, weights=negative_weights
        )
        terms = ops.softplus(negatives - logits)
        return self.reduce(terms, pairs.positive, positive_weights)


def poincare_distance(
    x: Tensor,
    refs: Tensor | None = None,
    curvature: float = 0.1,
    clip: float | None = 2.3,
) -> Tensor:
    """Hyperbolic distances of all rows, which are mapped to the Poincaré ball.

    Args:
        x: (B, D) embeddings, in the tangent space at the origin.
        refs: (R, D), likewise; `x` by default.
        curvature: c, as for `HyperbolicContrastiveLoss`.
        clip: r, likewise.

    Returns:
        (B, R).
    """
    root = math.sqrt(curvature)
    x = _to_ball(x, root, clip)
    ref_points = None if refs is None else _to_ball(refs, root, clip)
    squared = squared_distance(x, ref_points)
    rows = 1.0 - ops.sum(ops.square(x), axis=1)
    columns = rows
    if ref_points is not None:
        columns = 1.0 - ops.sum(ops.square(ref_points), axis=1)
    ratio = squared / (rows[:, None] * columns[None, :])
    return (2.0 / root) * ops.arcsinh(safe_sqrt(ratio))


def _to_ball(v: Tensor, root: float, clip: float | None) -> Tensor:
    """√c times the exponential map: points of the ball of radius 1."""
    norm = safe_sqrt(ops.sum(ops.square(v), axis=1, keepdims=True))
    length = norm if clip is None else ops.minimum(norm, clip)
    radius = ops.minimum(ops.tanh(root * length), 1.0 - _RIM_WIDTH)
    return v * (radius / ops.where(norm > 0, norm, 1.0))
