"""Triplet loss against loops over triplets."""

import math

import pytest

from keras_dml.losses import TripletLoss
from tests.losses.oracle import LABELS, check_against_loop, sets, unit


def squared(u, v):
    return sum((u - v) ** 2)


def euclidean(u, v):
    return math.sqrt(sum((u - v) ** 2))


def hinge(gap):
    return max(0.0, gap)


def softplus(gap):
    return math.log1p(math.exp(gap))


def semihard(to_positive, to_negatives):
    """The closest negative beyond the positive, or the farthest of all."""
    beyond = [d for d in to_negatives if d > to_positive]
    return [min(beyond) if beyond else max(to_negatives)]


def every(to_positive, to_negatives):
    return to_negatives


def triplet_terms(labels, x, distance, margin, link, choose):
    x = unit(x)
    terms = []
    for a, same, other in sets(labels):
        if not same or not other:
            continue
        to_positives = [distance(x[a], x[p]) for p in same]
        to_negatives = [distance(x[a], x[n]) for n in other]
        for to_positive in to_positives:
            for to_negative in choose(to_positive, to_negatives):
                terms.append(link(to_positive - to_negative + margin))
    return terms


@pytest.mark.parametrize("mining", ["semihard", "all"])
def test_soft_margin_and_euclidean_distance(mining):
    choose = every if mining == "all" else semihard

    def loop(labels, x):
        terms = triplet_terms(labels, x, euclidean, 0.3, softplus, choose)
        return sum(terms) / len(labels)

    loss = TripletLoss(
        0.3,
        soft_margin=True,
        distance="euclidean",
        mining=mining,
        reduction="sum_over_pairs",
    )
    check_against_loop(loss, loop, LABELS["unbalanced"])


def test_batch_all_mean_over_violated_triplets():
    def loop(labels, x):
        terms = triplet_terms(labels, x, squared, 0.2, hinge, every)
        violated = [term for term in terms if term > 0]
        assert 0 < len(violated) < len(terms)
        return sum(violated) / len(violated)

    loss = TripletLoss(mining="all", reduction="mean_nonzero")
    check_against_loop(loss, loop, LABELS["balanced"])


def test_cosine_similarity_turns_the_inequality_round():
    def loop(labels, x):
        terms = triplet_terms(
            labels, x, lambda u, v: -(u @ v), 0.1, hinge, every
        )
        return sum(terms) / len(terms)

    loss = TripletLoss(0.1, distance="cosine", mining="all")
    check_against_loop(loss, loop, LABELS["balanced"])
