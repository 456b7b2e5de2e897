"""HDC against NumPy loops over models and pairs."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones, methods
from keras_dml.methods import _hdc as hdc
from tests.conftest import quick
from tests.losses.oracle import check_slopes, unit
from tests.methods.test_contract import batch

LABELS = np.array([0, 0, 0, 1, 1, 1, 2, 2])
PARTS = unit(np.random.default_rng(4).normal(size=(8, 3, 4)))
EQ_10 = {"name": "contrastive", "reduction": "sum_over_pairs"}


def model_of(**arguments):
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 6, 8))
    options = {
        "embedding_dim": 12,
        "branches": ["relu_0", "relu_1"],
        "loss": EQ_10,
        **arguments,
    }
    return methods.hdc(backbone, **options)


def sets_by_hand(parts, shares) -> list[list[tuple[int, int]]]:
    """P_1 ⊇ P_2 ⊇ …, of unordered pairs, ranked by the loss."""
    pairs = [(i, j) for i in range(8) for j in range(i)]
    sets = [pairs]
    for k, share in enumerate(shares[1:]):
        chosen = []
        for kind in (True, False):
            of_kind = [
                p for p in pairs if (LABELS[p[0]] == LABELS[p[1]]) == kind
            ]

            def loss(pair, kind=kind, k=k):
                i, j = pair
                squared = np.sum((parts[i, k] - parts[j, k]) ** 2)
                return squared if kind else 4 - squared  # No hinge: no ties.

            left = [p for p in of_kind if p in sets[-1]]
            count = math.ceil(share * len(of_kind))
            chosen += sorted(left, key=loss, reverse=True)[:count]
        sets.append(chosen)
    return sets


@pytest.mark.parametrize("shares", [(1, 0.5, 0.2), (1, 1, 0.3), (1, 0.1, 0.1)])
def test_hard_pairs_are_chosen_by_the_previous_model(shares) -> None:
    masks = hdc.hard_pairs(LABELS, tf.constant(PARTS, "float32"), shares)
    for mask, pairs in zip(masks, sets_by_hand(PARTS, shares), strict=True):
        expected = np.zeros((8, 8), bool)
        for i, j in pairs:
            expected[i, j] = expected[j, i] = True
        np.testing.assert_array_equal(mask, expected)


def test_loss_and_gradient_match_a_loop() -> None:
    """Σ_k of the contrastive loss over P_k; sets pass no gradient."""
    shares = (1.0, 0.5, 0.2)
    objective = model_of(hard_shares=shares).objective
    sets = sets_by_hand(PARTS, shares)

    def by_hand(parts: np.ndarray) -> float:
        total = 0.0
        for k, pairs in enumerate(sets):
            x = unit(parts[:, k])
            for i, j in pairs:
                squared = np.sum((x[i] - x[j]) ** 2)
                same = LABELS[i] == LABELS[j]
                total += 2 * (squared if same else max(0.0, 1 - squared))
        return total / len(parts)

    x = tf.constant(PARTS, "float32")
    with tf.GradientTape() as tape:
        tape.watch(x)
        terms = objective({"parts": x}, {"label": tf.constant(LABELS)})
        mean = tf.reduce_mean(terms["metric"])
    np.testing.assert_allclose(mean, by_hand(PARTS), rtol=1e-5)
    check_slopes(tape.gradient(mean, x).numpy(), by_hand, PARTS, rtol=1e-3)


@pytest.mark.parametrize("labels", [np.zeros(8, int), np.arange(8)])
def test_hard_shares_apply_to_batches_of_one_kind_of_pair(labels) -> None:
    masks = hdc.hard_pairs(labels, tf.constant(PARTS, "float32"), (1, 0.5))
    assert int(np.sum(masks[0])) == 56
    assert int(np.sum(masks[1])) == 28


def test_models_share_pieces_of_the_backbone() -> None:
    """Each model pools the backbone's features at its depth."""
    keras.utils.set_random_seed(1)
    whole = backbones.small_convnet((16, 16, 1), filters=(4, 6, 8))
    model = methods.hdc(
        whole, embedding_dim=12, branches=["relu_0", "relu_1"], loss=EQ_10
    )
    x, _ = batch()
    outputs = model.outputs_of(x)
    for k, name in enumerate(("relu_0", "relu_1", "relu_2")):
        at = keras.Model(whole.input, whole.get_layer(name).output)
        pooled = at(x).numpy().mean((1, 2))
        kernel, bias = model.head.denses[k].get_weights()
        np.testing.assert_allclose(
            outputs["parts"][:, k], unit(pooled @ kernel + bias), atol=1e-5
        )
    flat = np.reshape(outputs["parts"], (12, 12)) / np.sqrt(3)
    np.testing.assert_allclose(outputs["embedding"], flat, rtol=1e-6)
    # No layer is duplicated.
    convolutions = [v for v in model.weights if "conv_" in v.path]
    assert len(convolutions) == 3


@pytest.mark.parametrize("name", quick(["small_convnet"], sorted(hdc.BRANCHES)))
def test_default_branches_cut_the_backbone(name) -> None:
    size = (48, 48, 1) if name == "small_convnet" else (64, 64, 3)
    backbone = backbones.get(name, input_shape=size)
    points = hdc.splitting.cut_points(backbone)
    first, second = hdc.BRANCHES[backbone.name]
    assert points.index(first) < points.index(second)


def test_other_backbones_need_branches(tiny_backbone) -> None:
    tiny_backbone.name = "mine"
    with pytest.raises(ValueError, match="`branches` of hdc.*relu_0"):
        methods.hdc(tiny_backbone)


def test_masked_features_raise() -> None:
    model = model_of()
    with pytest.raises(ValueError, match="hdc cannot branch"):
        model.head(tf.zeros((2, 8, 8, 4)), mask=tf.ones((2, 8, 8)))
