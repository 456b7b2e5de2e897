"""The table of docs/migration/ against numbers of TensorFlow Addons 0.23."""

import math
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dml as dml
from tests.losses.oracle import value_and_gradient
from tests.parity.tables import code, rows

GOLDENS = (
    pathlib.Path(__file__).parents[3] / "shared" / "goldens" / "tfa_0_23.npz"
)
needs_goldens = pytest.mark.skipif(
    not GOLDENS.exists(), reason="goldens of TensorFlow Addons not found"
)
METRICS = {"L2": "euclidean", "squared-L2": "squared", "angular": "cosine"}
CASES = range(6)
ONE_CLASS = 4
# Each batch with one metric, and each metric with both kinds of gaps.
ARGUMENTS = [(case, list(METRICS)[case % 3], case >= 3) for case in CASES]
OURS = {
    code(theirs).removeprefix("tfa.losses."): code(ours)
    for theirs, ours in rows("tensorflow_addons.md", "Losses")
}


def ours(theirs, **changes):
    """What the table has in place of a loss, with other arguments."""
    return eval(OURS[theirs], {"dml": dml}).copy(**changes)  # noqa: S307


@pytest.fixture(scope="module")
def goldens():
    with np.load(GOLDENS) as archive:
        return dict(archive)


def inputs(goldens, case):
    return goldens[f"{case}/labels"], goldens[f"{case}/embeddings"]


def close(actual, expected):
    atol = 1e-5 * max(np.abs(expected).max(), 1e-2)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=atol)


@needs_goldens
@pytest.mark.parametrize(("case", "metric"), [x[:2] for x in ARGUMENTS])
def test_triplet_semihard(goldens, case, metric):
    distance = METRICS[metric]
    loss = ours("TripletSemiHardLoss()", margin=0.3, distance=distance)
    values, gradient = value_and_gradient(loss, *inputs(goldens, case))
    key = f"{case}/TripletSemiHardLoss/margin=0.3/distance_metric={metric}"
    if case == ONE_CLASS:
        # Without negatives there is no triplet; TensorFlow Addons takes
        # the anchor itself for its negative, and reports a loss.
        assert goldens[f"{key}/loss"] > 0
        assert not values.any()
        assert not gradient.any()
        return
    close(values.mean(), goldens[f"{key}/loss"])
    close(gradient, goldens[f"{key}/grad"])


@needs_goldens
@pytest.mark.parametrize(("case", "metric", "soft"), ARGUMENTS)
def test_triplet_hard(goldens, case, metric, soft):
    if soft:
        loss = ours("TripletHardLoss(soft=True)", distance=METRICS[metric])
    else:
        distance = METRICS[metric]
        loss = ours("TripletHardLoss()", margin=0.3, distance=distance)
    labels, x = inputs(goldens, case)
    values, gradient = value_and_gradient(loss, labels, x)
    key = (
        f"{case}/TripletHardLoss/margin=0.3/soft={soft}/"
        f"distance_metric={metric}"
    )
    # TensorFlow Addons charges anchors without a positive too: the anchor
    # itself stands in, at distance 0. Without a negative, its farthest
    # positive does, and the two distances cancel.
    lonely, slope = charge_of_lonely_anchors(labels, x, metric, soft)
    close(values.mean() + lonely, goldens[f"{key}/loss"])
    close(gradient + slope, goldens[f"{key}/grad"])
    assert not values[[list(labels).count(y) == 1 for y in labels]].any()


def charge_of_lonely_anchors(labels, x, metric, soft):
    """What TensorFlow Addons adds to the mean, and its gradient."""
    if len(set(labels)) == 1:
        return (math.log(2) if soft else 0.3), np.zeros_like(x)
    x, total = tf.constant(x), 0.0
    with tf.GradientTape() as tape:
        tape.watch(x)
        for a in range(len(labels)):
            if list(labels).count(labels[a]) == 1:
                others = tf.concat([x[:a], x[a + 1 :]], axis=0)
                closest = tf.reduce_min(distances(x[a], others, metric))
                gap = -closest if soft else 0.3 - closest
                total += tf.nn.softplus(gap) if soft else tf.nn.relu(gap)
        mean = total / len(labels)
    gradient = tape.gradient(mean, x) if tf.is_tensor(mean) else None
    return mean, np.zeros(x.shape) if gradient is None else gradient


def distances(anchor, others, metric):
    if metric == "angular":
        unit = tf.math.l2_normalize(others, axis=1)
        return 1 - tf.linalg.matvec(unit, tf.math.l2_normalize(anchor))
    squared = tf.reduce_sum((others - anchor) ** 2, axis=1)
    return tf.sqrt(squared) if metric == "L2" else squared


@needs_goldens
@pytest.mark.parametrize("case", [0, ONE_CLASS])
def test_lifted_struct(goldens, case):
    values, gradient = value_and_gradient(
        ours("LiftedStructLoss()"), *inputs(goldens, case)
    )
    key = f"{case}/LiftedStructLoss/margin=1.0"
    if case == ONE_CLASS:
        # TensorFlow Addons takes the logarithm of an empty sum.
        assert np.isnan(goldens[f"{key}/loss"])
        assert not values.any()
        assert not gradient.any()
        return
    close(values.mean(), goldens[f"{key}/loss"])
    close(gradient, goldens[f"{key}/grad"])


@needs_goldens
@pytest.mark.parametrize("case", [0, 3])
def test_npairs(goldens, case):
    labels = goldens[f"{case}/NpairsLoss/labels"]
    logits = goldens[f"{case}/NpairsLoss/logits"]
    # The inner products with unit vectors are the logits.
    values = ours("NpairsLoss()").per_example(
        labels, logits, labels, np.eye(len(labels))
    )
    close(np.mean(values), goldens[f"{case}/NpairsLoss/loss"])


@needs_goldens
@pytest.mark.parametrize("case", [0, 3])
def test_contrastive(goldens, case):
    key = f"{case}/ContrastiveLoss"
    # The distances from 0 are the distances.
    values = ours("ContrastiveLoss()").per_example(
        goldens[f"{key}/same"].astype(int)[:, None],
        goldens[f"{key}/distance"][:, None],
        ref_embeddings=np.zeros((1, 1)),
    )
    close(np.mean(values), goldens[f"{key}/margin=1.0/loss"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TripletSemiHardLoss", "TripletLoss"),
        ("TripletHardLoss", "TripletLoss"),
        ("LiftedStructLoss", "LiftedStructureLoss"),
        ("NpairsLoss", "SupConLoss"),
        ("ContrastiveLoss", "ContrastiveLoss"),
    ],
)
def test_a_saved_model_names_a_removed_class(old, new):
    config = {
        "class_name": old,
        "config": {"margin": 1.0},
        "module": "keras_dml.losses.tfa",
        "registered_name": f"keras_dml.tfa>{old}",
    }
    with pytest.raises(ValueError, match=rf"{old}' was removed.*Use {new}\("):
        keras.saving.deserialize_keras_object(config)
