"""Noise-contrastive estimation with a queue, and DiVA's DaNCE."""

import math

from keras import ops

from keras_dml.losses.distances import (
    inner_product,
    log_inverse_density,
    safe_sqrt,
)
from keras_dml.losses.reductions import masked_logsumexp
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.types import Tensor

AXES = {"queue_axis": 1, "batch_axis": 0}
"""The axis of (B, N) queries and keys along which weights sum to 1."""

WEIGHTINGS = ("paper", *AXES)


def nce(
    queries: Tensor,
    keys: Tensor,
    queue: Tensor,
    filled: Tensor | None = None,
    *,
    temperature: float = 0.1,
    weighting: str | None = None,
    limit: float | None = None,
    cutoff: float = 0.5,
    max_distance: float = 1.4,
    positive_in_denominator: bool | None = None,
) -> Tensor:
    r"""Noise-contrastive loss of each query against a queue of keys.

    For a query $q$ with the key $k$, and the inner product $s$,

    $$
    \ell = -\log \frac{e^{s(q, k) / \tau}}{\sum_n e^{w_n s(q, n) / \tau}} .
    $$

    No gradient passes through the keys, the queue or the weights.

    Args:
        queries: (B, D) unit embeddings.
        keys: (B, D) unit embeddings; row i is the positive of query i.
        queue: (N, D) unit embeddings, the negatives.
        filled: (N,) boolean: which rows of the queue hold a key. None: all
            rows. Empty slots are never compared.
        temperature: τ.
        weighting: The weights of the logits of the negatives.

            - None: no weights (plain NCE, Eq. 5).
            - "paper": w(d) = min(λ, 1/q(d)) (Eq. 6).
            - "queue_axis": w ∝ 1/q(d), with d clamped to at least `cutoff`
              and w = 0 beyond `max_distance`, scaled to sum to 1 over the
              queue for each query (the released code with `--diva_fixed`).
            - "batch_axis": the same, scaled to sum to 1 over the queries for
              each key (the runs that the authors released, without that flag).

            1/q(d) is the inverse density of distances on the sphere, up to
            its constant: see `distances.log_inverse_density`. With
            "queue_axis" there are hardly any negatives: of 3,360 keys each has
            a weight near 1/3,360. On random unit embeddings in 128
            dimensions, τ = 0.1 and a positive of cosine .95, the gradient on a
            query from negatives is .001 and from its positive .63 (means of
            256 queries), where plain NCE has .070 and .85.
        limit: λ of "paper". The paper does not state a value.
        cutoff: Lower bound of distances, for the two weightings along an axis.
        max_distance: Largest distance with a nonzero weight, likewise.
        positive_in_denominator: Whether to add exp(s(q, k)/τ) to the
            denominator. None: add it unless the weighting is "paper", as in
            MoCo and in the released code; the paper's equation does not contain
            it.

    Returns:
        (B,) float32; exactly 0 as long as the queue is empty.

    Raises:
        ValueError: If `weighting` is unknown, or `limit` is missing.

    Deviations:
        - Eq. 5 and 6 have φ(Ĩ_a) as the positive. Here it is φ*(Ĩ_a), a key of
          the momentum network without a gradient, as in MoCo and in the
          released code.

    Reference:
        Milbich et al., "DiVA: Diverse Visual Feature Aggregation for Deep
        Metric Learning", ECCV 2020, Eq. 5 and 6.
    """
    if weighting is not None:
        check_choice("nce", "weighting", weighting, WEIGHTINGS)
    if positive_in_denominator is None:
        positive_in_denominator = weighting != "paper"
    queries = ops.cast(queries, "float32")
    keys = ops.stop_gradient(ops.cast(keys, "float32"))
    queue = ops.stop_gradient(ops.cast(queue, "float32"))
    similarity = inner_product(queries, queue)  # (B, N)
    used = ops.ones_like(similarity, dtype="bool")
    if filled is not None:
        used = ops.logical_and(used, ops.cast(filled, "bool")[None, :])

    logits = similarity / temperature
    if weighting is not None:
        distance = safe_sqrt(2.0 - 2.0 * ops.stop_gradient(similarity))
        # log 0 is −∞, but min(λ, ∞) is λ.
        least = math.ldexp(1.0, -20) if weighting == "paper" else cutoff
        log_weights = log_inverse_density(
            ops.maximum(distance, least), queries.shape[-1]
        )
        if weighting in AXES:
            near = ops.logical_and(used, distance <= max_distance)
            log_weights = log_weights - masked_logsumexp(
                log_weights, near, AXES[weighting]
            )
            weights = ops.exp(ops.where(near, log_weights, 0.0))
            weights = ops.where(near, weights, 0.0)
        elif limit is not None and limit > 0:
            weights = ops.exp(ops.minimum(log_weights, math.log(limit)))
        else:
            raise ValueError(
                '`limit` of nce, the λ of weighting="paper", must be greater '
                f"than 0. Received: limit={limit}. The paper gives no value; "
                'weighting="queue_axis" needs none.'
            )
        logits = logits * weights
    positive = ops.sum(queries * keys, axis=1) / temperature
    negatives = masked_logsumexp(logits, used)[:, 0]
    values = negatives - positive
    if positive_in_denominator:
        values = ops.softplus(values)
    return ops.where(ops.any(used, axis=1), values, 0.0)
