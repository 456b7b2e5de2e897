"""Embedding with OpenVINO, which falls back to Keras."""

import logging
import re
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import methods
from keras_dml.cli.common import engine_option
from keras_dml.data import ArraySet, ImageSet
from keras_dml.embedding import embed, embed_shards
from keras_dml.embedding.engines import ENGINES, by_openvino
from keras_dml.evaluation import evaluate
from keras_dml.layers import Compositor
from keras_dml.search import Index

SIZE = 16
NAME = "keras_dml.embedding.engines"


def test_command_line_offers_all_engines() -> None:
    @engine_option
    def command() -> None: ...

    [option] = command.__click_params__  # type: ignore[attr-defined]
    assert tuple(option.type.choices) == ENGINES


def images(count: int = 21) -> ImageSet:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, SIZE, SIZE, 3), dtype=np.uint8)
    return ImageSet(pixels, np.arange(count) % 4)


def network() -> keras.Model:
    keras.utils.set_random_seed(0)
    image = keras.Input((SIZE, SIZE, 3))
    x = keras.layers.Rescaling(1 / 255)(image)
    x = keras.layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Activation("silu")(x)
    x = keras.layers.DepthwiseConv2D(3, strides=2, padding="same")(x)
    return keras.Model(image, keras.layers.ReLU(6)(x))


def plain() -> keras.Model:
    return methods.baseline(network(), embedding_dim=6)


def grouping() -> keras.Model:
    return methods.attentive_grouping(network(), embedding_dim=8, num_groups=2)


def compositor() -> keras.Model:
    """Two parts of an embedding, and their learned averages."""
    body = network()
    x = keras.layers.GlobalAveragePooling2D()(body.output)
    parts = keras.layers.Reshape((2, 4))(keras.layers.Dense(8)(x))
    x = keras.layers.Flatten()(Compositor(3)(parts)[0])
    return keras.Model(body.input, keras.layers.UnitNormalization()(x))


def followed_by(layer: keras.layers.Layer) -> keras.Model:
    body = network()
    x = layer(keras.layers.GlobalAveragePooling2D()(body.output))
    return keras.Model(body.input, x)


def in_python() -> keras.Model:
    """A model with Python code, which OpenVINO cannot run."""

    def doubled(x: tf.Tensor) -> tf.Tensor:
        y = tf.py_function(lambda x: 2 * x, [x], "float32")
        return tf.ensure_shape(y, x.shape)

    return followed_by(
        keras.layers.Lambda(doubled, output_shape=(8,), name="doubled")
    )


def in_half() -> keras.Model:
    """A half-precision model: OpenVINO would compute it in float32."""
    return followed_by(keras.layers.Dense(4, dtype="mixed_float16"))


def unit(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def check_same(embeddings: Any, model: keras.Model, shown: ImageSet) -> None:
    x = shown.pixels.astype("float32")
    expected = model.predict(x, verbose=0)
    np.testing.assert_allclose(
        unit(embeddings), unit(expected), atol=1e-5, rtol=0
    )


def said_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [x.getMessage() for x in caplog.records if x.name == NAME]


def counted(model: keras.Model, monkeypatch: Any) -> list[int]:
    """Records the sizes of batches that Keras embeds."""
    sizes, predict = [], model.predict_on_batch
    monkeypatch.setattr(
        model, "predict_on_batch", lambda x: sizes.append(len(x)) or predict(x)
    )
    return sizes


@pytest.mark.peers
@pytest.mark.parametrize("make", [plain, grouping, compositor])
def test_openvino_embeds_like_keras(make: Any, monkeypatch, caplog) -> None:
    pytest.importorskip("openvino")
    model, shown = make(), images()
    by_keras = counted(model, monkeypatch)
    # The last batch is smaller, and no batch overwrites another.
    embeddings = embed(model, shown, batch_size=9, engine="openvino")
    assert by_keras == [8] and not said_of(caplog)
    check_same(embeddings, model, shown)


@pytest.mark.peers
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (in_python, "'.*', .* cannot be converted: .*EagerPyFunc.*"),
        (in_half, "'.*', .* its embeddings differ by 0.0.* from those .*"),
    ],
)
def test_keras_embeds_where_openvino_cannot(make, said, caplog) -> None:
    pytest.importorskip("openvino")
    model, shown = make(), images()
    embeddings = embed(model, shown, batch_size=9, engine="openvino")
    np.testing.assert_array_equal(embeddings, embed(model, shown, batch_size=9))
    [line] = said_of(caplog)
    assert "\n" not in line
    assert re.fullmatch(f"Keras embeds with the model {said}", line)
    assert logging.getLogger().isEnabledFor(logging.WARNING)


@pytest.mark.peers
def test_openvino_takes_several_inputs(caplog) -> None:
    pytest.importorskip("openvino")
    left, right = keras.Input((3,), name="b"), keras.Input((2,), name="a")
    x = keras.layers.Concatenate()([2 * left, right])
    model = keras.Model({"b": left, "a": right}, keras.layers.Dense(4)(x))
    rng = np.random.default_rng(0)
    inputs = {"a": rng.normal(size=(5, 2)), "b": rng.normal(size=(5, 3))}
    embeddings = embed(model, ArraySet(inputs), batch_size=2, engine="openvino")
    joined = np.concatenate([2 * inputs["b"], inputs["a"]], 1)
    kernel = model.get_weights()[0]
    assert not said_of(caplog)
    np.testing.assert_allclose(
        unit(embeddings), unit(joined @ kernel), atol=1e-5
    )


@pytest.mark.peers
def test_shards_index_and_evaluate_use_openvino(tmp_path, monkeypatch) -> None:
    pytest.importorskip("openvino")
    model, shown = plain(), images()
    results = evaluate(model, shown)
    by_keras = counted(model, monkeypatch)
    shards = embed_shards(
        model, shown, tmp_path, rows_per_shard=9, engine="openvino"
    )
    index = Index.build(model, shown, engine="openvino")
    again = evaluate(model, shown, engine="openvino")
    # Two examples identify the model.
    assert by_keras == [2, 8, 2, 8, 8]
    monkeypatch.undo()
    check_same(shards.array(), model, shown)
    check_same(index.embeddings, model, shown)
    assert dict(again) == pytest.approx(dict(results))
    # Another engine continues.
    embed_shards(model, shown, tmp_path, rows_per_shard=9)


CALLS: dict[str, Callable[..., Any]] = {
    "embed": embed,
    "evaluate": evaluate,
    "embed_shards": lambda *x, **k: embed_shards(*x, "never", **k),
    "Index.build": Index.build,
}


@pytest.mark.parametrize("owner", CALLS)
def test_missing_engine_raises(owner: str, monkeypatch) -> None:
    call, model = CALLS[owner], plain()
    rule = rf"`engine` of {owner} must be one of \('keras', 'openvino'\)"
    with pytest.raises(ValueError, match=rule):
        call(model, images(), engine="onnx")
    with pytest.raises(FileNotFoundError, match=rf"of {owner} .*'gone.onnx'"):
        call(model, images(), engine="gone.onnx")
    monkeypatch.setitem(sys.modules, "openvino", None)
    extra = rf'of {owner} needs .*pip install "keras-dml\[openvino\]"'
    with pytest.raises(ImportError, match=extra):
        call(model, images(), engine="openvino")


def test_engine_may_be_any_function(tmp_path, monkeypatch) -> None:
    """The function gets NumPy batches, and Keras embeds nothing."""
    model, shown = plain(), images()
    expected = embed(model, shown)
    results = evaluate(model, shown)
    predict, types = model.predict_on_batch, set()

    def engine(x: np.ndarray) -> Any:
        types.add(type(x))
        return predict(x)

    by_keras = counted(model, monkeypatch)
    embeddings = embed(model, shown, batch_size=9, engine=engine)
    np.testing.assert_allclose(embeddings, expected, atol=1e-6)
    assert dict(evaluate(model, shown, engine=engine)) == pytest.approx(
        dict(results)
    )
    index = Index.build(model, shown, engine=engine)
    shards = embed_shards(model, shown, tmp_path, engine=engine)
    for rows in (index.embeddings, shards.array()):
        np.testing.assert_allclose(unit(rows), unit(expected), atol=1e-6)
    # Two examples identify the model.
    assert by_keras == [2, 2]
    assert types == {np.ndarray}
    with pytest.raises(ValueError, match="one embedding per example.*None"):
        embed(model, shown, engine=lambda x: None)


def test_openvino_falls_back_to_keras_on_other_backends(
    monkeypatch, caplog
) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    x = np.ones((1, 2), "float32")
    model = keras.Sequential([keras.Input((2,))], name="twice")
    assert by_openvino(model, x, x) is None
    assert said_of(caplog) == [
        "Keras embeds with the model 'twice', and OpenVINO does not: it cannot "
        "be converted: Keras runs on jax, not on TensorFlow."
    ]


def test_server_checks_its_engine_first() -> None:
    server = pytest.importorskip("keras_dml.serve.server")
    with pytest.raises(ValueError, match="`engine` of serve must be one of"):
        server.serve("nothing/there", engine="onnx")
