"""The momentum network: its start, its updates and its inputs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import MetricModel, methods
from tests.methods.test_contract import batch


def model_of(backbone, ema_momentum=0.75, **kwargs) -> MetricModel:
    model = methods.baseline(
        backbone, embedding_dim=4, loss="contrastive",
        ema_momentum=ema_momentum, **kwargs,
    )  # fmt: skip
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=True)
    return model


def views(seed: int = 0):
    x, targets = batch()
    noise = np.random.default_rng(seed).normal(0, 20, x.shape)
    return {"image": x, "image2": (x + noise).astype("float32")}, targets


def weights_of(parts) -> list[np.ndarray]:
    return [w.numpy() for part in parts for w in part.weights]


def networks(model):
    encoder = model.momentum_encoder
    return (model.backbone, model.head), (encoder.backbone, encoder.head)


def test_momentum_encoder_starts_as_a_separate_copy(tiny_backbone) -> None:
    model = model_of(tiny_backbone)
    online, copy = networks(model)
    for a, b in zip(weights_of(online), weights_of(copy), strict=True):
        np.testing.assert_array_equal(a, b)
    model.head.dense.kernel.assign(model.head.dense.kernel * 2)
    assert not np.allclose(
        model.head.dense.kernel, model.momentum_encoder.head.dense.kernel
    )


@pytest.mark.parametrize(
    ("copy_statistics", "mode"),
    [
        (False, "eager"),
        pytest.param(True, "xla", marks=pytest.mark.slow),
    ],
)
def test_parameters_are_a_running_average(
    copy_statistics, mode, tiny_backbone
) -> None:
    """φ* ← μ φ* + (1 − μ) φ; statistics stay, or are copied."""
    model = model_of(tiny_backbone, copy_statistics=copy_statistics)
    if mode != "eager":
        model.compile(keras.optimizers.SGD(0.5), jit_compile=mode == "xla")
    online, copy = networks(model)
    names = [w.path for part in online for w in part.weights]
    expected = weights_of(copy)
    for step in range(3):
        model.train_on_batch(*views(step))
        for i, (name, new) in enumerate(
            zip(names, weights_of(online), strict=True)
        ):
            if "moving" not in name:
                expected[i] = 0.75 * expected[i] + 0.25 * new
            elif copy_statistics:
                expected[i] = new
    moved = [
        not np.allclose(a, b, atol=1e-4)
        for a, b in zip(weights_of(online), expected, strict=True)
    ]
    assert any(moved)
    for name, a, b in zip(names, weights_of(copy), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=name)


def test_zero_momentum_equals_the_model_in_inference(tiny_backbone) -> None:
    model = model_of(tiny_backbone, ema_momentum=0.0, copy_statistics=True)
    model.train_on_batch(*views())
    x, _ = batch()
    predicted = model(x)
    outputs = model.outputs_of({"image": x, "image2": x}, training=True)
    np.testing.assert_allclose(
        outputs["momentum_embedding"], predicted, atol=1e-5
    )
    # Normalized by the batch, the online network says something else.
    difference = outputs["momentum_embedding"] - outputs["embedding"]
    assert np.abs(difference).max() > 1e-3


def test_momentum_encoder_sees_the_second_view(
    tiny_backbone,
) -> None:
    model = model_of(tiny_backbone)
    x, _ = views()
    outputs = model.outputs_of(x)
    first = model.outputs_of(x["image"])["embedding"]
    second = model.outputs_of(x["image2"])["embedding"]
    np.testing.assert_allclose(outputs["embedding"], first, atol=1e-6)
    np.testing.assert_allclose(outputs["momentum_embedding"], second, atol=1e-6)
    assert np.abs(first - second).max() > 1e-3


def test_momentum_encoder_gets_no_gradient(
    tiny_backbone,
) -> None:
    model = model_of(tiny_backbone)
    copies = {id(w) for part in networks(model)[1] for w in part.weights}
    assert copies.isdisjoint(id(v) for v in model.trainable_variables)
    assert copies <= {id(v) for v in model.non_trainable_variables}
    x, _ = views()
    image2 = tf.constant(x["image2"])
    with tf.GradientTape() as tape:
        tape.watch(image2)
        outputs = model.outputs_of({**x, "image2": image2})
    assert tape.gradient(outputs["momentum_embedding"], image2) is None


def test_second_view_is_ignored_without_a_momentum_encoder(
    tiny_backbone,
) -> None:
    model = model_of(tiny_backbone, ema_momentum=None)
    x, targets = views()
    assert set(model.outputs_of(x)) == {"embedding"}
    model.fit(x, targets, batch_size=6, epochs=1, verbose=0)


@pytest.mark.parametrize("momentum", [-0.1, 1.5])
def test_momentum_out_of_range_raises(momentum, tiny_backbone) -> None:
    with pytest.raises(ValueError, match=f"Received: ema_momentum={momentum}"):
        model_of(tiny_backbone, ema_momentum=momentum)


# On smaller images.


def test_half_scale_averages_four_pixels(tiny_backbone) -> None:
    """The reference averages in NumPy before a network of that size."""
    model = model_of(tiny_backbone, momentum_scale=0.5)
    encoder = model.momentum_encoder
    assert encoder.backbone.input_shape == (None, 8, 8, 1)
    x, _ = views()
    means = x["image2"].reshape(12, 8, 2, 8, 2, 1).mean(axis=(2, 4))
    expected = encoder.head(encoder.backbone(means))["embedding"]
    embeddings = model.outputs_of(x)["momentum_embedding"]
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)
    assert not np.allclose(embeddings, model(x["image2"]), atol=1e-3)


def test_scaled_momentum_encoder_trains_and_reloads(
    tiny_backbone, tmp_path
) -> None:
    model = model_of(tiny_backbone, momentum_scale=0.75)
    before = weights_of(networks(model)[1])
    for step in range(2):
        model.train_on_batch(*views(step))
    after = weights_of(networks(model)[1])
    moved = zip(before, after, strict=True)
    assert any(np.any(a != b) for a, b in moved)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.momentum_encoder.backbone.input_shape == (None, 12, 12, 1)
    x, _ = views()
    np.testing.assert_array_equal(
        again.outputs_of(x)["momentum_embedding"],
        model.outputs_of(x)["momentum_embedding"],
    )


def test_unfit_scale_raises(tiny_backbone) -> None:
    flat = keras.layers.Flatten()(tiny_backbone.output)
    dense = keras.layers.Dense(5)(flat)
    with pytest.raises(ValueError, match="momentum_scale=0.5 and the backbone"):
        model_of(keras.Model(tiny_backbone.input, dense), momentum_scale=0.5)
    with pytest.raises(ValueError, match="requires a momentum network"):
        model_of(tiny_backbone, ema_momentum=None, momentum_scale=0.5)
    with pytest.raises(ValueError, match="momentum_scale=0.4"):
        model_of(tiny_backbone, momentum_scale=0.4)
