"""The examples of the docstrings, in numbers."""

import numpy as np
import pytest

from keras_dml.evaluation import Limits
from keras_dml.evaluation.ranks.positives import (
    BEYOND,
    Keys,
    Pairs,
    RankedPositives,
)
from keras_dml.evaluation.ranks.relevance import Positives

QUERY = slice(0, 1)


def example(limits: Limits) -> RankedPositives:
    positives = Positives(np.array([0, 3]), np.array([2, 4, 7]))
    return RankedPositives(positives, np.array([0.5, 0.9, 0.2]), limits)


def images(*scores: float, rows: list[int]) -> Pairs:
    count = len(scores)
    zeros = np.zeros(count, int)
    return Pairs(zeros, np.array(rows), np.array(scores), np.zeros(count))


def test_ranks_are_sums_of_what_is_noted() -> None:
    ranked = example(Limits(every=100))
    np.testing.assert_array_equal(ranked.items, [7, 2, 4])
    pairs = images(0.95, 0.7, 0.6, 0.5, 0.1, rows=[3, 8, 6, 1, 5])
    above = ranked.advance(np.zeros(5, int), pairs, pairs.score)
    np.testing.assert_array_equal(above, [3, 2, 2, 2, 0])
    ranked.note(QUERY, above[above > 0] - 1)
    np.testing.assert_array_equal(ranked.ranks(), [2, 6, 7])


@pytest.mark.parametrize(
    ("limits", "cutoff", "ranks"),
    [
        (Limits(every=5), 0.9, [2, BEYOND, BEYOND]),
        (Limits(every=6), 0.5, [2, 6, BEYOND]),
        (Limits(first=5), 0.9, [2, BEYOND, BEYOND]),
        (Limits(extra=4), 0.2, [2, 6, 7]),
        (Limits(first=1), np.inf, [BEYOND] * 3),
    ],
)
def test_what_is_beyond_its_limit_matters_no_more(
    limits, cutoff, ranks
) -> None:
    ranked = example(limits)
    ranked.note(QUERY, np.array([1, 1, 1, 2]))
    assert ranked.cutoffs(QUERY)[0] == cutoff
    np.testing.assert_array_equal(ranked.ranks(), ranks)


def test_one_search_finds_the_places_of_two_queries() -> None:
    positives = Positives(np.array([0, 3, 5]), np.arange(5))
    scores = np.array([0.2, 0.5, 0.9, -0.3, 0.4])
    ranked = RankedPositives(positives, scores, Limits(every=9))
    keys = Keys(ranked, slice(0, 2), 0.0)
    pairs = Pairs(
        np.array([1, 1, 0, 1]),
        np.full(4, 9),
        np.array([0.1, -0.5, 0.95, 0.4001]),
        np.array([0.01, 0.01, 0.01, 0.01]),
    )
    places, unsure = keys.locate(pairs)
    np.testing.assert_array_equal(places, [4, 3, 3, 5])
    np.testing.assert_array_equal(unsure, [3])
    np.testing.assert_array_equal(keys.lower_bounds(pairs), [4, 3, 3, 4])
