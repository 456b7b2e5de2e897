"""Every loss under XLA and in half precision, and its memory."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.losses.oracle import LABELS, batch, compiled, step_of
from tests.losses.test_contract import (
    LOSSES,
    OWN_CODE,
    PAIRWISE,
    difficult,
    graph_of,
    needed,
    without_draws,
)

PRECISION = {"float16": 2e-3, "bfloat16": 1.5e-2}


def representable(labels):
    """Embeddings that all of the dtypes hold without rounding."""
    return (np.round(32 * batch(labels)).clip(-127, 127) / 32).astype("float32")


@pytest.mark.parametrize("name", ["contrastive", "smooth_ap", "proxy_anchor"])
def test_half_precision_is_computed_in_float32(name):
    """All losses share the cast, which comes before their own code."""
    labels = np.array(LABELS["unbalanced"])
    x = representable(LABELS["unbalanced"])
    step = step_of(without_draws(name))
    expected = step(labels, x)
    scale = np.abs(expected[1]).max()
    for dtype, precision in PRECISION.items():
        values, gradient = step(labels, tf.cast(x, dtype))
        assert values.dtype == tf.float32
        assert gradient.dtype == dtype
        np.testing.assert_allclose(values, expected[0], rtol=1e-5, atol=1e-6)
        gradient = tf.cast(gradient, "float32")
        np.testing.assert_allclose(
            gradient, expected[1], atol=precision * scale
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_CODE)
def test_xla_computes_the_same_and_stays_finite(name):
    # XLA compiles the graph that there is, so that it is traced once.
    graph = graph_of(name)
    step = compiled(graph, jit=True)
    labels = np.array(LABELS["unbalanced"])
    x = representable(LABELS["unbalanced"])
    expected, slope = graph(labels, x)
    values, gradient = step(labels, x)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
    scale = np.abs(slope).max()
    np.testing.assert_allclose(gradient, slope, atol=1e-5 * scale)
    for difficult_labels, z in difficult(len(labels)):
        for result in step(difficult_labels, z.astype("float32")):
            assert np.isfinite(result).all()


def outputs(graph):
    """Every tensor of a graph, and of the functions that it calls."""
    for operation in graph.get_operations():
        yield from operation.outputs
    for function in graph._functions.values():
        yield from outputs(function.graph)


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_CODE)
def test_largest_tensor_is_the_pair_matrix(name):
    # Nothing is computed here: in the graph of the values, and so in that
    # of their gradients, no tensor has more than B² elements (SoftTriple:
    # C·K·B, its logits).
    size, dim = 2048, 16
    loss = LOSSES[name](**needed(name, classes=100))
    loss.build(keras.layers.Layer(), dim)
    graph = (
        tf.function(loss.per_example, autograph=False)
        .get_concrete_function(
            tf.TensorSpec([size], "int64"), tf.TensorSpec([size, dim])
        )
        .graph
    )
    shapes = [tensor.shape for tensor in outputs(graph)]
    sizes = [s.num_elements() for s in shapes if s.is_fully_defined()]
    assert len(sizes) > 20
    assert max(sizes) <= size**2
    if name in PAIRWISE:  # so that a matrix is not overlooked
        assert max(sizes) == size**2
    for shape in shapes:
        assert shape.rank is None or shape.rank <= 3
