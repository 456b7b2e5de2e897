"""The table of docs/migration/ against numbers of TensorFlow Addons 0.23."""

import pathlib

import numpy as np
import pytest

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
OURS = {
    code(theirs).removeprefix("tfa.losses."): code(ours)
    for theirs, ours in rows("tensorflow_addons.md", "Losses")
}


def ours(theirs, **changes):
    """The table's replacement for a loss, with other arguments."""
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
@pytest.mark.parametrize(
    ("case", "metric"), list(zip((0, 2, 5), METRICS, strict=True))
)
def test_triplet_semihard_matches_addons(goldens, case, metric):
    distance = METRICS[metric]
    loss = ours("TripletSemiHardLoss()", margin=0.3, distance=distance)
    values, gradient = value_and_gradient(loss, *inputs(goldens, case))
    key = f"{case}/TripletSemiHardLoss/margin=0.3/distance_metric={metric}"
    close(values.mean(), goldens[f"{key}/loss"])
    close(gradient, goldens[f"{key}/grad"])


@needs_goldens
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_triplet_hard_matches_addons(goldens, metric, soft):
    """No anchor is alone: TensorFlow Addons charges lonely anchors."""
    name = f"TripletHardLoss({'soft=True' if soft else ''})"
    more = {} if soft else {"margin": 0.3}
    loss = ours(name, distance=METRICS[metric], **more)
    values, gradient = value_and_gradient(loss, *inputs(goldens, 0))
    key = f"0/TripletHardLoss/margin=0.3/soft={soft}/distance_metric={metric}"
    close(values.mean(), goldens[f"{key}/loss"])
    close(gradient, goldens[f"{key}/grad"])


@needs_goldens
def test_lifted_struct_matches_addons(goldens):
    loss = ours("LiftedStructLoss()")
    values, gradient = value_and_gradient(loss, *inputs(goldens, 0))
    close(values.mean(), goldens["0/LiftedStructLoss/margin=1.0/loss"])
    close(gradient, goldens["0/LiftedStructLoss/margin=1.0/grad"])


@needs_goldens
def test_npairs_matches_addons(goldens):
    labels, logits = (
        goldens[f"0/NpairsLoss/{x}"] for x in ("labels", "logits")
    )
    # The inner products with unit vectors are the logits.
    values = ours("NpairsLoss()").per_example(
        labels, logits, labels, np.eye(len(labels))
    )
    close(np.mean(values), goldens["0/NpairsLoss/loss"])


@needs_goldens
def test_contrastive_matches_addons(goldens):
    # The distances from 0 are the distances.
    values = ours("ContrastiveLoss()").per_example(
        goldens["0/ContrastiveLoss/same"].astype(int)[:, None],
        goldens["0/ContrastiveLoss/distance"][:, None],
        ref_embeddings=np.zeros((1, 1)),
    )
    close(np.mean(values), goldens["0/ContrastiveLoss/margin=1.0/loss"])
