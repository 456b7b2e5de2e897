"""Several losses at once: values, gradients, names, configs."""

import keras
import numpy as np
import pytest
from keras.optimizers.schedules import ExponentialDecay

from keras_dml import losses
from keras_dml.losses import WeightedSum
from tests.losses.oracle import LABELS, batch, value_and_gradient

LABEL = np.array(LABELS["unbalanced"])
X = batch(LABELS["unbalanced"]).astype("float32")


def parts():
    """Losses with miners, reductions and distances of their own."""
    return {
        "hard": losses.TripletLoss(mining="hard", reduction="mean_nonzero"),
        "pairs": losses.ContrastiveLoss(distance="euclidean"),
        "proxies": losses.ProxyAnchorLoss(3, initializer="ones"),
    }


def built(loss):
    loss.build(keras.layers.Layer(), X.shape[1])
    return loss


def test_value_and_gradient_sum_the_parts() -> None:
    weights = {"hard": 1.0, "pairs": 0.5, "proxies": 2.0}
    whole = built(WeightedSum(parts(), weights))
    value, gradient = value_and_gradient(whole, LABEL % 3, X)
    expected = [
        value_and_gradient(built(loss), LABEL % 3, X)
        for loss in parts().values()
    ]
    for i, actual in enumerate((value, gradient)):
        total = sum(
            weight * each[i]
            for weight, each in zip(weights.values(), expected, strict=True)
        )
        np.testing.assert_allclose(actual, total, rtol=1e-5, atol=1e-6)
    assert whole.term_weights == weights
    terms = whole.term_values(LABEL % 3, X)
    np.testing.assert_array_equal(terms["hard"], expected[0][0])


def test_plain_compile_uses_the_weighted_sum() -> None:
    loss = losses.TripletLoss() + 0.5 * losses.ContrastiveLoss()
    first, second = losses.TripletLoss(), losses.ContrastiveLoss()
    expected = float(first(LABEL, X)) + 0.5 * float(second(LABEL, X))
    assert float(loss(LABEL, X)) == pytest.approx(expected, rel=1e-5)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    model.compile("sgd", loss=loss)
    assert np.isfinite(model.fit(X, LABEL, verbose=0).history["loss"][0])


def test_arithmetic_and_lists_name_the_parts() -> None:
    a, b = losses.TripletLoss(), losses.TripletLoss(mining="hard")
    c = losses.MarginLoss(name="far")
    total = sum([a, 0.5 * b, np.float64(2.0) * c])
    assert total.weights == {"triplet": 1.0, "triplet_2": 0.5, "far": 2.0}
    assert list(total.losses.values()) == [a, b, c]
    assert (total * 3).weights["triplet_2"] == 1.5
    decay = ExponentialDecay(1.0, 10, 0.5)
    assert (decay * a).weights == {"triplet": decay}
    listed = losses.get([a, {"name": "margin", "beta": 1.1, "weight": 0.2}])
    assert listed.weights == {"triplet": 1.0, "margin": 0.2}
    assert losses.get([a, c, b]).weights.keys() == {
        "triplet", "far", "triplet_2",
    }  # fmt: skip
    with pytest.raises(ValueError, match="`weights`.*'nonsense'"):
        a * "nonsense"


def test_dict_sets_losses_and_weights() -> None:
    loss = losses.get(
        {
            "contrastive": 1,
            "margin": {"beta": 1.1, "weight": "learned"},
            "hard": {"name": "triplet", "mining": "hard"},
            "mine": losses.MultiSimilarityLoss(alpha=3.0),
            "late": {"loss": "circle", "weight": ExponentialDecay(1.0, 9, 0.5)},
        }
    )
    assert [type(x).__name__ for x in loss.losses.values()] == [
        "ContrastiveLoss", "MarginLoss", "TripletLoss", "MultiSimilarityLoss",
        "CircleLoss",
    ]  # fmt: skip
    assert loss.losses["margin"].beta == 1.1
    assert loss.weights["margin"] == "learned"
    explicit = losses.get({"name": "weighted_sum", "losses": {"margin": 2.0}})
    assert explicit.weights == {"margin": 2.0}
    with pytest.raises(ValueError, match="unless a MetricModel changes it"):
        loss(LABEL, X)


def test_config_round_trip_and_copy() -> None:
    loss = WeightedSum(
        {**parts(), "inner": losses.TripletLoss() + losses.MarginLoss()},
        {"hard": "learned", "pairs": ExponentialDecay(1.0, 9, 0.5), "inner": 3},
    )
    assert list(loss.term_weights)[3:] == ["inner_triplet", "inner_margin"]
    assert loss.term_weights["inner_margin"] == 3
    config = keras.saving.serialize_keras_object(loss)
    again = keras.saving.deserialize_keras_object(config)
    for other in (again, loss.copy(), losses.get(config)):
        assert other.get_config() == loss.get_config()
        assert list(other.term_weights) == list(loss.term_weights)
        assert other.losses["hard"] is not loss.losses["hard"]
    assert loss.owns_variables
    assert not loss.weights_pairs


def test_unfit_weights_raise() -> None:
    inner = losses.TripletLoss() + losses.MarginLoss()
    with pytest.raises(ValueError, match="must belong to a loss with a sing"):
        WeightedSum({"inner": inner}, {"inner": "learned"})
    with pytest.raises(ValueError, match="one weight per loss"):
        WeightedSum(["triplet", "margin"], [1.0])
    with pytest.raises(ValueError, match="the names of its losses.*'margn'"):
        WeightedSum(["triplet", "margin"], {"margn": 1.0})
