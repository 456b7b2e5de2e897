"""Losses against pytorch-metric-learning 2.9: values and gradients.

Deliberate differences, each with its own test below:

- SupCon of a batch of one class: theirs is 0, the formula is not.
- Generalized lifted structure and anchors without a positive or without a
  negative: theirs charges them, with 0 for the logarithm that is missing.
- Margin loss over all pairs: theirs counts a pair once for each triplet
  it is in, ours once.
- Angular loss: theirs normalizes anchors and positives, not negatives; on
  unit embeddings the gradients differ along the embeddings themselves.
- Histogram loss: theirs leaves out negative pairs of two lonely anchors.
"""

import numpy as np
import pytest

pytest.importorskip("pytorch_metric_learning")

import tensorflow as tf
import torch
from pytorch_metric_learning import distances as their_distances
from pytorch_metric_learning import losses as their_losses
from pytorch_metric_learning import reducers as their_reducers

from keras_dml import losses
from tests.parity.peer import (
    DEGENERATE,
    ORDINARY,
    SHAPES,
    compare,
    embeddings,
    ours,
    theirs,
)

MORE = {
    "40x32, shuffled": (np.arange(40) % 8, 32),
    "27x128, classes of 3": (np.repeat(np.arange(9), 3), 128),
}
SHAPES = {**SHAPES, **MORE}
ORDINARY = [*ORDINARY, *MORE]
SQUARED = their_distances.LpDistance(power=2)
MEAN = their_reducers.MeanReducer()
RAW_N_PAIRS = their_losses.NPairsLoss(
    distance=their_distances.DotProductSimilarity(normalize_embeddings=False)
)

# Their histogram loss indexes in a way that PyTorch warns about.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Using a non-tuple sequence for multidimensional indexing"
)

# name → (our loss, their loss)
EVERYWHERE = {
    "contrastive": (
        losses.ContrastiveLoss(distance="euclidean"),
        their_losses.ContrastiveLoss(),
    ),
    "contrastive, squared, two margins": (
        losses.ContrastiveLoss(0.3, 1.2),
        their_losses.ContrastiveLoss(0.3, 1.2, distance=SQUARED),
    ),
    "contrastive, cosine": (
        losses.ContrastiveLoss(0.8, 0.2, distance="cosine"),
        their_losses.ContrastiveLoss(
            0.8, 0.2, distance=their_distances.CosineSimilarity()
        ),
    ),
    "triplet, all": (
        losses.TripletLoss(
            0.2, distance="euclidean", mining="all", reduction="mean_nonzero"
        ),
        their_losses.TripletMarginLoss(0.2),
    ),
    "triplet, all, squared, mean": (
        losses.TripletLoss(0.2, mining="all", reduction="mean"),
        their_losses.TripletMarginLoss(0.2, distance=SQUARED, reducer=MEAN),
    ),
    "triplet, all, soft": (
        losses.TripletLoss(
            0.1, soft_margin=True, distance="euclidean", mining="all"
        ),
        their_losses.TripletMarginLoss(0.1, smooth_loss=True),
    ),
    "multi-similarity": (
        losses.MultiSimilarityLoss(mining="all"),
        their_losses.MultiSimilarityLoss(),
    ),
    "lifted structure": (
        losses.LiftedStructureLoss(),
        their_losses.LiftedStructureLoss(),
    ),
    "NT-Xent": (
        losses.NTXentLoss(0.5),
        their_losses.NTXentLoss(0.5),
    ),
    "circle": (
        losses.CircleLoss(reduction="mean_nonzero"),
        their_losses.CircleLoss(),
    ),
    "FastAP": (losses.FastAPLoss(), their_losses.FastAPLoss()),
}
# These agree where every anchor has positives and negatives.
ORDINARILY = {
    "SupCon": (
        losses.SupConLoss(reduction="mean_nonzero"),
        their_losses.SupConLoss(),
    ),
    "generalized lifted structure": (
        losses.LiftedStructureLoss(generalized=True),
        their_losses.GeneralizedLiftedStructureLoss(),
    ),
    "histogram": (
        losses.HistogramLoss(50),
        their_losses.HistogramLoss(50),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", EVERYWHERE)
def test_pairs_and_triplets(name, shape):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    mine, other = EVERYWHERE[name]
    compare(ours(mine, labels, x), theirs(other, labels, x))


@pytest.mark.parametrize("shape", ORDINARY)
@pytest.mark.parametrize("name", ORDINARILY)
def test_ordinary_batches(name, shape):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    mine, other = ORDINARILY[name]
    compare(ours(mine, labels, x), theirs(other, labels, x))


@pytest.mark.parametrize("shape", SHAPES)
def test_angular_and_its_gradient_along_the_sphere(shape):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    value, (gradient,) = theirs(their_losses.AngularLoss(40.0), labels, x)
    gradient -= (gradient * x).sum(axis=1, keepdims=True) * x
    compare(ours(losses.AngularLoss(40.0), labels, x), (value, [gradient]))


def test_difference_sup_con_of_one_class():
    labels, dim = SHAPES["6x8, one class"]
    x = embeddings(labels, dim)
    mine, other = ORDINARILY["SupCon"]
    assert theirs(other, labels, x)[0] == 0
    assert ours(mine, labels, x)[0] > 1  # ≥ ln 5, for 5 equal positives


def test_difference_generalized_lifted_structure_of_lonely_anchors():
    labels, dim = SHAPES["6x8, no positives"]
    x = embeddings(labels, dim)
    mine, other = ORDINARILY["generalized lifted structure"]
    assert theirs(other, labels, x)[0] > 0
    assert ours(mine, labels, x)[0] == 0


@pytest.mark.parametrize("shape", DEGENERATE)
def test_histogram_of_degenerate_batches(shape):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    mine, other = ORDINARILY["histogram"]
    compare(ours(mine, labels, x), theirs(other, labels, x))


@pytest.mark.parametrize("count", [1, 2, 9, 20, 40])
@pytest.mark.parametrize("dim", [3, 16])
def test_n_pair_on_batches_of_one_pair_a_class(count, dim):
    labels = np.tile(np.arange(count), 2)
    x = 2 * embeddings(labels, dim)
    anchors, positives = np.arange(count), np.arange(count) + count
    indices = (anchors, positives, anchors[:0], anchors[:0])
    value, (gradient,) = theirs(RAW_N_PAIRS, labels, x, None, indices)
    tensor = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        mine = tf.reduce_mean(
            losses.NPairLoss().per_example(
                labels[:count], tensor[:count], labels[count:], tensor[count:]
            )
        )
    compare(
        (float(mine), [tape.gradient(mine, tensor).numpy()]),
        (value, [gradient]),
    )


def semihard_triplets(labels, x):
    triplets = []
    d = np.linalg.norm(x[:, None] - x, axis=2)
    for a in range(len(labels)):
        other = np.flatnonzero(labels != labels[a])
        for p in np.flatnonzero(labels == labels[a]):
            if p != a:
                beyond = [n for n in other if d[a, n] > d[a, p]]
                key = d[a].__getitem__
                n = min(beyond, key=key) if beyond else max(other, key=key)
                triplets.append((a, p, n))
    return np.array(triplets).T


@pytest.mark.parametrize("shape", ["6x8, one class", "6x8, no positives"])
def test_margin_without_triplets_is_zero_in_both(shape):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    other = their_losses.MarginLoss()
    nothing = np.zeros((3, 0), int)
    value, (gradient,) = theirs(other, labels, x, None, nothing)
    mine, (my_gradient,) = ours(losses.MarginLoss(), labels, x)
    assert value == mine == 0
    assert not np.any(gradient) and not np.any(my_gradient)


@pytest.mark.parametrize("shape", ORDINARY)
@pytest.mark.parametrize("num_classes", [None, 16])
def test_margin_with_learned_beta_on_the_same_triplets(shape, num_classes):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    other = their_losses.MarginLoss(
        beta=1.3, learn_beta=True, num_classes=num_classes
    )
    mine = losses.MarginLoss(
        beta=1.3, learn_beta=True, num_classes=num_classes, mining="semihard"
    )
    indices = semihard_triplets(labels, x)
    compare(
        ours(mine, labels, x),
        theirs(other, labels, x, other.beta, indices),
    )


def test_difference_margin_counts_each_pair_once():
    labels, dim = SHAPES["16x8, 4 a class"]
    x = embeddings(labels, dim)
    value, (gradient,) = ours(losses.MarginLoss(mining="all"), labels, x)
    # In 4 classes of 4, a positive pair is in 12 triplets, a negative in 3.
    positive = (labels[:, None] == labels) & ~np.eye(16, dtype=bool)
    negative = labels[:, None] != labels
    d = np.linalg.norm(x[:, None] - x, axis=2)
    pull = np.maximum(d - 1.0, 0)[positive]
    push = np.maximum(1.4 - d, 0)[negative]
    active = [(terms > 0).sum() for terms in (pull, push)]
    assert value == pytest.approx(
        (pull.sum() + push.sum()) / sum(active), rel=1e-5
    )
    other, _ = theirs(their_losses.MarginLoss(), labels, x)
    assert other == pytest.approx(
        (12 * pull.sum() + 3 * push.sum()) / (12 * active[0] + 3 * active[1]),
        rel=1e-5,
    )
    assert gradient.any()


CLASSES = 16
# name → (our loss, their loss, name of their weights, are they transposed)
PROXIES = {
    "Proxy-NCA++": (
        lambda dim: losses.ProxyNCALoss(
            CLASSES, temperature=1 / 3, exclude_positive=False
        ),
        lambda dim: their_losses.ProxyNCALoss(CLASSES, dim, softmax_scale=3),
        "proxies",
        False,
    ),
    "Proxy-Anchor": (
        lambda dim: losses.ProxyAnchorLoss(CLASSES),
        lambda dim: their_losses.ProxyAnchorLoss(CLASSES, dim),
        "proxies",
        False,
    ),
    "SoftTriple": (
        lambda dim: losses.SoftTripleLoss(CLASSES, num_centers=4, tau=0.0),
        lambda dim: their_losses.SoftTripleLoss(
            CLASSES, dim, centers_per_class=4
        ),
        "fc",
        True,
    ),
    "normalized softmax": (
        lambda dim: losses.NormalizedSoftmaxLoss(CLASSES),
        lambda dim: their_losses.NormalizedSoftmaxLoss(CLASSES, dim),
        "W",
        True,
    ),
    "CosFace": (
        lambda dim: losses.CosFaceLoss(CLASSES),
        lambda dim: their_losses.CosFaceLoss(CLASSES, dim),
        "W",
        True,
    ),
    "ArcFace": (
        lambda dim: losses.ArcFaceLoss(CLASSES, margin=np.radians(28.6)),
        lambda dim: their_losses.ArcFaceLoss(CLASSES, dim),
        "W",
        True,
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PROXIES)
def test_proxies(name, shape):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    make_ours, make_theirs, attribute, transposed = PROXIES[name]
    mine, other = make_ours(dim), make_theirs(dim)
    proxies = 1.5 * embeddings(np.zeros(mine.num_proxies), dim, seed=1)
    parameter = getattr(other, attribute)
    with torch.no_grad():
        parameter.copy_(torch.tensor(proxies.T if transposed else proxies))
    value, gradients = theirs(other, labels, x, parameter)
    if transposed:
        gradients[1] = gradients[1].T
    compare(ours(mine, labels, x, proxies), (value, gradients))
