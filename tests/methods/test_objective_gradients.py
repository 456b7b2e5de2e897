"""Objectives against NumPy: gradients with respect to the embeddings.

Of values, `test_abe.py` and the others of a method check more cases.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses
from keras_dml.methods import (
    AlternatingObjective,
    DivaObjective,
    DivergentObjective,
    GroupedObjective,
    diva_tasks,
)
from tests.losses.oracle import Array, check_slopes, contrastive, unit

LABELS = np.array([0, 0, 0, 1, 1, 2])
PARTS = unit(np.random.default_rng(3).normal(size=(6, 3, 4)))
PARTS[2, 1] = unit(PARTS[2, 0] + 0.1)  # Two learners that agree.


def check(
    objective: Any,
    by_hand: dict[str, Callable[[Array], float]],
    outputs: Callable[[tf.Tensor], dict[str, Any]],
    targets: dict[str, Any] | None = None,
    at: Array = PARTS,
) -> None:
    """Mean of each term over the batch, and its gradient, at `at`."""
    x = tf.constant(at, "float32")
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        terms = objective(outputs(x), {"label": LABELS, **(targets or {})})
        means = {name: tf.reduce_mean(value) for name, value in terms.items()}
    assert set(terms) == set(by_hand)
    for name, function in by_hand.items():
        value = function(at)
        np.testing.assert_allclose(means[name], value, rtol=1e-4, err_msg=name)
        gradient = tape.gradient(means[name], x).numpy()
        assert np.abs(gradient).max() > 1e-3, name
        check_slopes(gradient, function, at, rtol=1e-3)


EQ_10 = {"name": "contrastive", "reduction": "sum_over_pairs"}


def triplets(x: Array) -> float:
    """Over all triplets (divide and conquer, Eq. 2 and 3), their mean."""
    terms = [
        max(0.0, np.sum((x[a] - x[p]) ** 2) - np.sum((x[a] - x[n]) ** 2) + 0.2)
        for a, p, n in itertools.permutations(range(len(x)), 3)
        if LABELS[a] == LABELS[p] != LABELS[n]
    ]
    return float(np.mean(terms))


def test_abe_matches_eq_8_to_10() -> None:
    """Eq. 8 to 10: every learner's loss, and Σ_{p<q} [m − d²]₊."""

    def metric(parts: Array) -> float:
        return sum(contrastive(parts[:, m], LABELS) for m in range(3))

    def divergence(parts: Array) -> float:
        total = sum(
            max(0.0, 1.7 - 2 + 2 * image[p] @ image[q])
            for image in parts
            for p, q in itertools.combinations(range(3), 2)
        )
        return total / len(parts)

    objective = DivergentObjective(losses.get(EQ_10), divergence_margin=1.7)
    objective.build({"parts": (None, 3, 4)})
    # Distances of unit vectors are taken from their cosine: the gradient
    # with respect to their directions is the same, and that is compared.
    check(
        objective,
        {
            "metric": lambda y: metric(unit(y)),
            "divergence": lambda y: divergence(unit(y)),
        },
        lambda y: {"parts": tf.math.l2_normalize(y, -1)},
    )


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    ("scales", "beta"), [("released", 25.0), ("paper_table", 1.0)]
)
def test_attentive_grouping_matches_eq_4_and_14(
    scales, beta, reduction
) -> None:
    """Eq. 4 and 14, both readings of the scale and of the divisor."""

    def diversity(parts: Array) -> float:
        total = sum(
            np.log1p(np.exp(2 * beta * (image[i] @ image[j] - 0.5)))
            for image in parts
            for i, j in itertools.combinations(range(3), 2)
        )
        return total / len(parts) / {"mean": 3, "sum": 2}[reduction]

    def metric(parts: Array) -> float:
        return sum(contrastive(parts[:, p], LABELS) for p in range(3)) / 3

    objective = GroupedObjective(
        losses.get(EQ_10), scales=scales, diversity_reduction=reduction
    )
    objective.build({"parts": (None, 3, 4)})
    check(
        objective,
        {
            "metric": lambda y: metric(unit(y)),
            "diversity": lambda y: diversity(unit(y)),
        },
        lambda y: {"parts": tf.math.l2_normalize(y, -1)},
    )


@pytest.mark.parametrize("learner", [0, 2, -1])
def test_active_learner_matches_eq_3(learner) -> None:
    """Eq. 3 on slice k, or on all slices side by side for −1."""

    def metric(parts: Array) -> float:
        whole = parts.reshape(6, 12) / np.sqrt(3)
        return triplets(whole if learner < 0 else parts[:, learner])

    objective = AlternatingObjective(losses.TripletLoss(mining="all"))
    objective.build({"parts": (None, 3, 4), "embedding": (None, 12)})

    def outputs(y: tf.Tensor) -> dict[str, Any]:
        parts = tf.math.l2_normalize(y, -1)
        whole = tf.reshape(parts, (6, 12)) / np.sqrt(3, dtype="float32")
        return {"parts": parts, "embedding": whole}

    check(
        objective,
        {"metric": lambda y: metric(unit(y))},
        outputs,
        {"learner": np.full(6, learner)},
    )


KEYS = unit(np.random.default_rng(5).normal(size=(6, 4)))
QUEUE = unit(np.random.default_rng(6).normal(size=(5, 4)))


def released_weights(queries: Array) -> Array:
    """∝ 1/q, d at least 0.5, 0 beyond 1.4; they sum to 1."""
    distance = np.linalg.norm(queries[:, None] - QUEUE, axis=2)
    near = np.maximum(distance, 0.5)
    weights = 1 / (near**2 * (1 - near**2 / 4) ** 0.5)
    weights = np.where(distance <= 1.4, weights, 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def test_diva_matches_eq_7() -> None:
    """Eq. 7: its terms, and the reversed gradient of the decorrelation."""
    tasks = diva_tasks(
        ["discriminative", "dance"], EQ_10,
        queue_size=8, temperature=0.5,
    )  # fmt: skip
    objective = DivaObjective(tasks, psi_units=5, reduction="sum")
    objective.build({"parts": (None, 2, 4)})
    tasks[1].queue.enqueue(QUEUE)  # Three places stay empty.
    rng = np.random.default_rng(7)
    psi = [rng.normal(size=w.shape) for w in objective.trainable_variables]
    for weight, value in zip(objective.trainable_variables, psi, strict=True):
        weight.assign(value)
    at = PARTS[:, :2]
    weights = released_weights(unit(at)[:, 1])

    def dance(y: Array) -> float:
        queries = unit(y)[:, 1]
        positive_terms = np.exp((queries * KEYS).sum(1) / 0.5)
        negative_terms = np.exp(weights * (queries @ QUEUE.T) / 0.5).sum(1)
        return float(
            -np.log(positive_terms / (positive_terms + negative_terms)).mean()
        )

    def decorrelation(y: Array) -> float:
        target, source = unit(y)[:, 0], unit(y)[:, 1]
        kernel, bias, kernel2, bias2 = psi
        hidden = np.maximum(source @ kernel + bias, 0)
        mapped = unit(hidden @ kernel2 + bias2)
        return float(-((target * mapped) ** 2).sum(1).mean())

    x = tf.constant(at, "float32")
    keys = tf.stack([tf.zeros((6, 4)), tf.constant(KEYS, "float32")], axis=1)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        parts = tf.math.l2_normalize(x, -1)
        terms = objective(
            {"parts": parts, "momentum_parts": keys}, {"label": LABELS}
        )
        means = {name: tf.reduce_mean(v) for name, v in terms.items()}
    for name, function, sign in (
        ("discriminative", lambda y: contrastive(unit(y)[:, 0], LABELS), 1),
        ("dance", dance, 1),
        # The loss is −c, and R turns its gradient: it lowers c.
        ("decorrelation_dance", decorrelation, -1),
    ):
        np.testing.assert_allclose(means[name], function(at), rtol=1e-4)
        gradient = sign * tape.gradient(means[name], x).numpy()
        assert np.abs(gradient).max() > 1e-3
        check_slopes(gradient, function, at, rtol=1e-3)
