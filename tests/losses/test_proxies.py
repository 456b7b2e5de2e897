"""The losses with learned class vectors, against loops."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.losses import (
    ArcFaceLoss,
    CosFaceLoss,
    DynamicArcFaceLoss,
    NormalizedSoftmaxLoss,
    P2SGradLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    SoftTripleLoss,
    SphereFaceLoss,
    SubCenterArcFaceLoss,
)
from tests.losses.oracle import batch, check_slopes, unit

CLASSES = 4
LABELS = [0, 2, 2, 0, 1, 2]  # class 3 is not in the batch


def cross_entropy(logits, label):
    return math.log(sum(math.exp(v) for v in logits)) - logits[label]


def proxy_nca(x, proxies):
    total = 0.0
    for row, label in zip(x, LABELS, strict=True):
        d = [sum((row - p) ** 2) for p in proxies]
        rest = sum(math.exp(-d[z]) for z in range(CLASSES) if z != label)
        total += -math.log(math.exp(-d[label]) / rest)
    return total / len(x)


def proxy_nca_plus_plus(x, proxies):
    total = 0.0
    for row, label in zip(x, LABELS, strict=True):
        logits = [-9 * sum((row - p) ** 2) for p in proxies]
        total += cross_entropy(logits, label)
    return total / len(x)


def proxy_anchor(x, proxies):
    pull, push = [], []
    for c, proxy in enumerate(proxies):
        positives = [
            r @ proxy for r, y in zip(x, LABELS, strict=True) if y == c
        ]
        rest = [r @ proxy for r, y in zip(x, LABELS, strict=True) if y != c]
        if positives:
            pull.append(
                math.log1p(sum(math.exp(-32 * (s - 0.1)) for s in positives))
            )
        push.append(math.log1p(sum(math.exp(32 * (s + 0.1)) for s in rest)))
    return sum(pull) / len(pull) + sum(push) / len(push)


def soft_triple(x, proxies):
    centers = proxies.reshape(CLASSES, 3, -1)
    total = 0.0
    for row, label in zip(x, LABELS, strict=True):
        logits = []
        for c in range(CLASSES):
            s = centers[c] @ row
            weights = np.exp(s / 0.1) / np.exp(s / 0.1).sum()
            logits.append(20 * (weights @ s - 0.01 * (c == label)))
        total += cross_entropy(logits, label)
    spread = sum(
        math.sqrt(2 - 2 * centers[c, t] @ centers[c, s])
        for c in range(CLASSES)
        for t in range(3)
        for s in range(t + 1, 3)
    )
    return total / len(x) + 0.2 * spread / (CLASSES * 3 * 2)


def normalized_softmax(x, proxies):
    rows = zip(x, LABELS, strict=True)
    return sum(cross_entropy(proxies @ r / 0.05, y) for r, y in rows) / len(x)


def cos_face(x, proxies):
    total = 0.0
    for row, label in zip(x, LABELS, strict=True):
        logits = 64 * (proxies @ row - 0.35 * (np.arange(CLASSES) == label))
        total += cross_entropy(logits - logits.max(), label)
    return total / len(x)


def arc_face(x, proxies, margin=0.5, scale=16.0):
    total = 0.0
    for row, label in zip(x, LABELS, strict=True):
        logits = scale * (proxies @ row)
        angle = math.acos(proxies[label] @ row)
        if angle + margin <= math.pi:
            logits[label] = scale * math.cos(angle + margin)
        else:
            logits[label] -= scale * margin * math.sin(margin)
        total += cross_entropy(logits, label)
    return total / len(x)


def arc_face_wide(x, proxies):
    return arc_face(x, proxies, margin=1.5)


def sub_centers(x, proxies, margins):
    nearest = [
        [
            max(proxies[3 * c : 3 * c + 3], key=lambda w: w @ row)
            for c in range(4)
        ]
        for row in x
    ]
    total = 0.0
    for row, label, centers in zip(x, LABELS, nearest, strict=True):
        logits = [16 * (w @ row) for w in centers]
        angle = math.acos(centers[label] @ row) + margins[label]
        logits[label] = 16 * math.cos(angle)
        assert angle < math.pi
        total += cross_entropy(logits, label)
    return total / len(x)


def sub_center_arc_face(x, proxies):
    return sub_centers(x, proxies, [0.5] * CLASSES)


def dynamic_arc_face(x, proxies):
    margins = [0.5 * n**-0.25 + 0.05 for n in (3, 1, 16, 2)]
    return sub_centers(x, proxies, margins)


def sphere_face(x, proxies):
    total = 0.0
    for row, label in zip(x, LABELS, strict=True):
        logits = 30 * (proxies @ row)
        angle = math.acos(proxies[label] @ row)
        k = int(angle * 4 / math.pi)
        logits[label] = 30 * ((-1) ** k * math.cos(4 * angle) - 2 * k)
        total += cross_entropy(logits - logits.max(), label)
    return total / len(x)


def p2s_grad(x, proxies):
    target = np.eye(CLASSES)[LABELS]
    return 0.5 * ((x @ proxies.T - target) ** 2).sum() / len(x)


CASES = {
    "dynamic_arc_face": (
        DynamicArcFaceLoss(CLASSES, [3, 1, 16, 2], scale=16.0),
        dynamic_arc_face,
    ),
    "p2s_grad": (P2SGradLoss(CLASSES), p2s_grad),
    "sphere_face": (SphereFaceLoss(CLASSES), sphere_face),
    "sub_center_arc_face": (
        SubCenterArcFaceLoss(CLASSES, scale=16.0),
        sub_center_arc_face,
    ),
    "proxy_nca": (ProxyNCALoss(CLASSES), proxy_nca),
    "proxy_nca++": (
        ProxyNCALoss(CLASSES, temperature=1 / 9, exclude_positive=False),
        proxy_nca_plus_plus,
    ),
    "proxy_anchor": (ProxyAnchorLoss(CLASSES), proxy_anchor),
    "soft_triple": (SoftTripleLoss(CLASSES, num_centers=3), soft_triple),
    "normalized_softmax": (
        NormalizedSoftmaxLoss(CLASSES),
        normalized_softmax,
    ),
    "cos_face": (CosFaceLoss(CLASSES), cos_face),
    "arc_face": (ArcFaceLoss(CLASSES, scale=16.0), arc_face),
    "arc_face beyond pi": (
        ArcFaceLoss(CLASSES, margin=1.5, scale=16.0),
        arc_face_wide,
    ),
}


def built(loss, dim=5):
    """A fresh copy of the loss, and the weight its owner holds."""
    loss = type(loss).from_config(loss.get_config())
    owner = keras.layers.Layer()
    loss.build(owner, dim)
    (weight,) = owner.trainable_variables
    return loss, weight


@pytest.mark.parametrize(("loss", "loop"), CASES.values(), ids=CASES)
def test_value_and_both_gradients_match_a_loop(loss, loop):
    loss, weight = built(loss)
    assert "/loss/" in weight.path
    x = batch(LABELS)
    proxies = batch([0] * weight.shape[0], seed=3)
    weight.assign(proxies.astype("float32"))

    def raw(x, proxies):
        return loop(unit(x), unit(proxies))

    tensor = tf.constant(x, "float32")
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        values = loss.per_example(np.array(LABELS), tensor)
        mean = tf.reduce_mean(values)
    assert values.shape == (len(LABELS),)
    assert float(mean) == pytest.approx(raw(x, proxies), rel=2e-5)
    by_x, by_proxies = tape.gradient(mean, [tensor, weight.value])
    by_proxies = tf.convert_to_tensor(by_proxies)
    check_slopes(by_x.numpy(), lambda z: raw(z, proxies), x)
    check_slopes(by_proxies.numpy(), lambda z: raw(x, z), proxies)


@pytest.mark.parametrize(
    "name", ["arc_face", "cos_face", "proxy_anchor", "sphere_face"]
)
def test_embedding_on_its_proxy_has_a_finite_gradient(name):
    loss, weight = built(CASES[name][0])
    x = tf.constant(weight.numpy()[LABELS])
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = loss(np.array(LABELS), x)
    gradients = tape.gradient(value, [x, weight.value])
    for gradient in gradients:
        assert np.isfinite(tf.convert_to_tensor(gradient).numpy()).all()


def test_proxies_without_an_owner_raise_and_show_the_code():
    x = batch(LABELS).astype("float32")
    with pytest.raises(RuntimeError, match="methods.baseline") as error:
        ProxyNCALoss(7)(np.array(LABELS), x)
    assert "ProxyNCALoss(num_classes=7)" in str(error.value)


def test_building_twice_raises():
    loss, _ = built(ProxyNCALoss(CLASSES))
    with pytest.raises(RuntimeError, match="already belong"):
        loss.build(keras.layers.Layer(), 5)


def test_unknown_class_raises_and_is_nan_in_a_graph():
    loss, _ = built(ProxyAnchorLoss(CLASSES))
    labels = np.array([0, 1, CLASSES])
    x = batch([0] * 3).astype("float32")
    with pytest.raises(ValueError, match="a label 4"):
        loss.per_example(labels, x)
    values = tf.function(loss.per_example, autograph=False)(labels, x)
    assert np.isnan(values).tolist() == [False, False, True]


def test_relation_labels_and_references_raise():
    loss, _ = built(ProxyNCALoss(CLASSES))
    x = batch([0] * 3).astype("float32")
    with pytest.raises(ValueError, match="relation matrix does not contain"):
        loss.per_example(np.eye(3, dtype="int32"), x)
    with pytest.raises(ValueError, match="does not take `ref_embeddings`"):
        loss.per_example(np.array([0, 1, 2]), x, np.array([0, 1, 2]), x)


def test_frozen_proxies_stay_one_hot() -> None:
    """Frozen proxies are one-hot and do not change."""
    loss = ProxyNCALoss(3, initializer="identity", trainable_proxies=False)
    owner = keras.layers.Layer(name="owner")
    loss.build(owner, 4)
    np.testing.assert_array_equal(loss.proxies, np.eye(3, 4))
    assert not owner.trainable_variables
    assert len(owner.weights) == 1
    assert loss.copy().trainable_proxies is False
