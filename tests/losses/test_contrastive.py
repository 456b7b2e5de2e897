"""Contrastive loss against a loop over pairs."""

import numpy as np
import pytest

from keras_dml.losses import ContrastiveLoss
from tests.losses.oracle import (
    LABELS,
    batch,
    check_against_loop,
    sets,
    unit,
    value_and_gradient,
)


def pair_terms(labels, x, term_positive, term_negative):
    x = unit(x)
    positives, negatives = [], []
    for a, same, other in sets(labels):
        for p in same:
            positives.append(term_positive(x[a], x[p]))
        for n in other:
            negatives.append(term_negative(x[a], x[n]))
    return positives, negatives


def mean(terms):
    return sum(terms) / len(terms) if terms else 0.0


def test_squared_form_is_abe_eq_10():
    def loop(labels, x):
        positives, negatives = pair_terms(
            labels,
            x,
            lambda u, v: sum((u - v) ** 2),
            lambda u, v: max(0.0, 1.0 - sum((u - v) ** 2)),
        )
        return (sum(positives) + sum(negatives)) / len(labels)

    loss = ContrastiveLoss(reduction="sum_over_pairs")
    check_against_loop(loss, loop, LABELS["unbalanced"])


def test_plain_form_is_attentive_grouping_eq_1():
    def loop(labels, x):
        positives, negatives = pair_terms(
            labels,
            x,
            lambda u, v: np.linalg.norm(u - v),
            lambda u, v: max(0.0, 1.3 - np.linalg.norm(u - v)),
        )
        return mean(positives) + mean(negatives)

    loss = ContrastiveLoss(
        negative_margin=1.3, distance="euclidean", reduction="mean"
    )
    check_against_loop(loss, loop, LABELS["unbalanced"])


def test_two_margins_squared_hinges_and_mean_over_nonzero():
    def loop(labels, x):
        positives, negatives = pair_terms(
            labels,
            x,
            lambda u, v: max(0.0, np.linalg.norm(u - v) - 0.9) ** 2,
            lambda u, v: max(0.0, 1.4 - np.linalg.norm(u - v)) ** 2,
        )
        return mean([t for t in positives if t > 0]) + mean(
            [t for t in negatives if t > 0]
        )

    loss = ContrastiveLoss(0.9, 1.4, power=2, distance="euclidean")
    check_against_loop(loss, loop, LABELS["balanced"])


@pytest.mark.parametrize(
    ("reduction", "weight"), [("mean", 1.0), ("mean_nonzero", 10.0)]
)
def test_one_mean_over_both_kinds_of_pairs(reduction, weight):
    """As in HDC's released code, whose negatives weigh `factor` as much."""

    def loop(labels, x):
        positives, negatives = pair_terms(
            labels,
            x,
            lambda u, v: sum((u - v) ** 2),
            lambda u, v: weight * max(0.0, 1.5 - sum((u - v) ** 2)),
        )
        terms = positives + negatives
        if reduction == "mean_nonzero":
            terms = [t for t in terms if t > 0]
        return mean(terms)

    loss = ContrastiveLoss(
        negative_margin=1.5, negative_weight=weight, joint=True,
        reduction=reduction,
    )  # fmt: skip
    check_against_loop(loss, loop, LABELS["balanced"])
    labels = np.array(LABELS["balanced"])
    x = batch(labels).astype("f4")
    ones = np.ones((len(x), len(x)), "f4")
    weighted = loss.per_example(labels, x, pair_weights=(ones, ones))
    np.testing.assert_allclose(weighted, loss.per_example(labels, x), rtol=1e-6)


def test_similarities_turn_the_inequalities_round():
    def loop(labels, x):
        positives, negatives = pair_terms(
            labels,
            x,
            lambda u, v: max(0.0, 0.8 - u @ v),
            lambda u, v: max(0.0, u @ v - 0.1),
        )
        return (sum(positives) + sum(negatives)) / len(labels)

    loss = ContrastiveLoss(
        0.8, 0.1, distance="cosine", reduction="sum_over_pairs"
    )
    check_against_loop(loss, loop, LABELS["unbalanced"])


def test_references_replace_the_batch_and_have_no_self_pairs():
    labels, ref_labels = [0, 1, 1], [1, 0, 2, 1]
    x, refs = unit(batch(labels)), unit(batch(ref_labels))
    expected = [
        sum(
            sum((x[a] - refs[r]) ** 2)
            if labels[a] == ref_labels[r]
            else max(0.0, 1 - sum((x[a] - refs[r]) ** 2))
            for r in range(4)
        )
        for a in range(3)
    ]
    values, _ = value_and_gradient(
        ContrastiveLoss(reduction="sum_over_pairs"),
        np.array(labels),
        x.astype("float32"),
        ref_labels=np.array(ref_labels),
        ref_embeddings=refs.astype("float32"),
    )
    np.testing.assert_allclose(values, expected, rtol=1e-5)
