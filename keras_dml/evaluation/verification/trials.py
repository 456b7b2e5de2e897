"""Trials: lists of pairs to be verified, as positive or negative pairs."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from keras_dml.data.relations import PairSet
from keras_dml.evaluation.metrics import expanded
from keras_dml.evaluation.ranks.scores import DistanceName
from keras_dml.evaluation.resampling import (
    FEWEST_CLASSES,
    Interval,
    percentiles,
    times_drawn,
)
from keras_dml.evaluation.verification.pair_counts import (
    CELLS,
    Drawn,
    Factors,
    PairCounts,
    from_each_on,
    quantile_positions,
    scored_cells,
)
from keras_dml.utils.arguments import checked
from keras_dml.utils.arrays import as_rows, as_unit_rows
from keras_dml.utils.progress import tracked
from keras_dml.utils.types import Fraction, NonNegativeInt, Rows

_QUANTILES = 1024
"""Thresholds of a list are dense: it has fewer pairs than all pairs are."""


class Trials:
    """The pairs of a `PairSet` with their scores.

    Args:
        factors: The factors of the examples, (N, d) both.
        pairs: The trials.
        owner: The function with these arguments.
        progress: Whether to show it; None shows it in a terminal.

    Raises:
        ValueError: If there is not one embedding per example.
    """

    def __init__(
        self,
        factors: Factors,
        pairs: PairSet,
        owner: str,
        progress: bool | None = False,
    ) -> None:
        count = len(factors.left)
        if count != len(pairs.examples):
            raise ValueError(
                f"`embeddings` of {owner} must be those of the examples of "
                f"the PairSet, in their order. Received: {count} embeddings "
                f"for {len(pairs.examples)} examples."
            )
        self._first, self._second = pairs.rows.T
        self._is_positive = pairs.positive
        self._cells = scored_cells(factors, self._first, self._second)
        self._subjects = subjects_of(pairs)
        self._progress = progress

    @cached_property
    def counts(self) -> PairCounts:
        """How many trials reach each threshold."""
        tallies = [
            np.bincount(self._cells[chosen], minlength=CELLS + 1)
            for chosen in (self._is_positive, ~self._is_positive)
        ]
        return PairCounts.of(*tallies)

    @property
    def num_classes(self) -> int:
        """Number of subjects."""
        return len(np.unique(self._subjects[[self._first, self._second]]))

    def drawn(self, num_resamples: int, seed: int, positions: Rows) -> Drawn:
        """Trials of samples of the subjects, as `AllPairs.drawn` has pairs."""
        used = self._subjects[[self._first, self._second]]
        found = np.unique(used, return_inverse=True)
        first, second = found[1].reshape(used.shape)
        rng = np.random.default_rng(seed)
        samples = times_drawn(rng, num_resamples, len(found[0]))
        bins = np.searchsorted(positions, self._cells, side="right")
        shape = num_resamples, len(positions) + 1
        hits, false = np.empty((2, *shape))
        lowest, highest = np.empty((2, num_resamples), np.int64)
        # Trials of one subject count as often as it is drawn.
        is_one = first == second
        kinds = self._is_positive, ~self._is_positive
        about = "Drawing subjects for the interval", self._progress
        for sample, times in enumerate(tracked(samples, num_resamples, *about)):
            weights = times[first] * np.where(is_one, 1, times[second])
            hits[sample], false[sample] = (
                np.bincount(bins[kind], weights[kind], shape[1])
                for kind in kinds
            )
            alike, apart = (self._cells[kind & (weights > 0)] for kind in kinds)
            lowest[sample] = alike.min(initial=CELLS)
            highest[sample] = apart.max(initial=-1)
        return Drawn(from_each_on(hits), from_each_on(false), lowest, highest)


def subjects_of(pairs: PairSet) -> Rows:
    """The subject of every example, numbered, (N,).

    It is the label of the examples. Without labels, examples that positive
    pairs connect are of one subject.
    """
    labels = pairs.examples.labels
    if labels is not None and np.ndim(labels) == 1:
        subjects: Rows = np.unique(labels, return_inverse=True)[1]
        return subjects
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(pairs.examples)
    first, second = pairs.rows[pairs.positive].T
    joins = coo_array(
        (np.ones(len(first), bool), (first, second)), (count, count)
    )
    return connected_components(joins, directed=False)[1].astype(np.int64)


@checked
def evaluate_trials(
    embeddings: Any,
    pairs: PairSet,
    metrics: str | Sequence[str] = ("eer", "tpr@fpr=0.01", "min_dcf=0.01"),
    *,
    distance: DistanceName = "cosine",
    confidence: Fraction = 0.95,
    num_resamples: NonNegativeInt = 1000,
    seed: int = 0,
    progress: bool | None = None,
) -> dict[str, Interval]:
    """Measures verification (1:1) on a list of trials.

    This is the protocol of VoxCeleb, LFW and IJB: only the pairs of the list
    are compared. `calibrate` chooses a threshold from the same list.

    Args:
        embeddings: Of the examples of the pairs, in their order, (N, D); see
            `embed`.
        pairs: The trials, with 1 for same and 0 for different subjects.
        metrics: Names of metrics of pairs in `METRICS`: "eer", "tpr@fpr=0.01"
            (TAR at FAR), "min_dcf=0.01", "fnmr@fmr=0.01".
        distance: "cosine", "euclidean" or "dot". Thresholds are 2⁻²⁰ apart on
            scores scaled to −1 to 1.
        confidence: Probability mass of the intervals.
        num_resamples: Number of bootstrap samples of the subjects, see
            `calibrate`; 0 for no intervals.
        seed: Seed of the draws.
        progress: Whether to show progress, after two seconds; None shows it in
            a terminal.

    Returns:
        Each metric by name. The ends of its interval are NaN without one: with
        fewer than 5 subjects, samples repeat each other too often.

    Raises:
        ValueError: If an argument is not as described, or positive or negative
            pairs are missing.

    Example:

    ```python
    pairs = PairSet(images, [[0, 1], [0, 2]], positive=[1, 0])
    results = evaluate_trials(embed(model, images), pairs)
    ```
    """
    owner = "evaluate_trials"
    if not isinstance(pairs, PairSet):
        raise ValueError(
            f"`pairs` of {owner} must be a PairSet. Received: pairs of type "
            f"{type(pairs).__name__}. Use keras_dml.data.PairSet(examples, "
            "pairs, positive)."
        )
    chosen = expanded(metrics, (), owner)
    for metric in chosen:
        if metric.of != "pairs":
            raise ValueError(
                f"`metrics` of {owner} must be metrics of pairs, such as "
                f"'eer' or 'tpr@fpr=0.01'. Received: {metric.name!r}, of "
                f"{metric.of}. Use evaluate."
            )
    as_given = as_unit_rows if distance == "cosine" else as_rows
    x = as_given(embeddings, "embeddings", owner)
    trials = Trials(Factors.of(x, x, distance), pairs, owner, progress)
    counts = trials.counts
    if not (counts.positives and counts.negatives):
        raise ValueError(
            f"`pairs` of {owner} must be positive and negative ones. Received: "
            f"{counts.positives} positive and {counts.negatives} negative "
            "pairs. Use `positive` of PairSet, 1 and 0."
        )
    samples: list[PairCounts] = []
    if num_resamples and trials.num_classes >= FEWEST_CLASSES:
        positions = quantile_positions(counts, _QUANTILES)
        drawn = trials.drawn(num_resamples, seed, positions)
        samples = list(map(PairCounts, drawn.hits, drawn.false))
    results = {}
    for metric in chosen:
        estimate = metric.of_whole(counts)
        values = np.array([metric.of_whole(x) for x in samples])
        ends = percentiles(values, estimate, confidence) or (np.nan, np.nan)
        results[metric.name] = Interval(estimate, *ends)
    return results
