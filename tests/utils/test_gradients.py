"""Unit rows, and their gradient by the closed form, at every length."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.methods import EmbeddingHead, LearnersHead, SlicedHead
from keras_dml.utils.gradients import NOISE_NORM, l2_normalize
from tests.conftest import graph_and_xla

LENGTHS = (3.0, NOISE_NORM, NOISE_NORM / 10, 1e-8, 1e-20, 0.0, 1e20)


def rows(dtype: str = "float32") -> np.ndarray:
    directions = np.random.default_rng(0).normal(size=(len(LENGTHS), 5))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return (np.array(LENGTHS)[:, None] * directions).astype(dtype)


def test_rows_are_unit_or_zero() -> None:
    result = np.array(l2_normalize(rows()))
    # Rows whose square is a float32 number have a direction.
    lengths = np.linalg.norm(result, axis=1)
    np.testing.assert_allclose(lengths, [1, 1, 1, 1, 0, 0, 1], atol=1e-6)
    ordinary = rows()[:3]
    expected = keras.ops.normalize(ordinary, axis=-1, epsilon=1e-12)
    np.testing.assert_array_equal(result[:3], expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_rows_are_normalized_without_overflow(dtype) -> None:
    x = tf.cast([[300.0, 400.0], [3e-4, -4e-4], [0.0, 0.0]], dtype)
    unit = l2_normalize(x)
    assert unit.dtype == dtype
    expected = [[0.6, 0.8], [0.6, -0.8], [0.0, 0.0]]
    np.testing.assert_allclose(tf.cast(unit, "float32"), expected, atol=5e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", [1e15, 1e18, 1e20, 1e37])
def test_huge_row_keeps_its_direction_and_gradient(length, dtype) -> None:
    x = tf.Variable(tf.cast([[0.6 * length, 0.8 * length, 0.0]], dtype))
    with tf.GradientTape() as tape:
        unit = l2_normalize(x)
        total = tf.cast(unit[0, 0], "float32") * 2.0**30
    tolerance = 1e-6 if dtype == "float32" else 1e-2
    np.testing.assert_allclose(
        tf.cast(unit, "float32"), [[0.6, 0.8, 0]], tolerance
    )
    expected = np.array([[0.64, -0.48, 0.0]]) * 2.0**30 / length
    gradient = tf.cast(tape.gradient(total, x), "float32")
    np.testing.assert_allclose(gradient, expected, max(tolerance, 1e-5))


@graph_and_xla
def test_gradient_is_bounded_at_short_rows(jit) -> None:
    x, upstream = rows(), np.random.default_rng(1).normal(size=(7, 5))

    @tf.function(jit_compile=jit)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(l2_normalize(x) * upstream.astype("float32"))
        return tape.gradient(total, x)

    unit = np.array(l2_normalize(x), "float64")
    tangent = upstream - unit * (unit * upstream).sum(1, keepdims=True)
    factors = [1 / 3, *[1 / NOISE_NORM] * 3, 1, 1, 1e-20]
    np.testing.assert_allclose(
        gradient(tf.constant(x)),
        np.array(factors)[:, None] * tangent,
        rtol=1e-4,
        atol=1e-4,
    )


JAX = """
import sys

import jax
import keras
import numpy as np

from tests.utils.test_gradients import functions_of_rows, rows

assert keras.backend.backend() == "jax"
upstream, results = np.load(sys.argv[1]), {}
for name, (function, weights) in functions_of_rows().items():

    def total(x, weights, function=function, name=name):
        return (function(x, weights) * upstream[name]).sum()

    gradient = jax.grad(total, argnums=(0, 1))
    for way, call in (("eager", gradient), ("jitted", jax.jit(gradient))):
        by_x, by_weights = call(rows(), [w.value for w in weights])
        for i, each in enumerate([by_x, *by_weights]):
            results[f"{name}/{way}/{i}"] = each
np.savez(sys.argv[2], **results)
"""


def functions_of_rows() -> dict:
    """Functions that return unit rows: `(x, weights) -> rows`, weights."""
    functions = {"l2_normalize": (lambda x, _: l2_normalize(x), [])}
    heads = {
        "baseline": EmbeddingHead(5),
        "divide_and_conquer": SlicedHead(5, 2),
        "dcml": LearnersHead(6, 3),
    }
    for name, head in heads.items():
        head(np.zeros((2, 5), "float32"))
        rng = np.random.default_rng(3)
        for weight in head.trainable_variables:  # A zero row stays zero.
            if len(weight.shape) == 2:
                weight.assign(rng.normal(size=weight.shape))

        def embed(x, values, head=head):
            return head.stateless_call(values, [], x)[0]["embedding"]

        functions[name] = embed, head.trainable_variables
    return functions


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs JAX")
def test_gradients_of_short_rows_on_jax_equal_those_on_tensorflow(
    tmp_path,
) -> None:
    x, rng = tf.constant(rows()), np.random.default_rng(1)
    upstream, expected = {}, {}
    for name, (function, weights) in functions_of_rows().items():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x, [w.value for w in weights])
            upstream[name] = rng.normal(size=y.shape).astype("float32")
            total = tf.reduce_sum(y * upstream[name])
        expected[name] = tape.gradient(total, [x, *(w.value for w in weights)])
    np.savez(tmp_path / "in.npz", **upstream)
    paths = str(tmp_path / "in.npz"), str(tmp_path / "out.npz")
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", JAX, *paths],
        check=True,
        env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        cwd=pathlib.Path(__file__).parents[2],
    )
    with np.load(paths[1]) as results:
        for name in expected:
            for i, gradient in enumerate(expected[name]):
                gradient = tf.convert_to_tensor(gradient).numpy()
                assert np.isfinite(gradient).all()
                for way in ("eager", "jitted"):
                    np.testing.assert_allclose(
                        results[f"{name}/{way}/{i}"],
                        gradient,
                        rtol=1e-4,
                        atol=1e-4,
                        err_msg=f"{name}, {way}, {i}",
                    )
