"""Rows of docs/migration/tf_similarity.md, against its own numbers.

goldens/tf_similarity_0_17_1.npz holds inputs, and the losses and gradients
that tensorflow_similarity 0.17.1 computed of them with tf_keras.
"""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dml as dml
from tests.losses.oracle import value_and_gradient
from tests.parity.tables import code, rows

PAGE = "tf_similarity.md"
GOLDENS = Path(__file__).parent / "goldens" / "tf_similarity_0_17_1.npz"
NEAR = [f"`losses.{name}()`" for name in (
    "CircleLoss", "MultiNegativesRankLoss", "VicReg",
)]  # fmt: skip
NAMES = {"dml": dml, "mining": dml.losses.mining}


@pytest.fixture(scope="module")
def goldens():
    with np.load(GOLDENS) as archive:
        return dict(archive)


def close(actual, expected):
    atol = 1e-5 * max(np.abs(expected).max(), 1e-2)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("batch", ["balanced", "unbalanced"])
@pytest.mark.parametrize("row", rows(PAGE, "Losses"))
def test_losses_of_the_page_match(goldens, row, batch):
    other, mine = map(code, row)
    values, gradient = value_and_gradient(
        eval(mine, dict(NAMES)),  # noqa: S307
        goldens[f"{batch}/labels"],
        goldens[f"{batch}/embeddings"],
    )
    close(values.mean(), goldens[f"{batch}/{other}/loss"])
    # Theirs passes the length of the embeddings, which ours takes out.
    x = goldens[f"{batch}/embeddings"]
    expected = goldens[f"{batch}/{other}/gradient"]
    close(gradient, expected - (expected * x).sum(1, keepdims=True) * x)


@pytest.mark.parametrize(
    "row", [row for row in rows(PAGE, "Losses", 3) if row[0] not in NEAR]
)
def test_losses_of_two_views_match(goldens, row):
    other, mine = map(code, row[:2])
    loss = eval(mine, dict(NAMES))  # noqa: S307
    views = goldens["views/embeddings"]
    images = np.arange(views.shape[1])
    tensor = tf.constant(views)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        if "one batch" in row[2]:
            both = tf.concat([tensor[0], tensor[1]], axis=0)
            value = loss(np.tile(images, 2), both)
        else:
            values = loss.per_example(images, tensor[0], images, tensor[1])
            value = tf.reduce_mean(values)
    close(float(value), goldens[f"views/{other}/loss"])
    close(tape.gradient(value, tensor), goldens[f"views/{other}/gradient"])


def test_cross_batch_memory_matches(goldens):
    inner = dml.losses.MultiSimilarityLoss(beta=40.0)
    memory = dml.losses.CrossBatchMemory(inner, 32, batch=False)
    memory.build(keras.layers.Layer(), 8)
    labels = goldens["steps/labels"]
    other = "losses.XBM(losses.MultiSimilarityLoss(), 32)"
    for step, expected in enumerate(goldens[f"steps/{other}/losses"]):
        x = unit(np.random.default_rng([step, 16, 8]).normal(size=(16, 8)))
        assert float(memory(labels, x)) == pytest.approx(expected, rel=1e-5)
        memory.remember(labels, x)


def unit(x):
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype("float32")
