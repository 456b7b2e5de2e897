"""Tests of exports of models that take no images."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import methods
from keras_dml.data import ArraySet
from keras_dml.evaluation import embed
from keras_dml.export import export_model

RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 3)).astype("float32")


def texts_and_numbers() -> tuple[keras.Model, Any]:
    """One input has the name that "lookup_k" has for its own."""
    text = keras.Input((), dtype="string", name="text")
    number = keras.Input((1,), name="k")
    lengths = keras.layers.Lambda(
        lambda x: tf.cast(tf.strings.length(x), "float32")[:, None],
        output_shape=(1,),
    )(text)
    both = keras.layers.Concatenate()([lengths, number])
    model = keras.Model(
        {"text": text, "k": number}, keras.layers.Dense(4)(both)
    )
    return model, {"text": ["a" * (i + 1) for i in range(9)], "k": X[:, :1]}


def words() -> tuple[keras.Model, Any]:
    texts = ["a b", "b c", "c"] * 3
    vectorize = keras.layers.TextVectorization(output_sequence_length=3)
    vectorize.adapt(texts)
    layers = [
        keras.Input((), dtype="string"),
        vectorize,
        keras.layers.Embedding(9, 4, mask_zero=True),
        keras.layers.GlobalAveragePooling1D(),
    ]
    return methods.baseline(keras.Sequential(layers), embedding_dim=4), texts


@pytest.mark.slow
@pytest.mark.parametrize("make", [texts_and_numbers, words])
def test_texts_and_numbers_are_served(make: Any, tmp_path: Path) -> None:
    model, x = make()
    examples = ArraySet(x, [f"class {i % 3}" for i in range(9)])
    path = export_model(model, tmp_path / "model", gallery=examples, k=2)
    served = tf.saved_model.load(str(path)).signatures
    inputs = x if isinstance(x, dict) else {"inputs": x}
    inputs = {k: tf.constant(v) for k, v in inputs.items()}
    outputs = served["serving_default"](**inputs)
    np.testing.assert_allclose(
        outputs["embedding"], embed(model, examples), atol=1e-5
    )
    outputs = served["lookup"](**inputs)
    assert set(outputs) == {"ids", "labels", "scores", "above_threshold"}
    np.testing.assert_allclose(outputs["scores"][:, 0], 1.0, atol=1e-5)
    assert outputs["labels"].shape == (9, 2)
    assert ("lookup_k" in served) == ("k" not in inputs)
    if "lookup_k" in served:
        asked = served["lookup_k"](**inputs, k=tf.constant([2] * 8 + [0]))
        assert set(asked) == {*outputs, "status"}
        is_bad = asked["status"].numpy() != b"ok"
        assert is_bad.tolist() == [False] * 8 + [True]
        for name, x in outputs.items():
            np.testing.assert_array_equal(asked[name][:8], x[:8])
    nothing = {k: v[:0] for k, v in inputs.items()}
    assert served["serving_default"](**nothing)["embedding"].shape == (0, 4)


def test_unfit_models_and_arguments_raise(tmp_path: Path) -> None:
    model, x = texts_and_numbers()
    for options, message in (
        ({"format": "onnx"}, "a single numeric input"),
        ({"input_dtype": "uint8"}, "for models that take images"),
        ({"gallery": np.ones((3, 4))}, "must be a set of examples, or have"),
        ({"gallery": ArraySet(x)}, "must be known"),
    ):
        with pytest.raises(ValueError, match=message):
            export_model(model, tmp_path / "model", **options)
    flat = keras.Sequential([keras.Input((3, 2)), keras.layers.Dense(4)])
    with pytest.raises(ValueError, match="one embedding per example"):
        export_model(flat, tmp_path / "model")
    assert not [*tmp_path.iterdir()]
