"""Accuracy of verification in folds, the protocol of LFW."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keras_dml.data.relations import PairSet
from keras_dml.evaluation.pair_counts import Trials, threshold_at
from keras_dml.evaluation.ranks.scores import DistanceName
from keras_dml.evaluation.verification import check_pair_set, factors_of
from keras_dml.utils.arguments import check_arguments, check_count
from keras_dml.utils.types import Rows


@dataclass(frozen=True)
class FoldAccuracy:
    """Accuracy of verification, by folds.

    Attributes:
        mean: Mean of the accuracies.
        standard_error: Their standard deviation, divided by √(number of folds).
        accuracies: Share of right answers in each fold, by a threshold of the
            other folds.
        thresholds: The threshold for each fold, in the scores of the distance.
    """

    mean: float
    standard_error: float
    accuracies: tuple[float, ...]
    thresholds: tuple[float, ...]

    def __str__(self) -> str:
        return (
            f"{self.mean:.4f} ± {self.standard_error:.4f} "
            f"({len(self.accuracies)} folds)"
        )


@check_arguments
def fold_accuracy(
    embeddings: Any,
    pairs: PairSet,
    folds: Any = 10,
    *,
    distance: DistanceName = "cosine",
) -> FoldAccuracy:
    """Measures how many trials a threshold of the other folds decides right.

    This is the 10-fold accuracy of LFW: the threshold is chosen on nine folds,
    where most answers are right, and measured on the tenth. If several are
    equally good, it is the middle between the lowest two neighboring scores.

    Args:
        embeddings: Of the examples of the pairs, in their order, (N, D).
        pairs: The trials, with 1 for same and 0 for different subjects.
        folds: Number of folds, which are consecutive pairs, as in LFW's list:
            10 times 300 of the same and 300 of different subjects. Or the fold
            of each pair, (P,) integers or strings.
        distance: "cosine", "euclidean" or "dot". Thresholds are 2⁻²⁰ apart on
            scores scaled to −1 to 1.

    Raises:
        ValueError: If an argument is not as described, or a fold lacks positive
            or negative pairs.

    Example:

    ```python
    print(fold_accuracy(embed(model, images), pairs))
    ```

    Reference:
        Huang et al., "Labeled Faces in the Wild: A Database for Studying Face
        Recognition in Unconstrained Environments", 2007, section 3.
    """
    owner = "fold_accuracy"
    check_pair_set(pairs, owner)
    factors = factors_of(embeddings, distance, owner)
    cells, positive = Trials(factors, pairs, owner).cells, pairs.positive
    numbers = _fold_of_pairs(folds, len(cells))
    accuracies, positions = [], []
    for fold in np.unique(numbers):
        is_out = numbers == fold
        if len(np.unique(positive[is_out])) < 2:
            raise ValueError(
                f"`folds` of {owner} must each have positive and negative "
                f"pairs. Received: {is_out.sum()} of one kind in fold "
                f"{fold + 1}. Use the fold of each pair, for "
                "instance folds=np.random.default_rng(0).integers(10, "
                "size=len(pairs))."
            )
        position = _best_position(cells[~is_out], positive[~is_out])
        is_right = (cells[is_out] >= position) == positive[is_out]
        accuracies.append(float(is_right.mean()))
        positions.append(position)
    thresholds = factors.outer(threshold_at(np.array(positions)))
    deviation = np.std(accuracies, ddof=1) / len(accuracies) ** 0.5
    return FoldAccuracy(
        float(np.mean(accuracies)),
        float(deviation),
        tuple(accuracies),
        tuple(thresholds.tolist()),
    )


def _fold_of_pairs(folds: Any, count: int) -> Rows:
    """The fold of each pair, numbered from 0, (P,)."""
    owner = "fold_accuracy"
    if np.ndim(folds) == 0:
        num_folds = check_count(owner, "folds", folds, minimum=2)
        return np.arange(count) * num_folds // count
    names, numbers = np.unique(np.asarray(folds), return_inverse=True)
    if np.shape(folds) != (count,) or len(names) < 2:
        raise ValueError(
            f"`folds` of {owner} must be a number, or the fold of each of the "
            f"{count} pairs, at least two different ones. Received: folds of "
            f"shape {np.shape(folds)}, {len(names)} different. Use folds=10."
        )
    return numbers.astype(np.int64)


def _best_position(cells: Rows, positive: NDArray[np.bool_]) -> int:
    """The position of the threshold that decides the most pairs right."""
    alike, apart = np.sort(cells[positive]), np.sort(cells[~positive])
    # Between two neighboring positions, all answers are the same.
    positions = np.unique(cells)
    positions = np.append(positions, positions[-1] + 1)
    missed = np.searchsorted(alike, positions)
    right = len(alike) - missed + np.searchsorted(apart, positions)
    best = int(right.argmax())
    low = positions[max(best - 1, 0)]
    return int(low + positions[best] + 1) // 2
