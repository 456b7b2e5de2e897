"""Embedding a set of images with a model."""

import keras
import numpy as np
import pytest

from keras_dml.data import ImageSet
from keras_dml.evaluation import embed, evaluate, evaluate_embeddings


def images(count: int = 23) -> ImageSet:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, 6, 6), dtype=np.uint8)
    return ImageSet(pixels, rng.integers(0, 4, count))


def model(**kwargs) -> keras.Model:
    inputs = keras.Input((6, 6, 1))
    flat = keras.layers.Flatten()(inputs / 255.0)
    return keras.Model(inputs, keras.layers.Dense(3, **kwargs)(flat))


@pytest.mark.parametrize("batch_size", [5, 256])
def test_rows_are_in_order_for_any_batch_size(batch_size):
    network, data = model(), images()
    embeddings = embed(network, data, batch_size)
    expected = network(data.pixels[..., None].astype("float32"))
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings, expected, rtol=1e-5, atol=1e-6)


def test_half_precision_gives_float32():
    embeddings = embed(model(dtype="mixed_float16"), images())
    assert embeddings.dtype == np.float32
    assert np.isfinite(embeddings).all()


def test_model_embeds_in_inference_mode():
    inputs = keras.Input((6, 6, 1))
    flat = keras.layers.Flatten()(inputs)
    network = keras.Model(inputs, keras.layers.Dropout(0.5)(flat))
    data = images()
    np.testing.assert_array_equal(
        embed(network, data), data.pixels.reshape(23, 36)
    )


def test_embedding_does_not_disturb_training():
    network, data = model(), images()
    network.compile("sgd", "mse", metrics=["mae"])
    x = data.pixels[..., None].astype("float32")
    network.train_on_batch(x, np.ones((23, 3)))
    before = {m.name: float(m.result()) for m in network.metrics[:1]}
    weights = [w.copy() for w in network.get_weights()]
    step = int(network.optimizer.iterations)
    embed(network, data)
    assert {m.name: float(m.result()) for m in network.metrics[:1]} == before
    assert int(network.optimizer.iterations) == step
    for a, b in zip(weights, network.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_new_weights_take_effect_without_a_new_trace():
    network, data = model(), images()
    embed(network, data, 8)
    function = network.predict_function
    network.set_weights([2 * w for w in network.get_weights()])
    second = embed(network, data, 8)
    assert network.predict_function is function
    expected = network(data.pixels[..., None].astype("float32"))
    np.testing.assert_allclose(second, expected, rtol=1e-5, atol=1e-6)


def test_evaluate_accepts_other_labels():
    network, data = model(), images()
    x = data.pixels[..., None].astype("float32")
    y = np.arange(23) % 3
    expected = dict(evaluate_embeddings(embed(network, data), y))
    assert dict(evaluate(network, x, y)) == expected
    assert dict(evaluate(network, data, y)) == expected
    levels = evaluate(network, data, {"a": y, "b": data.labels})
    assert levels["a/map@r"] == expected["map@r"]
    assert levels["b/map@r"] == evaluate(network, data)["map@r"]
    tags = np.eye(3, dtype=int)[y]
    assert evaluate(network, x, tags)["map@r"] == expected["map@r"]
    parts = evaluate(network, x, y, gallery=data, gallery_labels=y)
    whole = evaluate(network, data, gallery=data)
    assert parts.num_queries == whole.num_queries
    with pytest.raises(ValueError, match=r"\(22,\) for 23"):
        evaluate(network, x, y[1:])


def test_evaluate_embeds_the_gallery():
    network, data = model(), images(40)
    queries, gallery = data.select(range(15)), data.select(range(15, 40))
    embeddings = embed(network, data)
    results = evaluate(network, queries, gallery=gallery)
    expected = evaluate_embeddings(
        embeddings[:15],
        data.labels[:15],
        gallery=embeddings[15:],
        gallery_labels=data.labels[15:],
    )
    assert dict(results) == pytest.approx(dict(expected))


def refusals() -> list[tuple[str, object]]:
    network, data = model(), images()
    inputs, embeddings = keras.Input((6, 6, 1)), np.ones((23, 3))
    convolved = keras.Model(inputs, keras.layers.Conv2D(2, 3)(inputs))
    dict_model = keras.Model(inputs, {"a": keras.layers.Flatten()(inputs)})
    gallery = np.ones((3, 2))
    return [
        ("Received: 0 examples", lambda: embed(network, data.select([]))),
        (r"`model` of embed.*\(23, 4, 4, 2\)", lambda: embed(convolved, data)),
        ("`model` of embed.*dict", lambda: embed(dict_model, data)),
        (
            "`labels` of evaluate must be known",
            lambda: evaluate(network, np.ones((3, 36))),
        ),
        (
            "`gallery_labels` of evaluate",
            lambda: evaluate(network, data, gallery=gallery),
        ),
        ("use `evaluate_embedd", lambda: evaluate(embeddings, data.labels)),
        (r"Use `evaluate\(model", lambda: evaluate_embeddings(network, data)),
        ("Use `images.labels`", lambda: evaluate_embeddings(embeddings, data)),
    ]


def test_unfit_arguments_raise():
    for message, call in refusals():
        with pytest.raises(ValueError, match=message):
            call()


def test_options_are_checked_before_embedding(monkeypatch):
    network, data = model(), images()
    monkeypatch.setattr(network, "predict_on_batch", None)
    for options in (
        {"metrics": "recal@1"},
        {"distance": "l2"},
        {"seeds": ()},
        {"memory": "lots"},
        {"exclude": np.ones(3, int)},
    ):
        with pytest.raises(ValueError, match="of evaluate must"):
            evaluate(network, data, **options)


def test_evaluate_excludes_groups():
    network, data = model(), images(40)
    groups = np.arange(40) % 3
    queries, gallery = data.select(range(15)), data.select(range(15, 40))
    results = evaluate(
        network, queries, gallery=gallery, exclude=(groups[:15], groups[15:])
    )
    expected = evaluate_embeddings(
        embed(network, queries),
        queries.labels,
        gallery=embed(network, gallery),
        gallery_labels=gallery.labels,
        exclude=(groups[:15], groups[15:]),
    )
    assert dict(results) == dict(expected)
