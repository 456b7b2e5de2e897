"""Names of metrics, as users write them."""

from collections.abc import Sequence

from keras_dml.evaluation import clustering, embedding_space, ranking
from keras_dml.utils.arguments import did_you_mean

AT_K = tuple(f"{name}@k" for name in ranking.METRICS_AT_K)

KNOWN = (
    *AT_K,
    *ranking.METRICS,
    *clustering.METRICS,
    *embedding_space.METRICS,
)


def expanded(
    metrics: str | Sequence[str], ks: Sequence[int], owner: str
) -> list[str]:
    """Names of metrics with every `@k` replaced by each of `ks`.

    Args:
        metrics: Names, or one name.
        ks: What k stands for.
        owner: The function whose arguments they are.

    Returns:
        Different names, in order.

    Raises:
        ValueError: If a name is unknown, or k is needed and not positive.
    """
    names: dict[str, None] = {}
    for metric in [metrics] if isinstance(metrics, str) else metrics:
        if metric in AT_K:
            names.update(
                (metric[:-1] + str(k), None) for k in _checked(ks, owner)
            )
        elif metric in KNOWN or ranking.ranking_metric(metric):
            names[metric] = None
        else:
            raise ValueError(_unknown(metric, owner))
    if not names:
        raise ValueError(
            f"`metrics` of {owner} must name at least one metric. Received: "
            f"metrics={metrics!r}. Use some of {KNOWN}."
        )
    return list(names)


def _checked(ks: Sequence[int], owner: str) -> Sequence[int]:
    if not len(ks) or any(k != int(k) or k < 1 for k in ks):
        raise ValueError(
            f"`ks` of {owner} must be positive integers. Received: "
            f"ks={ks!r}. Use for example ks=(1, 2, 4, 8)."
        )
    return [int(k) for k in ks]


def _unknown(metric: object, owner: str) -> str:
    candidates = [*KNOWN, *(name[:-1] + "1" for name in AT_K)]
    hint = did_you_mean(str(metric).lower(), candidates)
    return (
        f"`metrics` of {owner} must be known metrics. Received: "
        f"{metric!r}.{hint} Known: {', '.join(KNOWN)}, where k is a positive "
        "integer, or the letter for each of `ks`."
    )
