"""Whitening against NumPy, and its `fit`, which takes no steps."""

from typing import Any

import keras
import numpy as np
import pytest

from keras_dml import methods
from keras_dml.data import ClassBalanced, pipeline
from keras_dml.evaluation import evaluate_embeddings
from keras_dml.model.projections import SHRINKAGES
from tests.conftest import blobs
from tests.losses.oracle import unit

CHANNELS, DIM = 24, 6


def identity(channels: int = CHANNELS) -> keras.Model:
    inputs = keras.Input((channels,))
    return keras.Model(inputs, keras.layers.Identity()(inputs))


def model_of(
    backbone: keras.Model | None = None, dim: int = DIM
) -> keras.Model:
    return methods.whitening(
        backbone or identity(), embedding_dim=dim, pooling="none"
    )


def drawn(
    classes: int, each: int = 8, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Means of classes in 6 directions; images of a class differ in others."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    x = rng.normal(size=(len(labels), CHANNELS)) + 2
    x[:, 6:] *= 8
    x[:, :6] += 3 * rng.normal(size=(classes, 6))[labels]
    # Of other axes than those that features are stored in.
    turn = np.linalg.qr(np.random.default_rng(9).normal(size=(CHANNELS,) * 2))
    return (x @ turn[0]).astype("float32"), labels


def by_hand(
    x: np.ndarray, labels: np.ndarray, shrinkage: float, new: np.ndarray
) -> np.ndarray:
    """Unit rows of `new` under the whitening of (x, labels)."""
    x, new = x.astype("float64"), new.astype("float64")
    within = np.zeros((CHANNELS, CHANNELS))
    for label in np.unique(labels):
        class_rows = x[labels == label]
        for row in class_rows - class_rows.mean(axis=0):
            within += np.outer(row, row) / len(x)
    variance, directions = np.linalg.eigh(within)
    added = shrinkage * variance.mean()
    scaling = directions @ np.diag((variance + added) ** -0.5)
    center = x.mean(axis=0)
    components = np.linalg.svd((x - center) @ scaling)[2][:DIM].T
    return unit((new - center) @ scaling @ components)


def matching(model: keras.Model, x: np.ndarray, labels: np.ndarray) -> list:
    """Shrinkages whose whitening matches the model on other classes."""
    new = drawn(5, seed=3)[0]
    embeddings = model.predict(new, verbose=0)
    shrinkages = []
    for shrinkage in SHRINKAGES:
        expected = by_hand(x, labels, shrinkage, new)
        # Components have no sign, but cosines do.
        cosines = embeddings @ embeddings.T - expected @ expected.T
        if np.abs(cosines).max() < 1e-4:
            shrinkages.append(shrinkage)
    return shrinkages


def test_embeddings_match_whitening_by_hand_with_one_shrinkage() -> None:
    x, labels = drawn(18)
    model = model_of()
    model.fit(x, labels)
    assert len(matching(model, x, labels)) == 1


def test_shrinkage_is_one_with_too_few_classes() -> None:
    x, labels = drawn(5)
    model = model_of()
    model.fit(x, labels)
    assert matching(model, x, labels) == [1.0]


def measured(embeddings: np.ndarray, labels: np.ndarray) -> np.ndarray:
    results = evaluate_embeddings(
        unit(embeddings), labels, metrics=("recall@1", "map@r")
    )
    return np.array([results["recall@1"], results["map@r"]])


def test_whitening_finds_unseen_classes_hidden_by_noise() -> None:
    x, labels = drawn(40)
    unseen, unseen_labels = drawn(20, seed=1)
    model = model_of()
    model.fit(x, labels)
    center = x.mean(axis=0)
    components = np.linalg.svd(x - center, full_matrices=False)[2][:DIM].T
    whitened = measured(model.predict(unseen, verbose=0), unseen_labels)
    for features in (unseen, (unseen - center) @ components):
        assert (measured(features, unseen_labels) < [0.3, 0.15]).all()
    assert (whitened > [0.7, 0.5]).all()


class Calls(keras.callbacks.Callback):
    """The hooks that `fit` calls, in order."""

    HOOKS = [x for x in dir(keras.callbacks.Callback) if x.startswith("on_")]

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, ...]] = []
        for hook in self.HOOKS:
            setattr(self, hook, self._noting(hook))

    def _noting(self, hook: str) -> Any:
        return lambda *args: self.seen.append(
            (hook, *(x for x in args if isinstance(x, int)))
        )


def test_fit_shows_callbacks_one_epoch_without_steps() -> None:
    calls = Calls()
    history = model_of().fit(*drawn(6), epochs=4, callbacks=[calls])
    assert calls.seen == [
        ("on_train_begin",),
        ("on_epoch_begin", 0),
        ("on_epoch_end", 0),
        ("on_train_end",),
    ]
    assert history.epoch == [0]


def test_fit_changes_only_the_dense_layer() -> None:
    inputs = keras.Input((CHANNELS,))
    dense = keras.layers.Dense(CHANNELS)(inputs)
    model = model_of(keras.Model(inputs, dense))
    model.compile("adam")
    before = model.backbone.get_weights()
    kernel, bias = model.head.get_weights()
    model.fit(*drawn(6), epochs=4)
    for old, new in zip(before, model.backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)
    assert int(model.optimizer.iterations) == 0
    for old, new in zip((kernel, bias), model.head.get_weights(), strict=True):
        assert not np.isclose(new, old).any()


def test_fit_sees_images_of_a_pipeline_without_augmentation() -> None:
    images = blobs(6, 8)
    inputs = keras.Input((16, 16, 1))
    network = keras.Model(inputs, keras.layers.Flatten()(inputs))
    sampler = ClassBalanced(images.labels, 3, 4)
    batches = pipeline(images, sampler, size=16, pad=4, flip=True)
    of_batches, of_arrays = (
        methods.whitening(network, embedding_dim=8, pooling="none")
        for _ in range(2)
    )
    of_batches.fit(batches)
    of_arrays.fit(images.images[..., None].astype("float32"), images.labels)
    new = np.random.default_rng(0).uniform(0, 255, (5, 16, 16, 1))
    a, b = (x.predict(new, verbose=0) for x in (of_batches, of_arrays))
    np.testing.assert_allclose(a @ a.T, b @ b.T, atol=1e-4)


def test_loaded_model_embeds_like_the_saved_one(tmp_path) -> None:
    x, labels = drawn(6)
    model = model_of()
    model.fit(x, labels)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(x), model(x))


def test_generator_raises_in_fit() -> None:
    with pytest.raises(ValueError, match="can be read again.*generator"):
        model_of().fit(batch for batch in [drawn(6)])


def test_label_sets_raise_in_fit() -> None:
    x, labels = drawn(6)
    sets = labels[:, None] == np.arange(6)
    sets[:, 0] = True
    with pytest.raises(ValueError, match="several"):
        model_of().fit(x, sets)
