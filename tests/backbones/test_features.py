"""Features of a frozen backbone, or of its lower layers, computed once."""

import keras
import numpy as np
import pytest

from keras_dml import backbones, callbacks, methods
from keras_dml.callbacks.clustering import feature_model
from keras_dml.data import (
    ArraySet,
    ClassBalanced,
    ClusterSampler,
    FeatureSet,
    View,
    concatenate,
    pipeline,
)
from keras_dml.data.feature_set import FEATURES, MASK
from keras_dml.evaluation import embed, evaluate
from keras_dml.methods import METHODS
from tests.conftest import blobs

IMAGES = blobs()
NAME = f"{FEATURES}.relu_0"
SIZES = {
    "dreml": {"num_classes": 8},
    "abe": {"branch": "relu_0", "attention_end": "relu_1", "num_learners": 2},
}


def frozen(filters=(4, 8)) -> keras.Model:
    """A frozen backbone with dropout, which it ignores, and statistics."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((16, 16, 1))
    x = backbones.small_convnet((16, 16, 1), filters=filters)(inputs)
    x = keras.layers.Dropout(0.5)(x)
    return backbones.get(keras.Model(inputs, x), freeze=True)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("KERAS_DML_HOME", str(tmp_path / "home"))


def trained(model, examples, steps=2, **kwargs) -> list[float]:
    sampler = ClassBalanced(
        examples.labels, 4, 2, seed=0, steps_per_epoch=steps
    )
    model.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
    shown = {} if isinstance(examples, FeatureSet) else {
        "size": 16, "crop": "center"
    }  # fmt: skip
    batches = pipeline(examples, sampler, **shown, **kwargs)
    return model.fit(batches, epochs=1, verbose=0).history["loss"]


def made(method: str, backbone: keras.Model, **kwargs) -> keras.Model:
    keras.utils.set_random_seed(2)
    dim = 9 if method == "hdc" else 8  # Its models share it.
    sizes = SIZES.get(method, {})
    return METHODS[method].value(backbone, embedding_dim=dim, **sizes, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    # One whose step is the common one, with attention over maps, and of several
    # networks.
    ["baseline", "attentive_grouping", "dreml"],
)
def test_training_on_features_equals_training_on_images(
    method, tmp_path
) -> None:
    through, on_features = (
        made(method, frozen(), loss="contrastive") for _ in range(2)
    )
    features = backbones.features(on_features, IMAGES, batch_size=24)
    losses = trained(through, IMAGES)
    assert trained(on_features, features) == losses
    results = evaluate(on_features, IMAGES)
    assert results == evaluate(through, IMAGES)
    assert results == evaluate(on_features, features)
    # The file holds the whole model.
    on_features.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(embed(again, IMAGES), embed(through, IMAGES))
    np.testing.assert_array_equal(embed(again, features), embed(again, IMAGES))


def test_features_are_stored_as_the_head_needs_them() -> None:
    pooled = backbones.features(made("baseline", frozen()), IMAGES)
    assert pooled.inputs([0, 1])[FEATURES].shape == (2, 8)
    maps = backbones.features(frozen(), IMAGES)
    assert maps.inputs([0, 1])[FEATURES].shape == (2, 8, 8, 8)
    gem = methods.baseline(frozen(), embedding_dim=4, pooling="gem")
    assert backbones.features(gem, IMAGES).inputs([0])[FEATURES].ndim == 4
    assert len(pooled) == len(IMAGES)
    np.testing.assert_array_equal(pooled.labels, IMAGES.labels)
    assert pooled.num_views == 0


def test_masks_of_tokens_are_kept() -> None:
    inputs = keras.Input((4,), dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=True)(inputs)
    backbone = backbones.get(keras.Model(inputs, x), freeze=True)
    ids = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [4, 5, 6, 7], [8, 0, 0, 0]])
    examples = ArraySet(ids, [0, 0, 1, 1])
    model = methods.attentive_grouping(backbone, embedding_dim=8, num_groups=2)
    features = backbones.features(model, examples)
    np.testing.assert_array_equal(features.inputs(...)[MASK], ids > 0)
    np.testing.assert_allclose(
        embed(model, features), embed(model, examples), atol=1e-6
    )


@pytest.mark.slow
def test_features_on_disk_are_reused(tmp_path, caplog) -> None:
    caplog.set_level("INFO")
    model = made("baseline", frozen())
    first = backbones.features(model, IMAGES, cache="disk")
    again = backbones.features(model, IMAGES, cache="disk")
    assert "Features are read from" in caplog.text
    np.testing.assert_array_equal(
        again.inputs(...)[FEATURES], first.inputs(...)[FEATURES]
    )
    (folder,) = (tmp_path / "home/features").iterdir()

    def folders() -> int:
        return len(list(folder.parent.iterdir()))

    # Other examples, weights or views give other features.
    backbones.features(model, IMAGES.select([3, 1, 2]), cache="disk")
    assert folders() == 2
    model.backbone.weights[0].assign_add(model.backbone.weights[0] * 0 + 0.1)
    moved = backbones.features(model, IMAGES, cache="disk")
    assert folders() == 3
    assert np.any(moved.inputs(...)[FEATURES] != first.inputs(...)[FEATURES])
    backbones.features(model, IMAGES, num_views=2, pad=2, cache="disk")
    assert folders() == 4
    backbones.features(model, IMAGES, num_views=2, pad=1, cache="disk")
    assert folders() == 5
    backbones.features(model, IMAGES.select([0, 1]), cache="memory")
    assert folders() == 5
    assert not list(folder.parent.glob(".*"))


@pytest.mark.slow
def test_random_views_are_drawn() -> None:
    model = made("baseline", frozen())
    features = backbones.features(model, IMAGES, num_views=3, pad=3, flip=True)
    assert features.num_views == 3
    every = features.augmented.inputs(...)[FEATURES].reshape(3, len(IMAGES), 8)
    assert np.all(np.any(every[0] != every[1], axis=1).mean() > 0.9)
    sampler = ClassBalanced(IMAGES.labels, 4, 2, seed=0, steps_per_epoch=40)
    drawn = np.zeros(3, int)
    for x, y in pipeline(features, sampler, seed=5):
        rows = y["index"].numpy()
        same = np.all(every[:, rows] == x[FEATURES].numpy(), axis=2)
        assert np.all(same.sum(axis=0) >= 1)
        drawn += same.sum(axis=1)
    assert drawn.min() > 60
    # Two runs are equal; evaluation sees the test view.
    first = [
        x[FEATURES].numpy() for x, _ in pipeline(features, sampler, seed=5)
    ]
    sampler.epoch -= 1
    again = [
        x[FEATURES].numpy() for x, _ in pipeline(features, sampler, seed=5)
    ]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(embed(model, features), embed(model, IMAGES))


def test_selecting_and_joining_keeps_views_together() -> None:
    model = made("baseline", frozen())
    features = backbones.features(model, IMAGES, num_views=2, pad=3)
    every = features.augmented.inputs(...)[FEATURES].reshape(2, len(IMAGES), 8)
    subset = features.select([5, 2])
    np.testing.assert_array_equal(
        subset.augmented.inputs(...)[FEATURES].reshape(2, 2, 8),
        every[:, [5, 2]],
    )
    joined = concatenate([subset, features.select([7])])
    np.testing.assert_array_equal(
        joined.augmented.inputs(...)[FEATURES].reshape(2, 3, 8),
        every[:, [5, 2, 7]],
    )
    np.testing.assert_array_equal(joined.labels, IMAGES.labels[[5, 2, 7]])


@pytest.mark.slow
def test_clusters_are_found_in_features() -> None:
    model = made("divide_and_conquer", frozen())
    features = backbones.features(model, IMAGES)
    sampler = ClusterSampler(features.labels, 2, 2, 2, seed=0)
    recluster = callbacks.Recluster(features, sampler, cluster_space="features")
    model.compile("adam")
    model.fit(
        pipeline(features, sampler),
        epochs=2,
        callbacks=[recluster, callbacks.RetrievalEvaluation(features)],
        verbose=0,
    )
    assert recluster.divisions


# Features of lower layers.


def partly_frozen() -> keras.Model:
    keras.utils.set_random_seed(1)
    network = backbones.small_convnet((16, 16, 1), filters=(4, 8, 8))
    return backbones.get(network, freeze_until="relu_0", freeze_batch_norm=True)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["baseline", "attentive_grouping"])
def test_training_above_a_stored_layer_equals_full_training(
    method, tmp_path
) -> None:
    through, on_features = (made(method, partly_frozen()) for _ in range(2))
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
    # The file holds the whole model.
    on_features.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert len(again.weights) == len(on_features.weights)
    np.testing.assert_array_equal(
        embed(again, IMAGES), embed(on_features, IMAGES)
    )
    np.testing.assert_array_equal(embed(again, features), embed(again, IMAGES))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["abe", "hdc"])
def test_methods_that_cut_the_network_train_on_features(method) -> None:
    """Their backbone ends at the branch, so all of it is frozen."""
    cut = {"hdc": {"branches": ["relu_0", "relu_1"]}}.get(method, {})
    through, on_features = (
        made(method, partly_frozen(), **cut) for _ in range(2)
    )
    features = backbones.features(on_features, IMAGES, until="relu_0")
    assert features.inputs([0])[FEATURES].shape == (1, 8, 8, 4)
    np.testing.assert_allclose(
        trained(on_features, features), trained(through, IMAGES), rtol=1e-4
    )


@pytest.mark.slow
def test_methods_share_features_on_disk(caplog) -> None:
    """One stores the whole backbone's output, the other a lower layer's."""
    caplog.set_level("INFO")
    models = [made("baseline", partly_frozen()), made("abe", partly_frozen())]
    feature_sets = [
        backbones.features(x, IMAGES, until="relu_0", cache="disk")
        for x in models
    ]
    assert "Features are read from" in caplog.text
    layers, whole = (x.inputs(...) for x in feature_sets)
    np.testing.assert_array_equal(layers[NAME], whole[FEATURES])
    for model, features in zip(models, feature_sets, strict=True):
        np.testing.assert_allclose(
            embed(model, features), embed(model, IMAGES), atol=1e-6
        )


@pytest.mark.slow
def test_stored_views_are_features_of_flipped_images() -> None:
    """Each stored view is the frozen layers' output for a flipped image."""
    model = made("baseline", partly_frozen())
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


def test_feature_model_gives_the_whole_backbones_output() -> None:
    model = made("divide_and_conquer", partly_frozen(), num_learners=2)
    features = backbones.features(model, IMAGES, until="relu_0")
    of_features = feature_model(model, features)
    of_images = feature_model(model, IMAGES)
    np.testing.assert_allclose(
        of_features.predict(features.inputs(...), verbose=0),
        of_images.predict(IMAGES.images[..., None], verbose=0),
        atol=1e-6,
    )


# What cannot be stored.


def trainable() -> keras.Model:
    return made("baseline", backbones.small_convnet((16, 16, 1), filters=(4,)))


def with_a_layer_inside_a_block() -> keras.Model:
    inputs = keras.Input((16, 16, 1))
    first = keras.layers.Conv2D(4, 3, padding="same", name="first")(inputs)
    inside = keras.layers.Conv2D(4, 3, padding="same", name="inside")(first)
    last = keras.layers.Add()([first, inside])
    backbone = keras.Model(inputs, keras.layers.Conv2D(4, 1)(last))
    return made("baseline", backbones.get(backbone, freeze_until="inside"))


def with_masks() -> keras.Model:
    inputs = keras.Input((4,), dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=True, name="words")(inputs)
    backbone = keras.Model(inputs, keras.layers.Dense(4)(x))
    return made("baseline", backbones.get(backbone, freeze_until="words"))


def in_part() -> keras.Model:
    return made("baseline", partly_frozen())


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (trainable, {}, "must have a frozen backbone"),
        (frozen, {"pad": 2}, "`pad` of .* only be given for rand"),
        (frozen, {"examples": IMAGES.select([])}, "must not be empty"),
        (in_part, {}, "frozen backbone.*or `until`"),
        (in_part, {"until": "relu_1"}, "frozen until 'relu_1'.*freeze_until"),
        (in_part, {"until": "relu_9"}, "no layer 'relu_9'"),
        (with_a_layer_inside_a_block, {"until": "inside"},
         "all connections pass through"),
        (with_masks, {"examples": [[1, 2, 0, 0]], "until": "words"}, "no mask"),
    ],
)  # fmt: skip
def test_unfit_arguments_raise(make, arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        backbones.features(make(), **{"examples": IMAGES, **arguments})
