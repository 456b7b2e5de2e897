"""Confidence intervals of results, and paired comparisons of two models."""

import numpy as np

from keras_dml.evaluation.resampling import Difference, Interval, resampled
from keras_dml.evaluation.results import Results
from keras_dml.utils.types import Rows


def bootstrap(
    results: Results,
    *,
    confidence: float = 0.95,
    num_resamples: int = 1000,
    units: str = "queries",
    seed: int = 0,
) -> dict[str, Interval]:
    """Confidence intervals of the retrieval metrics, by percentiles.

    Args:
        results: The result of `evaluate`.
        confidence: Probability mass of the intervals.
        num_resamples: Number of bootstrap samples.
        units: What is drawn with replacement: "queries", with fixed classes;
            or "classes" with all their queries, which measures how the metric
            varies with the classes in the test set, and gives wider intervals.
            With fewer than 5 classes there are none: their ends are NaN.
        seed: Seed of the draws.

    Returns:
        An interval for each retrieval metric.

    Raises:
        ValueError: If an argument is not as described.

    Reference:
        Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
        sections 13.3 and 8.3.
    """
    if not results.per_query:
        raise ValueError(
            "`results` of bootstrap must have a retrieval metric. Received: "
            f"{tuple(results)}. Add one to `metrics` of evaluate."
        )
    options = confidence, num_resamples, units, seed
    labels = results.query_labels
    weights = {name: results.weights(name) for name in results.per_query}
    found = resampled("bootstrap", results.per_query, weights, labels, *options)
    return {name: interval for name, (interval, _) in found.items()}


class Comparison(dict[str, Difference]):
    """Differences of two results on the same queries, by metric."""

    def __init__(
        self,
        first: Results,
        second: Results,
        differences: dict[str, Difference],
    ) -> None:
        super().__init__(differences)
        self._first = first
        self._second = second

    def better(self, metric: str) -> Rows:
        """Returns rows of queries where the second is better, largest gain
        first."""
        return self._ordered(metric, sign=1)

    def worse(self, metric: str) -> Rows:
        """Returns rows of queries where the second is worse, largest loss
        first."""
        return self._ordered(metric, sign=-1)

    def _ordered(self, metric: str, sign: int) -> Rows:
        gain = self._second.per_query[metric] - self._first.per_query[metric]
        gain = sign * gain
        order = np.argsort(-gain, kind="stable")
        return self._first.query_rows[order[: int((gain > 0).sum())]]

    def __str__(self) -> str:
        width = max(len(name) for name in self)
        return "\n".join(
            f"{name:<{width}}  {difference.estimate:+.4f} "
            f"[{difference.low:+.4f}, {difference.high:+.4f}], better in "
            f"{difference.share_better:.1%} of resamples"
            for name, difference in self.items()
        )


def compare(
    first: Results,
    second: Results,
    *,
    confidence: float = 0.95,
    num_resamples: int = 1000,
    units: str = "queries",
    seed: int = 0,
) -> Comparison:
    """Paired comparison of two models on the same queries.

    Every resample uses the same queries for both models, so the difficulty of
    queries that are hard for both cancels out.

    Args:
        first: Results of the first model.
        second: Results of the second.
        confidence, num_resamples, units, seed: See `bootstrap`.

    Returns:
        The second minus the first, for each retrieval metric that both have.

    Raises:
        ValueError: If the queries differ, or an argument is not as described.

    Reference:
        Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
        sections 13.3 and 15.4; for p values that are never zero, Davison
        and Hinkley, "Bootstrap Methods and their Application", 1997,
        section 4.4.
    """
    same = np.array_equal(first.query_rows, second.query_rows)
    if not same or not np.array_equal(first.query_labels, second.query_labels):
        raise ValueError(
            "`first` and `second` of compare must have the same queries. "
            f"Received: {first.num_queries} and {second.num_queries} queries, "
            f"{'the same rows' if same else 'different rows'}. Evaluate "
            "both on the same images and protocol."
        )
    gains = {
        name: second.per_query[name] - values
        for name, values in first.per_query.items()
        if name in second.per_query
    }
    if not gains:
        raise ValueError(
            "`first` and `second` of compare must share a retrieval "
            f"metric. Received: {tuple(first)} and {tuple(second)}."
        )
    options = confidence, num_resamples, units, seed
    weights = {name: first.weights(name) for name in gains}
    found = resampled("compare", gains, weights, first.query_labels, *options)
    differences = {}
    for name, (gain, means) in found.items():
        # On the smaller side of zero, with what was measured among them.
        smaller = 1 + min((means <= 0).sum(), (means >= 0).sum())
        share = float((means > 0).mean() + 0.5 * (means == 0).mean())
        tests = share, float(min(1, 2 * smaller / (num_resamples + 1)))
        if np.isnan(gain.low):
            tests = np.nan, np.nan
        ends = gain.low, gain.high
        differences[name] = Difference(gain.estimate, *ends, *tests)
    return Comparison(first, second, differences)
