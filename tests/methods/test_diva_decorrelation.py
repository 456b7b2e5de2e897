"""Decorrelation against NumPy: value and gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.methods import Decorrelation
from tests.losses.oracle import check_slopes, unit

RNG = np.random.default_rng(0)
TARGET, SOURCE = (unit(RNG.normal(size=(6, 4))) for _ in "ab")


def layer_of(**kwargs) -> tuple[Decorrelation, list[np.ndarray]]:
    layer = Decorrelation(units=5, name="pair", **kwargs)
    layer.build((None, 4))
    psi = [RNG.normal(size=w.shape) for w in layer.trainable_variables]
    for weight, value in zip(layer.trainable_variables, psi, strict=True):
        weight.assign(value)
    return layer, psi


def by_hand(target, source, psi, reduction) -> np.ndarray:
    """‖φ_a ∘ ψ(φ_b)‖² with unit ψ, for every image."""
    kernel, bias, kernel2, bias2 = psi
    mapped = unit(np.maximum(source @ kernel + bias, 0) @ kernel2 + bias2)
    squared = (target * mapped) ** 2
    return squared.mean(1) if reduction == "mean" else squared.sum(1)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_value_and_gradients_match_a_loop(reduction) -> None:
    """ψ ascends c, and both embeddings descend it."""
    layer, psi = layer_of(reduction=reduction)
    inputs = [tf.constant(x, "float32") for x in (TARGET, SOURCE)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        values = layer(*inputs)
        total = tf.reduce_sum(values)
    np.testing.assert_allclose(
        values, by_hand(TARGET, SOURCE, psi, reduction), rtol=1e-5
    )
    gradients = tape.gradient(total, [*inputs, *layer.trainable_variables])
    point = [TARGET, SOURCE, *psi]
    for i, gradient in enumerate(gradients):

        def value(x, i=i) -> float:
            target, source, *weights = [*point[:i], x, *point[i + 1 :]]
            return by_hand(target, source, weights, reduction).sum()

        slope = -gradient.numpy() if i < 2 else gradient.numpy()
        assert np.abs(slope).max() > 1e-3
        check_slopes(slope, value, point[i], rtol=1e-3)


def test_paths_mark_psi_as_part_of_a_loss() -> None:
    layer, _ = layer_of()
    paths = [v.path for v in layer.trainable_variables]
    assert len(paths) == 4
    assert all("/loss/psi/" in path for path in paths)


def test_decorrelation_works_in_a_functional_model(tmp_path) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    inputs = [keras.Input((4,), dtype="float32") for _ in "ab"]
    layer = Decorrelation(units=7, reduction="sum")
    model = keras.Model(inputs, layer(*inputs))
    assert model.output_shape == (None,)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    x = [v.astype("float32") for v in (TARGET, SOURCE)]
    assert again(x).dtype == "float32"
    np.testing.assert_array_equal(again(x), model(x))
    assert again.layers[-1].get_config() == layer.get_config()


@pytest.mark.parametrize(
    "wrong", [{"units": 0}, {"reduction": "max"}], ids=["units", "reduction"]
)
def test_unfit_arguments_raise(wrong) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(
        ValueError, match=f"`{name}` of Decor.*{name}={value!r}"
    ):
        Decorrelation(**wrong)
