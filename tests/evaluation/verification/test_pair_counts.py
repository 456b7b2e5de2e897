"""Counts of pairs against a loop over all of them."""

from keras_dml.evaluation.verification.pair_counts import (
    CELLS,
    Factors,
    count_pairs,
    threshold_at,
)
from tests.evaluation.verification.all_pairs import embeddings, pairs


def test_counts_are_those_of_a_loop_over_all_pairs() -> None:
    x, labels = embeddings()
    same, other = pairs(x, labels)
    counts = count_pairs(Factors.of(x, x, "cosine"), labels)
    assert (counts.positives, counts.negatives) == (len(same), len(other))
    for position in (0, CELLS // 2, CELLS // 2 + 300_001, CELLS - 7, CELLS):
        threshold = threshold_at(position)
        assert counts.accepted_positive[position] == (same >= threshold).sum()
        assert counts.accepted_negative[position] == (other >= threshold).sum()
