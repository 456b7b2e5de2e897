"""Losses against pytorch-metric-learning 2.9: values and gradients.

`test_migration_pml.py` compares rows of the docs. Here are other arguments,
batches in which anchors are alone, and differences that are deliberate:

- SupCon of a batch of one class: theirs is 0, the formula is not.
- Generalized lifted structure and anchors without a positive or without a
  negative: theirs charges them, with 0 for the logarithm that is missing.
- Margin loss over all pairs: theirs counts a pair once for each triplet
  it is in, ours once.
- Angular loss: theirs normalizes anchors and positives, not negatives; on
  unit embeddings the gradients differ along the embeddings themselves.
- Histogram loss: theirs leaves out negative pairs of two lonely anchors.
- Smooth-AP: theirs takes the size of a class for the number of classes,
  and is right where both are the same.
- PNP: theirs counts an anchor without another positive, too.
- NCA: theirs is NaN where no anchor has a positive.
- P2SGrad: theirs makes its weights unit outside of the gradient, which then
  points off the sphere.
- Instance loss: theirs takes an arbitrary column for the target, unless
  every example has a class of its own, numbered in order.
- Dynamic soft margin: theirs counts each triplet of a batch as much as
  all of the past, lets gradient pass its weights, and cannot take that of a
  second batch.
- Ranked list: theirs adds 1e−5 to each weight in what it divides by.
"""

import keras
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

SQUARED = their_distances.LpDistance(power=2)
MEAN = their_reducers.MeanReducer()

# Their histogram loss indexes in a way that PyTorch warns about, and their
# SphereFace calls SciPy with tensors.
pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings(
        "ignore:Using a non-tuple sequence for multidimensional indexing"
    ),
    pytest.mark.filterwarnings("ignore:__array_wrap__ must accept"),
]

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
    "SNR contrastive": (
        losses.ContrastiveLoss(0.01, 0.2, distance="snr"),
        their_losses.SignalToNoiseRatioContrastiveLoss(
            pos_margin=0.01, neg_margin=0.2
        ),
    ),
    "tuplet margin": (
        losses.TupletMarginLoss(np.radians(5.73)),
        their_losses.TupletMarginLoss(),
    ),
    "threshold-consistent margin": (
        losses.ContrastiveLoss(0.9, 0.5, distance="cosine"),
        their_losses.ThresholdConsistentMarginLoss(),
    ),
    "threshold-consistent margin, weighted": (
        0.3 * losses.ContrastiveLoss(0.8, 1.0, distance="cosine")
        + 2.0 * losses.ContrastiveLoss(-1.0, 0.2, distance="cosine"),
        their_losses.ThresholdConsistentMarginLoss(0.3, 2.0, 0.8, 0.2),
    ),
    "intra-pair variance": (
        losses.IntraPairVarianceLoss(0.1, 0.2),
        their_losses.IntraPairVarianceLoss(0.1, 0.2),
    ),
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
    **{
        f"PNP {theirs}": (
            losses.PNPLoss(ours, 2.0, 3.0, temperature=0.1, include_self=True),
            their_losses.PNPLoss(b=3, alpha=2, anneal=0.1, variant=theirs),
        )
        for ours, theirs in (
            ("O", "O"),
            ("I_u", "Iu"),
            ("I_b", "Ib"),
            ("D_s", "Ds"),
            ("D_q", "Dq"),
        )
    },
}


@pytest.mark.parametrize("shape", list(SHAPES)[1:5])
@pytest.mark.parametrize("name", EVERYWHERE)
def test_losses_match_on_every_batch(name, shape):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    mine, other = EVERYWHERE[name]
    compare(ours(mine, labels, x), theirs(other, labels, x))


@pytest.mark.parametrize("shape", ORDINARY)
@pytest.mark.parametrize("name", ORDINARILY)
def test_losses_match_on_ordinary_batches(name, shape):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    mine, other = ORDINARILY[name]
    compare(ours(mine, labels, x), theirs(other, labels, x))


def test_dynamic_soft_margin_matches_over_steps():
    labels, dim = SHAPES["16x8, 4 a class"]
    triplets = 16 * 3 * 12
    momentum = 0.001 * triplets / (0.999 + 0.001 * triplets)
    mine = losses.DynamicSoftMarginLoss(20, momentum, mining="all")
    mine.build(keras.layers.Layer(), dim)
    other = their_losses.DynamicSoftMarginLoss(num_bins=20, momentum=0.001)
    for seed in range(3):
        x = embeddings(labels, dim, seed=seed)
        with torch.no_grad():
            expected = float(other(torch.tensor(x), torch.tensor(labels)))
        assert float(mine(labels, x)) == pytest.approx(expected, rel=1e-5)
        mine.remember(labels, x)


def test_sup_con_differs_for_one_class():
    labels, dim = SHAPES["6x8, one class"]
    x = embeddings(labels, dim)
    mine, other = ORDINARILY["SupCon"]
    assert theirs(other, labels, x)[0] == 0
    assert ours(mine, labels, x)[0] > 1  # ≥ ln 5, for 5 equal positives


def test_generalized_lifted_structure_differs_for_lonely_anchors():
    labels, dim = SHAPES["6x8, no positives"]
    x = embeddings(labels, dim)
    mine, other = ORDINARILY["generalized lifted structure"]
    assert theirs(other, labels, x)[0] > 0
    assert ours(mine, labels, x)[0] == 0


@pytest.mark.parametrize("shape", DEGENERATE)
def test_histogram_matches_on_degenerate_batches(shape):
    labels, dim = SHAPES[shape]
    x = embeddings(labels, dim)
    mine, other = ORDINARILY["histogram"]
    compare(ours(mine, labels, x), theirs(other, labels, x))


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
def test_margin_with_learned_beta_matches_on_the_same_triplets(
    shape, num_classes
):
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


def test_margin_differs_by_counting_each_pair_once():
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


class Scaled:
    """A multiple of a loss of theirs, which has its weights."""

    def __init__(self, loss, weights, factor):
        self.loss, self.factor = loss, factor
        setattr(self, weights, getattr(loss, weights))

    def __call__(self, *args):
        return self.factor * self.loss(*args)


def test_p2s_grad_differs_by_the_radial_gradient():
    labels, dim = SHAPES["21x16, unbalanced"]
    x = embeddings(labels, dim)
    mine = losses.P2SGradLoss(CLASSES)
    other = Scaled(
        their_losses.P2SGradLoss(dim, CLASSES), "weight", CLASSES / 2
    )
    # Theirs makes its weights unit, by force.
    proxies = embeddings(np.zeros(mine.num_proxies), dim, seed=1)
    with torch.no_grad():
        other.weight.copy_(torch.tensor(proxies.T))
    value, gradients = theirs(other, labels, x, other.weight)
    gradients[1] = gradients[1].T
    radial = (gradients[1] * proxies).sum(axis=1, keepdims=True)
    gradients[1] = gradients[1] - radial * proxies
    compare(ours(mine, labels, x, proxies), (value, gradients))


@pytest.mark.parametrize(
    ("inner", "their_inner"),
    [
        (
            losses.ContrastiveLoss(distance="euclidean"),
            their_losses.ContrastiveLoss(),
        ),
        (losses.NTXentLoss(temperature=0.07), their_losses.NTXentLoss()),
        (
            losses.MultiSimilarityLoss(
                mining="all", alpha=2.0, beta=50.0, threshold=0.5
            ),
            their_losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5),
        ),
    ],
    ids=["contrastive", "nt_xent", "multi_similarity"],
)
def test_cross_batch_memory_matches(inner, their_inner):
    """Filling, full, and wrapped around. Theirs has no loss of the batch."""
    dim, size = 8, 40
    memory = losses.CrossBatchMemory(inner, size, batch=False)
    memory.build(keras.layers.Layer(), dim)
    their_memory = their_losses.CrossBatchMemory(their_inner, dim, size)
    labels = np.arange(16) % 4
    for step in range(5):
        x = embeddings(labels, dim, seed=step)
        ours_x, theirs_x = tf.constant(x), torch.tensor(x, requires_grad=True)
        with tf.GradientTape() as tape:
            tape.watch(ours_x)
            value = memory(labels, ours_x)
        memory.remember(labels, ours_x)
        expected = their_memory(theirs_x, torch.tensor(labels))
        expected.backward()
        assert float(value) == pytest.approx(expected.item(), rel=1e-5)
        np.testing.assert_allclose(
            tape.gradient(value, ours_x), theirs_x.grad, atol=1e-5
        )
