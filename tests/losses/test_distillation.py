"""Distillation against loops over rows, pairs and triplets."""

from itertools import product

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.losses import distillation
from tests.losses.oracle import check_slopes, unit

RNG = np.random.default_rng(0)
STUDENT = RNG.normal(size=(6, 4))
TEACHER = RNG.normal(size=(6, 9))
TEACHER[3] = TEACHER[2]  # One image twice.


def divergence(s: np.ndarray, t: np.ndarray, temperature: float) -> float:
    total = 0.0
    for i in range(len(s)):
        rows = []
        for x in (unit(s), unit(t)):
            weights = [np.exp(x[i] @ y / temperature) for y in x]
            rows.append([w / sum(weights) for w in weights])
        for student_row, target in zip(*rows, strict=True):
            total += target * np.log(target / student_row)
    return temperature**2 * total / len(s)


def huber(x: float) -> float:
    return x * x / 2 if abs(x) <= 1 else abs(x) - 0.5


def distances(s: np.ndarray, t: np.ndarray) -> float:
    both = []
    for x in (s, t):
        d = [[np.linalg.norm(a - b) for b in x] for a in x]
        pairs = [d[i][j] for i, j in product(range(len(x)), repeat=2) if i != j]
        both.append(np.array(d) / np.mean(pairs))
    return float(np.mean([huber(x) for x in np.ravel(both[0] - both[1])]))


def angles(s: np.ndarray, t: np.ndarray) -> float:
    def cosine(x: np.ndarray, i: int, j: int, k: int) -> float:
        a, b = x[i] - x[j], x[k] - x[j]
        lengths = np.linalg.norm(a) * np.linalg.norm(b)
        return 0.0 if lengths == 0 else a @ b / lengths

    values = [
        huber(cosine(s, i, j, k) - cosine(t, i, j, k))
        for i, j, k in product(range(len(s)), repeat=3)
    ]
    return float(np.mean(values))


CASES = {
    "similarity": (distillation.similarity_divergence, divergence, (0.3,)),
    "similarity, T 1": (distillation.similarity_divergence, divergence, (1,)),
    "distance": (distillation.distance_difference, distances, ()),
    "angle": (distillation.angle_difference, angles, ()),
}


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_match_a_loop(name) -> None:
    function, by_hand, arguments = CASES[name]
    student, teacher = (tf.constant(x, "float32") for x in (STUDENT, TEACHER))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([student, teacher])
        values = function(student, teacher, *arguments)
        mean = tf.reduce_mean(values)
    assert values.shape == (6,)
    expected = by_hand(STUDENT, TEACHER, *arguments)
    assert expected > 1e-3
    np.testing.assert_allclose(mean, expected, rtol=1e-5)
    check_slopes(
        tape.gradient(mean, student).numpy(),
        lambda x: by_hand(x, TEACHER, *arguments),
        STUDENT,
        1e-3,
    )
    assert tape.gradient(mean, teacher) is None


@pytest.mark.parametrize("name", distillation.RELATIONS)
def test_rotated_and_scaled_copy_costs_nothing(name) -> None:
    turned, _ = np.linalg.qr(RNG.normal(size=(9, 9)))
    values = distillation.RELATIONS[name](TEACHER, 3 * TEACHER @ turned)
    np.testing.assert_allclose(values, 0, atol=1e-5)


@pytest.mark.parametrize("name", distillation.RELATIONS)
@pytest.mark.parametrize("rows", [1, 4])
def test_collapsed_students_have_finite_gradients(name, rows) -> None:
    student = tf.ones((rows, 3))
    with tf.GradientTape() as tape:
        tape.watch(student)
        values = distillation.RELATIONS[name](student, TEACHER[:rows])
    assert np.isfinite(values).all()
    assert np.isfinite(tape.gradient(values, student)).all()


def test_huber_is_linear_beyond_one() -> None:
    """One point lies far away, so relative distances differ by over 1."""
    far = TEACHER.copy()
    far[0] += 1000
    values = distillation.distance_difference(STUDENT, far)
    assert np.mean(values) == pytest.approx(distances(STUDENT, far), rel=1e-5)
    assert np.max(values) > 0.5
