"""Functions and losses of Keras as metric losses."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_dml import losses
from keras_dml.losses import FunctionLoss
from tests.losses.oracle import LABELS, batch, value_and_gradient

LABEL = np.array(LABELS["balanced"])
X = batch(LABELS["balanced"]).astype("float32")
register = keras.saving.register_keras_serializable(package="test_function")


@register
def spread(labels, embeddings):
    return ops.sum(ops.square(embeddings), axis=1) * (
        ops.cast(labels, "float32") + 1.0
    )


def unregistered(labels, embeddings):
    return ops.mean(spread(labels, embeddings))


@register
class Spread(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return spread(y_true, y_pred)


EXPECTED = np.square(X).sum(1) * (LABEL + 1.0)


@pytest.mark.parametrize(
    "function",
    [spread, unregistered, Spread()],
    ids=["rows", "scalar", "keras"],
)
def test_value_and_gradient_match_the_function(function) -> None:
    loss = losses.get(function)
    assert isinstance(loss, FunctionLoss)
    values, gradient = value_and_gradient(loss, LABEL, X)
    assert values.mean() == pytest.approx(EXPECTED.mean(), rel=1e-5)
    np.testing.assert_allclose(
        gradient, 2 * X * (LABEL + 1.0)[:, None] / len(X), rtol=1e-4
    )
    if function is not unregistered:
        np.testing.assert_allclose(values, EXPECTED, rtol=1e-5)
    assert float(loss(LABEL, X)) == pytest.approx(EXPECTED.mean(), rel=1e-5)


def test_keras_sum_reduction_stays_a_sum() -> None:
    loss = losses.get(Spread(reduction="sum"))
    assert float(loss(LABEL, X)) == pytest.approx(EXPECTED.sum(), rel=1e-5)


@pytest.mark.parametrize("function", [spread, Spread(name="mine")])
def test_registered_functions_are_saved(function) -> None:
    loss = losses.get(
        {"mine": {"loss": function, "weight": 0.5}, "triplet": 1.0}
    )
    config = keras.saving.serialize_keras_object(loss)
    again = keras.saving.deserialize_keras_object(config)
    value = float(again.losses["mine"](LABEL, X))
    assert value == pytest.approx(EXPECTED.mean(), rel=1e-5)
    assert losses.get(function).copy().get_config() == (
        losses.get(function).get_config()
    )


@pytest.mark.parametrize(
    "function",
    [unregistered, lambda labels, x: ops.sum(x)],
    ids=["def", "lambda"],
)
def test_unregistered_functions_raise_when_saved(function) -> None:
    loss = losses.get(function)
    assert loss.copy().function is function  # Learners may each have one.
    with pytest.raises(ValueError, match="register_keras_serializable"):
        keras.saving.serialize_keras_object(loss)


def test_unfit_uses_of_a_function_raise() -> None:
    loss = losses.get(spread)
    with pytest.raises(ValueError, match="without references or pair weights"):
        loss.per_example(LABEL, X, LABEL, X)
    wrong = losses.get(lambda labels, x: x)
    with pytest.raises(ValueError, match=r"one value per example.*\(9, 5\)"):
        wrong.per_example(LABEL, X)


def test_function_is_imported_from_a_module(tmp_path, monkeypatch) -> None:
    (tmp_path / "module_with_a_function.py").write_text(
        "def pull(labels, embeddings):\n    return embeddings[:, 0]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    loss = losses.get("module_with_a_function:pull")
    np.testing.assert_array_equal(loss.per_example(LABEL, X), X[:, 0])
    with pytest.raises(ValueError, match="no loss 'push'"):
        losses.get("module_with_a_function:push")
