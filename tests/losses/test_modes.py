"""Every loss in every mode and precision of TensorFlow, and its memory."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.losses.oracle import LABELS, batch
from tests.losses.test_contract import (
    LOSSES,
    NAMES,
    PAIRWISE,
    default,
    default_without_draws,
    needed,
)

DTYPES = ("float32", "float16", "bfloat16")
PRECISION = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}


def representable(labels):
    """Embeddings that all of the dtypes hold without rounding."""
    return (np.round(32 * batch(labels)).clip(-127, 127) / 32).astype("float32")


def step_of(loss):
    """(labels, embeddings) → values and gradient of their mean."""

    def step(labels, x):
        labels, x = tf.convert_to_tensor(labels), tf.convert_to_tensor(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            values = loss.per_example(labels, x)
            mean = tf.reduce_mean(values)
        return values, tape.gradient(mean, x)

    return step


@functools.cache
def compiled(make, name, mode):
    """The step of a loss for float32 batches of any size.

    XLA compiles the graph that there is, so that it is traced once.
    """
    is_xla = mode == "xla"
    return tf.function(
        compiled(make, name, "graph") if is_xla else step_of(make(name)),
        input_signature=[
            tf.TensorSpec([None], "int64"),
            tf.TensorSpec([None, 5], "float32"),
        ],
        jit_compile=is_xla,
        autograph=False,
    )


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("contrastive", "float32")]
    + [
        pytest.param(name, dtype, marks=pytest.mark.slow)
        for name in NAMES
        for dtype in DTYPES
        if (name, dtype) != ("contrastive", "float32")
    ],
)
def test_modes_and_precisions_agree(name, dtype):
    labels = np.array(LABELS["unbalanced"])
    x = representable(LABELS["unbalanced"])
    loss = default_without_draws(name)
    expected = step_of(loss)(labels, x)
    scale = np.abs(expected[1]).max()
    assert scale > 1e-4
    steps = [step_of(loss)]
    # What is made of a loss does not hang on the precision: it computes in
    # float32.
    if dtype == "float32":
        steps += [
            compiled(default_without_draws, name, mode)
            for mode in ("graph", "xla")
        ]
    for step in steps:
        values, gradient = step(labels, tf.cast(x, dtype))
        assert values.dtype == tf.float32
        assert gradient.dtype == dtype
        np.testing.assert_allclose(values, expected[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            tf.cast(gradient, "float32"),
            expected[1],
            atol=PRECISION[dtype] * scale,
        )


def difficult(size):
    """Batches of a size: (labels, embeddings)."""
    rows = np.arange(size)
    ordinary = batch([0] * size)
    equal = np.repeat(ordinary[:1], size, axis=0)
    with_zero = ordinary * (rows != 1 % size)[:, None]
    labels = 0 * rows + 4, rows, rows // 2  # one class, all, pairs
    yield from itertools.product(labels, (ordinary, equal, with_zero))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "xla"])
@pytest.mark.parametrize("name", NAMES)
def test_difficult_batches_stay_finite_when_compiled(name, mode):
    step = compiled(default, name, mode)
    for labels, x in (*difficult(4), *difficult(1)):
        values, gradient = step(labels, x.astype("float32"))
        assert np.isfinite(values).all()
        assert np.isfinite(gradient).all()


def outputs(graph):
    """Every tensor of a graph, and of the functions that it calls."""
    for operation in graph.get_operations():
        yield from operation.outputs
    for function in graph._functions.values():
        yield from outputs(function.graph)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_memory_is_that_of_the_pair_matrix(name):
    # Nothing is computed here: in the graph of the value and its gradient
    # no tensor has more than B² elements (SoftTriple: C·K·B, its logits).
    size, dim = 2048, 16
    loss = LOSSES[name](**needed(name, classes=100))
    loss.build(keras.layers.Layer(), dim)
    graph = (
        tf.function(step_of(loss))
        .get_concrete_function(
            tf.TensorSpec([size], "int64"), tf.TensorSpec([size, dim])
        )
        .graph
    )
    shapes = [tensor.shape for tensor in outputs(graph)]
    known = [s.num_elements() for s in shapes if s.is_fully_defined()]
    assert len(known) > 50
    assert max(known) <= size**2
    if name in PAIRWISE:  # so that a matrix is not overlooked
        assert max(known) == size**2
    for shape in shapes:
        assert shape.rank is None or shape.rank <= 3
