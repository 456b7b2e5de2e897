"""Mining against the miners of pytorch-metric-learning 2.9.

Deliberate differences:

- Semi-hard: theirs drops an anchor that has no negative farther than the
  positive; ours takes its farthest negative, as TensorFlow Addons does.
  Their `TripletMarginMiner("semihard")` is another idea: all triplets
  within a band.
- Distance-weighted: theirs scales weights by the largest of the batch,
  ours by the largest of the row, so that a row cannot underflow to
  nothing; the probabilities are the same.
"""

import numpy as np
import pytest
import scipy.stats

pytest.importorskip("pytorch_metric_learning")

import torch
from pytorch_metric_learning import miners as their_miners

from keras_dml.losses import mining
from keras_dml.losses import pairs as pairs_lib
from tests.parity.peer import SHAPES, embeddings

pytestmark = pytest.mark.peers

NOT_ALONE = [name for name in SHAPES if name != "1x8"]


def mined(miner, labels, x):
    """(2, B, B): how often each pair is among their result."""
    indices = miner(torch.tensor(x), torch.tensor(labels))
    if len(indices) == 3:
        indices = (indices[0], indices[1], indices[0], indices[2])
    weights = np.zeros((2, len(labels), len(labels)))
    np.add.at(weights[0], (indices[0].numpy(), indices[1].numpy()), 1)
    np.add.at(weights[1], (indices[2].numpy(), indices[3].numpy()), 1)
    return weights


def chosen(miner, labels, x, distance="euclidean"):
    pairs = pairs_lib.compare(labels, x, distance=distance)
    return np.array(mining.get(miner).pair_weights(pairs, seed=0))


@pytest.mark.parametrize("shape", NOT_ALONE)
def test_batch_hard_matches(shape):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    np.testing.assert_array_equal(
        chosen("hard", labels, x),
        mined(their_miners.BatchHardMiner(), labels, x),
    )


@pytest.mark.parametrize("shape", NOT_ALONE)
def test_multi_similarity_matches(shape):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    np.testing.assert_array_equal(
        chosen("multi_similarity", labels, x, "cosine"),
        mined(their_miners.MultiSimilarityMiner(0.1), labels, x),
    )


@pytest.mark.parametrize("shape", NOT_ALONE[1:3])
@pytest.mark.parametrize("positive", ["easy", "hard"])
@pytest.mark.parametrize("negative", ["easy", "semihard", "hard"])
def test_easy_and_hard_mining_match(shape, positive, negative):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    actual = chosen(mining.Selection(positive, negative), labels, x)
    expected = mined(
        their_miners.BatchEasyHardMiner(positive, negative), labels, x
    )
    kept = expected.sum(axis=(0, 2)) > 0
    np.testing.assert_array_equal(actual[:, kept], expected[:, kept])
    if negative != "semihard":
        np.testing.assert_array_equal(actual, expected)
        return
    # Theirs drops anchors whose negatives are all closer.
    d = np.linalg.norm(x[:, None] - x, axis=2)
    for a in np.flatnonzero(actual[0].any(axis=1) & ~kept):
        p = actual[0, a].argmax()
        negatives = d[a, labels != labels[a]]
        assert (negatives <= d[a, p]).all()
        assert d[a, actual[1, a].argmax()] == negatives.max()


def test_distance_weighted_mining_draws_by_our_probabilities():
    labels, dim = np.repeat(np.arange(6), 3), 6
    x = embeddings(labels, dim)
    pairs = pairs_lib.compare(labels, x)
    probabilities = np.array(
        mining.DistanceWeighted().probabilities(pairs), "float64"
    )
    torch.manual_seed(0)
    np.random.seed(0)
    miner = their_miners.DistanceWeightedMiner()
    counts = sum(mined(miner, labels, x)[1] for _ in range(400))
    total = counts.sum(axis=1)
    assert (total > 0).all()
    p_values = []
    for row, probability, draws in zip(
        counts, probabilities, total, strict=True
    ):
        assert (row[probability == 0] == 0).all()
        likely = probability * draws > 5
        observed = np.append(row[likely], row[~likely].sum())
        expected = probability[likely] / probability.sum() * draws
        expected = np.append(expected, max(draws - expected.sum(), 1e-9))
        result = scipy.stats.chisquare(observed, expected, sum_check=False)
        p_values.append(result.pvalue)
    assert min(p_values) > 1e-4
