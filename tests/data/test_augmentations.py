"""Tests of augmentation by Keras layers and functions: seeded, repeatable."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.data import ArraySet, ImageSet, pipeline
from keras_dml.data.augmentations import layer_names, make_change
from tests.data.small_images import LABELS, noise, sampler_of

IMAGES = ImageSet(noise(12, 10, 3), LABELS)
SIZE = 8


def epochs(augment: Any, *numbers: int, **arguments: Any) -> np.ndarray:
    """Pixels of some epochs, (E, S, B, H, W, C); views are put together."""
    sampler = sampler_of(IMAGES)
    batches = pipeline(IMAGES, sampler, SIZE, augment=augment, **arguments)
    pixels = []
    for sampler.epoch in numbers:
        x = [tf.nest.flatten(x) for x, _ in batches.as_numpy_iterator()]
        pixels.append(np.concatenate(x, axis=1))
    return np.stack(pixels)


def inverted_half_the_time(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    # A condition on a tensor takes AutoGraph.
    if tf.random.stateless_uniform((), seed) < 0.5:
        images = 255.0 - images
    return images


@pytest.mark.slow
def test_augmented_epochs_repeat_and_resume() -> None:
    steps = [keras.layers.RandomBrightness(0.5), inverted_half_the_time]
    first, again = epochs(steps, 0, 1), epochs(steps, 1, 0)
    np.testing.assert_array_equal(first, again[::-1])
    assert not np.array_equal(first[0], first[1])


def inverted(images: tf.Tensor, white: float = 255.0) -> tf.Tensor:
    return white - images


def test_augmentation_follows_crop_and_flip() -> None:
    plain = epochs(None, 0, flip=True)
    name = f"{__name__}:inverted"
    images = epochs({name: {"white": 254.0}}, 0, flip=True)
    np.testing.assert_array_equal(images, 254.0 - plain)


def test_names_and_layers_give_the_same_augmentation() -> None:
    config = {"gaussian_noise": {"stddev": 0.5}, "random_grayscale": None}
    layers = [keras.layers.GaussianNoise(0.5), keras.layers.RandomGrayscale()]
    np.testing.assert_array_equal(change(config, 3), change(layers, 3))


@pytest.mark.slow
@pytest.mark.parametrize("by", ["batch", "image"])
def test_conditions_are_decided_for_each_batch_or_image(by: str) -> None:
    plain = epochs(None, 0, num_views=2)
    images = epochs(inverted_half_the_time, 0, num_views=2, augment_by=by)
    is_inverted = (images != plain).any((-1, -2, -3))  # (1, S, views · B)
    expected = np.where(is_inverted[..., None, None, None], 255 - plain, plain)
    np.testing.assert_array_equal(images, expected)
    # (S, views, B)
    is_inverted = is_inverted.reshape(is_inverted.shape[1], 2, -1)
    assert 0.1 < is_inverted.mean() < 0.9
    assert (is_inverted[:, 0] != is_inverted[:, 1]).any()
    is_mixed = is_inverted.any(axis=-1) & ~is_inverted.all(axis=-1)
    assert is_mixed.any() == (by == "image")


@pytest.mark.slow
def test_functions_that_draw_are_seeded() -> None:
    layer = keras.layers.RandomBrightness(0.5)

    def function(images: tf.Tensor) -> tf.Tensor:
        return layer(images) + keras.random.uniform((), 0, 20)

    batches, again = (epochs(function, 0) for _ in range(2))
    np.testing.assert_array_equal(batches, again)
    # Without the pipeline, the layer goes on as it did.
    images = np.full((2, 4, 4, 3), 99.0, "float32")
    assert not np.array_equal(layer(images), layer(images))


def change(augment: Any, *seeds: int, channels: int = 3) -> np.ndarray:
    """Augments images with each seed in turn."""
    rng = np.random.default_rng(0)
    coarse = rng.uniform(0, 255, (4, 3, 3, channels)).astype("float32")
    images = tf.image.resize(coarse, (16, 16))
    image = tf.TensorSpec((16, 16, channels), "float32")
    function = make_change(augment, image, "batch")
    seed_tensors = [tf.constant([7, seed], "int64") for seed in seeds]
    return np.concatenate([function(images, seed) for seed in seed_tensors])


ARGUMENTS: dict[str, dict[str, Any]] = {
    "dropout": {"rate": 0.5},
    "gaussian_dropout": {"rate": 0.5},
    "gaussian_noise": {"stddev": 0.5},
    "random_brightness": {"factor": 0.5},
    "random_color_degeneration": {"factor": 0.5},
    "random_color_jitter": {"brightness_factor": 0.5},
    "random_contrast": {"factor": 0.5},
    "random_hue": {"factor": 0.5},
    "random_posterization": {"factor": 4},
    "random_rotation": {"factor": 0.2},
    "random_saturation": {"factor": 0.5},
    "random_sharpness": {"factor": 0.5},
    "random_shear": {"x_factor": 0.3},
    "random_translation": {"height_factor": 0.3, "width_factor": 0.3},
    "random_zoom": {"height_factor": 0.3},
}


FIXED = ("auto_contrast", "equalization", "solarization")
"""What draws nothing, or nothing by default."""


@pytest.mark.slow
@pytest.mark.parametrize("name", layer_names())
def test_each_layer_depends_on_the_seed_alone(name: str) -> None:
    augment = {name: ARGUMENTS.get(name)}
    first, other, again = np.split(change(augment, 0, 1, 0), 3)
    np.testing.assert_array_equal(first, again)
    assert name in FIXED or not np.array_equal(first, other)


def test_gray_images_stay_gray() -> None:
    seen = change({"random_contrast": {"factor": 0.5}}, 0, channels=1)
    assert seen.shape[-1] == 1


def unseeded(images: tf.Tensor) -> tf.Tensor:
    return tf.image.random_brightness(images, 0.3)


def unseeded_in_a_branch(images: tf.Tensor) -> tf.Tensor:
    if tf.reduce_mean(images) > 0:
        images += tf.random.uniform(())
    return images


class Counter(keras.Layer):
    def build(self, shape: Any) -> None:
        self.count = self.add_weight(name="count", trainable=False)

    def call(self, images: Any) -> Any:
        self.count.assign_add(1.0)
        return images


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (unseeded, "Received: RandomUniform, which draw from other"),
        (unseeded_in_a_branch, "Received: RandomUniform"),
        (lambda x: x + np.random.rand(), "Received: `random` or `numpy.rand"),
        pytest.param(
            keras.layers.AugMix(),
            "Received: `random` or `numpy.random`",
            marks=pytest.mark.slow,
        ),
        (lambda x: x[:, :5], r"Received: float32 \(None, 5, 16, 3\)"),
        (lambda x: None, r"must return the shape and type.* None from"),
        (lambda x: x @ "a", r"must accept float32 \(None, 16, 16, 3\).*fails"),
        (3, "must be a Keras layer, a function, several"),
        ("rand_augment", "must be a Keras layer"),
        (Counter(), "changes '.*count'"),
        ({"random_colour_jitter": {}}, "Did you mean 'random_color_jitter'"),
        ({"random_hue": {"facto": 1}}, "no argument 'facto' .*mean 'factor'"),
        ({"random_hue": {"factor": 0.1, "seed": 1}}, "no argument 'seed'"),
        ({"random_hue": {"factor": 9}}, "arguments that 'random_hue' accepts"),
        ({"no.module:function": {}}, "No module named 'no'"),
    ],
)
def test_unfit_augmentations_raise(augment: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change(augment, 0)


def array_epochs(x: Any, augment: Any, *numbers: int, **options: Any) -> Any:
    """Inputs of the first batch of some epochs."""
    examples = ArraySet(x, LABELS)
    sampler = sampler_of(examples)
    batches = pipeline(examples, sampler, augment=augment, **options)
    first_batches = []
    for sampler.epoch in numbers:
        first_batches.append(next(batches.as_numpy_iterator()))
    return first_batches


VECTORS = np.random.default_rng(0).normal(size=(len(LABELS), 6))


@pytest.mark.parametrize(
    "by", ["batch", pytest.param("image", marks=pytest.mark.slow)]
)
def test_vectors_are_augmented_with_a_seed(by: str) -> None:
    layer = keras.layers.GaussianNoise(0.1)
    first, second = array_epochs(VECTORS, layer, 0, 1, augment_by=by)
    (again,) = array_epochs(VECTORS, {"gaussian_noise": {"stddev": 0.1}}, 1)
    if by == "batch":
        np.testing.assert_array_equal(second[0], again[0])
    for x, y in (first, second):
        noise = x - VECTORS[y["index"]]
        assert x.dtype == np.float64
        assert len(np.unique(noise)) == noise.size
        assert 0.05 < noise.std() < 0.2
    assert not np.allclose(first[0], second[0])


def masked(x: dict[str, tf.Tensor], seed: tf.Tensor) -> dict[str, tf.Tensor]:
    tokens = x["tokens"]
    is_hidden = tf.random.stateless_uniform(tf.shape(tokens), seed) < 0.3
    return {**x, "tokens": tf.where(is_hidden, 0, tokens)}


def test_dicts_of_arrays_have_two_views() -> None:
    count = len(LABELS)
    tokens = np.arange(1, 1 + 5 * count, dtype=np.int32).reshape(count, 5)
    x = {"tokens": tokens, "text": [str(i) for i in range(count)]}
    ((views, y),) = array_epochs(x, masked, 0, num_views=2)
    first, second = views["image"], views["image2"]
    for view in (first, second):
        expected = tokens[y["index"]]
        is_hidden = view["tokens"] != expected
        np.testing.assert_array_equal(view["tokens"][is_hidden], 0)
        assert 0.1 < is_hidden.mean() < 0.5
        assert view["text"].tolist() == [b"%d" % i for i in y["index"]]
    assert (first["tokens"] != second["tokens"]).any()


def doubled(tokens: tf.Tensor) -> tf.Tensor:
    return tf.cast(tokens, "float32") * 2


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (VECTORS, {"num_views": 2}, "`num_views` of pipeline is for images"),
        (VECTORS, {"augment": lambda x: x[:, 1:]}, r"float64 \(None, 5\)"),
        (
            np.ones((len(LABELS), 3), "int32"),
            {"augment": doubled},
            r"takes: int32 \(None, 3\)\. Received: float32",
        ),
        (
            {"a": VECTORS},
            {"augment": keras.layers.GaussianNoise(0.1)},
            r"(?s)must accept \{'a': float64 \(None, 6\)\}\. .*layer\(x\[",
        ),
        (VECTORS, {"augment": doubled, "flip": True}, "`flip` of pipeline is"),
    ],
)
def test_unfit_options_for_arrays_raise(
    x: Any, options: Any, message: str
) -> None:
    examples = ArraySet(x, LABELS)
    with pytest.raises(ValueError, match=message):
        pipeline(examples, sampler_of(examples), **options)
