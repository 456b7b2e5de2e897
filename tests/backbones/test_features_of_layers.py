"""Outputs of a backbone's frozen lower layers, computed once."""

import keras
import numpy as np
import pytest

from keras_dml import backbones, methods
from keras_dml.callbacks.clustering import feature_model
from keras_dml.data import View
from keras_dml.data.feature_set import FEATURES
from keras_dml.evaluation import embed
from keras_dml.methods import METHODS
from tests.backbones.test_features import IMAGES, SIZES, trained

NAME = f"{FEATURES}.relu_0"


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("KERAS_DML_HOME", str(tmp_path / "home"))


def partly_frozen(**kwargs) -> keras.Model:
    keras.utils.set_random_seed(1)
    network = backbones.small_convnet((16, 16, 1), filters=(4, 8, 8))
    options = {"freeze_until": "relu_0", "freeze_batch_norm": True, **kwargs}
    return backbones.get(network, **options)


def made(method: str, **kwargs) -> keras.Model:
    backbone = partly_frozen()
    keras.utils.set_random_seed(2)
    one_view = {"diva": {"tasks": ["discriminative", "shared"]}}
    arguments = {
        "embedding_dim": 8,
        **SIZES.get(method, {}),
        **one_view.get(method, {}),
        **kwargs,
    }
    return METHODS[method].value(backbone, **arguments)


METHODS_THAT_CUT = ("abe", "hdc")
"""Their own backbone ends where they branch: it is frozen as a whole."""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["baseline", "attentive_grouping"])
def test_training_is_that_through_the_network(method, tmp_path) -> None:
    through, on_features = made(method), made(method)
    features = backbones.features(
        on_features, IMAGES, until="relu_0", batch_size=8
    )
    assert features.inputs([0])[NAME].shape == (1, 8, 8, 4)
    before = [v.numpy() for v in through.backbone.trainable_variables]
    losses = trained(through, IMAGES)
    np.testing.assert_allclose(
        trained(on_features, features), losses, rtol=1e-5
    )
    for model in (through, on_features):
        after = model.backbone.trainable_variables
        assert any(
            np.any(x != v.numpy()) for x, v in zip(before, after, strict=True)
        )
    np.testing.assert_allclose(
        embed(on_features, IMAGES), embed(through, IMAGES), atol=1e-4
    )
    np.testing.assert_array_equal(
        embed(on_features, features), embed(on_features, IMAGES)
    )
    # The whole model is what is saved.
    on_features.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert len(again.weights) == len(on_features.weights)
    np.testing.assert_array_equal(
        embed(again, IMAGES), embed(on_features, IMAGES)
    )
    np.testing.assert_array_equal(embed(again, features), embed(again, IMAGES))


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS_THAT_CUT)
def test_methods_that_cut_the_network_themselves(method) -> None:
    cut = {"hdc": {"branches": ["relu_0", "relu_1"]}}.get(method, {})
    through, on_features = made(method, **cut), made(method, **cut)
    features = backbones.features(on_features, IMAGES, until="relu_0")
    assert features.inputs([0])[FEATURES].shape == (1, 8, 8, 4)
    np.testing.assert_allclose(
        trained(on_features, features), trained(through, IMAGES), rtol=1e-4
    )


@pytest.mark.slow
def test_methods_share_what_is_on_disk(caplog) -> None:
    """Of one it is the whole backbone, of the other its lower part."""
    caplog.set_level("INFO")
    models = [made("baseline"), made("abe")]
    found = [
        backbones.features(x, IMAGES, until="relu_0", cache="disk")
        for x in models
    ]
    assert "Features are read from" in caplog.text
    layers, whole = (x.inputs(...) for x in found)
    np.testing.assert_array_equal(layers[NAME], whole[FEATURES])
    for model, features in zip(models, found, strict=True):
        np.testing.assert_allclose(
            embed(model, features), embed(model, IMAGES), atol=1e-6
        )


@pytest.mark.slow
def test_random_views_are_those_of_images() -> None:
    """Each stored view is what the frozen layers make of a flipped image."""
    model = made("baseline")
    features = backbones.features(
        model, IMAGES, until="relu_0", num_views=3, crop="center", flip=True
    )
    lower = backbones.splitting.lower_part(model.backbone, "relu_0")
    pixels = np.asarray(View.of(model).apply(IMAGES.images[..., None]))
    expected = [lower.predict(x, verbose=0)
                for x in (pixels, pixels[:, :, ::-1])]  # fmt: skip
    views = features.augmented.inputs(...)[NAME]
    views = views.reshape(3, len(IMAGES), 8, 8, 4)
    near = [np.isclose(views, x, atol=1e-5).all((2, 3, 4)) for x in expected]
    assert np.all(near[0] | near[1])
    assert near[0].any() and near[1].any()


def test_clusters_see_what_the_whole_backbone_gives() -> None:
    model = made("divide_and_conquer", num_learners=2)
    features = backbones.features(model, IMAGES, until="relu_0")
    of_features = feature_model(model, features)
    of_images = feature_model(model, IMAGES)
    np.testing.assert_allclose(
        of_features.predict(features.inputs(...), verbose=0),
        of_images.predict(IMAGES.images[..., None], verbose=0),
        atol=1e-6,
    )


def test_what_cannot_be_stored_is_an_error() -> None:
    model = made("baseline")
    with pytest.raises(ValueError, match="frozen backbone.*or `until`"):
        backbones.features(model, IMAGES)
    with pytest.raises(ValueError, match="frozen until 'relu_1'.*freeze_until"):
        backbones.features(model, IMAGES, until="relu_1")
    with pytest.raises(ValueError, match="no layer 'relu_9'"):
        backbones.features(model, IMAGES, until="relu_9")


def test_a_layer_inside_a_block_is_an_error() -> None:
    inputs = keras.Input((16, 16, 1))
    first = keras.layers.Conv2D(4, 3, padding="same", name="first")(inputs)
    inside = keras.layers.Conv2D(4, 3, padding="same", name="inside")(first)
    last = keras.layers.Add()([first, inside])
    backbone = keras.Model(inputs, keras.layers.Conv2D(4, 1)(last))
    backbone = backbones.get(backbone, freeze_until="inside")
    model = methods.baseline(backbone, embedding_dim=4)
    with pytest.raises(ValueError, match="all connections pass through"):
        backbones.features(model, IMAGES, until="inside")


def test_masks_are_an_error() -> None:
    inputs = keras.Input((4,), dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=True, name="words")(inputs)
    backbone = keras.Model(inputs, keras.layers.Dense(4)(x))
    backbone = backbones.get(backbone, freeze_until="words")
    model = methods.baseline(backbone, embedding_dim=4)
    with pytest.raises(ValueError, match="no mask"):
        backbones.features(model, [[1, 2, 0, 0]], until="words")
