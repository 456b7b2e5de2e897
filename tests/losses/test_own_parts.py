"""Distances and reductions of the user's own."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_dml import losses
from keras_dml.losses import distances, reductions
from tests.losses.oracle import LABELS, batch, value_and_gradient

LABEL = np.array(LABELS["balanced"])
X = batch(LABELS["balanced"]).astype("float32")
register = keras.saving.register_keras_serializable(package="test_own_parts")


@register
def own_squared(x, refs=None):
    refs = x if refs is None else refs
    return ops.sum(ops.square(x[:, None] - refs[None]), axis=2)


@register
class OwnSimilarity:
    larger_is_closer = True

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x, refs=None):
        return self.scale * distances.cosine_similarity(x, refs)

    def get_config(self):
        return {"scale": self.scale}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@register
def by_anchor(terms):
    return terms.total / ops.maximum(terms.count, 1.0)


def again(loss):
    config = keras.saving.serialize_keras_object(loss)
    return keras.saving.deserialize_keras_object(config)


def test_function_may_be_the_distance() -> None:
    loss = losses.TripletLoss(distance=own_squared)
    assert loss.distance is own_squared
    expected = value_and_gradient(losses.TripletLoss(), LABEL, X)
    for each in (loss, again(loss), loss.copy()):
        actual = value_and_gradient(each, LABEL, X)
        for a, b in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    distance = distances.squared_distance
    assert losses.TripletLoss(distance=distance).distance == "squared"
    np.testing.assert_allclose(
        losses.triplet(LABEL, X, distance=own_squared),
        losses.triplet(LABEL, X),
        rtol=1e-4,
        atol=1e-6,
    )


def test_object_may_be_a_similarity() -> None:
    loss = losses.BinomialDevianceLoss(
        distance=OwnSimilarity(2.0), threshold=1.0
    )
    expected = losses.BinomialDevianceLoss(alpha=4.0, threshold=0.5)
    for each in (loss, again(loss), loss.copy()):
        assert float(each(LABEL, X)) == pytest.approx(
            float(expected(LABEL, X)), rel=1e-5
        )
    losses.CircleLoss(distance=OwnSimilarity(1.0))


def test_registered_distances_take_arguments(monkeypatch) -> None:
    registry = distances.DISTANCES
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    registry.register("own", "scaled cosine")(OwnSimilarity)
    loss = losses.get(
        {"name": "circle", "distance": {"name": "own", "scale": 1.0}}
    )
    expected = float(losses.CircleLoss()(LABEL, X))
    for each in (loss, again(loss)):
        assert float(each(LABEL, X)) == pytest.approx(expected, rel=1e-5)


def test_function_may_be_the_reduction() -> None:
    loss = losses.ContrastiveLoss(reduction=by_anchor)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    distance = np.square(unit[:, None] - unit[None]).sum(-1)
    same = LABEL[:, None] == LABEL
    other = same & ~np.eye(9, dtype=bool)
    expected = np.mean((distance * other).sum(1) / other.sum(1)) + np.mean(
        (np.maximum(1 - distance, 0) * ~same).sum(1) / (~same).sum(1)
    )
    for each in (loss, again(loss), loss.copy()):
        assert each.reduction is by_anchor
        assert float(each(LABEL, X)) == pytest.approx(expected, rel=1e-4)
    mean_loss = losses.TripletLoss(reduction=reductions.mean)
    assert mean_loss.reduction == "mean"


def test_unregistered_distance_raises_when_saved() -> None:
    def mine(x, refs=None):
        return own_squared(x, refs)

    loss = losses.TripletLoss(distance=mine)
    assert loss.copy().distance is mine
    with pytest.raises(ValueError, match="of TripletLoss must.*mine"):
        keras.saving.serialize_keras_object(loss)
