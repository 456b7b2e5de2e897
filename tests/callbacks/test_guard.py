"""Guard: weights between a pretrained start and the end of training."""

import keras
import numpy as np
import pytest

from keras_dml import methods
from keras_dml.callbacks import Checkpoint, Guard, Resume, RetrievalEvaluation
from keras_dml.data import ArraySet
from tests.callbacks.test_checkpoint import Scripted
from tests.model.test_head_start import CHANNELS, LABELS, features, found


def with_nuisance(seed: int) -> np.ndarray:
    """Features with uninformative directions, so that training helps."""
    rng = np.random.default_rng(seed + 5)
    directions = np.random.default_rng(9).normal(size=(6, CHANNELS))
    nuisance = rng.normal(size=(len(LABELS), 6)) @ directions
    return (features(seed) + 0.15 * nuisance).astype("float32")


TRAIN, UNSEEN = with_nuisance(0), with_nuisance(1)
HELD_OUT = ArraySet(UNSEEN, LABELS)
IMAGES = ArraySet(TRAIN, LABELS)
MONITOR = "val_map@r"


def model_of(rate: float, norm: bool = False) -> keras.Model:
    """A trainable network that starts as the identity."""
    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((CHANNELS,))
    x = keras.layers.Dense(CHANNELS, kernel_initializer="identity")(x)
    if norm:
        x = keras.layers.BatchNormalization(name="norm")(x)
    network = keras.Model(inputs, x)
    for layer in network.layers[1:]:
        for weight in layer.trainable_weights[1:]:
            weight.assign(weight + 0.01)  # It counts as trained.
    model = methods.baseline(
        network, embedding_dim=32, pooling="none", head_init="pca",
        loss={"name": "normalized_softmax", "num_classes": 24},
    )  # fmt: skip
    model.compile(keras.optimizers.SGD(rate))
    model.start_head(TRAIN, LABELS)
    return model


def trained(
    model: keras.Model, *callbacks: keras.callbacks.Callback
) -> keras.callbacks.History:
    return model.fit(
        TRAIN, LABELS, batch_size=48, epochs=2, verbose=0,
        callbacks=list(callbacks),
    )  # fmt: skip


def guard_of() -> tuple[RetrievalEvaluation, Guard]:
    validation = RetrievalEvaluation(HELD_OUT, start=True)
    return validation, Guard(validation, IMAGES)


def weights_of(model: keras.Model) -> list[np.ndarray]:
    kept = model.backbone.trainable_variables + model.head.trainable_variables
    return [keras.ops.convert_to_numpy(v) for v in kept]


def mixed(model: keras.Model, start: list, end: list, share: float) -> None:
    """Sets the weights to a mixture of start and end."""
    kept = model.backbone.trainable_variables + model.head.trainable_variables
    for variable, a, b in zip(kept, start, end, strict=True):
        variable.assign(a + share * (b - a))


def test_guard_keeps_the_start_where_training_harms() -> None:
    model = model_of(rate=30.0)
    start = weights_of(model)
    validation, guard = guard_of()
    history = trained(model, validation, guard)
    assert history.history[MONITOR][-1] < 0.8 * guard.values[0.0]
    for before, after in zip(start, weights_of(model), strict=True):
        np.testing.assert_array_equal(before, after)
    assert guard.share == 0.0
    assert guard.values == {0.0: validation.start_values[MONITOR]}


@pytest.mark.parametrize("rate", [0.03, 0.1])
def test_guard_keeps_the_best_share_between_start_and_end(rate: float) -> None:
    plain = model_of(rate)
    start, proxies = weights_of(plain), plain.objective.loss.proxies
    trained(plain, RetrievalEvaluation(HELD_OUT))
    end, last = weights_of(plain), keras.ops.convert_to_numpy(proxies)
    values = {}
    for share in np.arange(9) / 8:
        mixed(plain, start, end, share)
        values[share] = found(plain, UNSEEN)

    model = model_of(rate)
    validation, guard = guard_of()
    trained(model, validation, guard)
    measured = {x: values[x] for x in guard.values}
    assert guard.values == pytest.approx(measured, abs=1e-5)
    assert guard.share == max(measured, key=measured.get)
    mixed(plain, start, end, guard.share)
    for mine, theirs in zip(weights_of(plain), weights_of(model), strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-5, atol=1e-6)
    # The loss stays at the end.
    np.testing.assert_allclose(model.objective.loss.proxies, last, rtol=1e-5)


def test_guard_recomputes_batch_normalization_statistics() -> None:
    model = model_of(rate=0.3, norm=True)
    validation, guard = guard_of()
    trained(model, validation, guard)
    norm = model.backbone.get_layer("norm")
    assert norm.momentum == 0.99
    dense = model.backbone.layers[1]
    order = np.random.default_rng(0).permutation(len(TRAIN))
    x = np.asarray(dense(TRAIN[order]))
    # Batches of 64 are of equal size, so their means are the mean of all.
    np.testing.assert_allclose(norm.moving_mean, x.mean(axis=0), atol=1e-5)
    within = x.reshape(3, 64, -1).var(axis=1).mean(axis=0)
    np.testing.assert_allclose(norm.moving_variance, within, rtol=1e-4)


def test_best_file_holds_the_model_that_the_guard_keeps(tmp_path) -> None:
    model = model_of(rate=0.1)
    start = weights_of(model)
    # The start, two epochs, ¼, ½, ¾, and the eighths beside ½.
    values = (0.5, 0.7, 0.6, 0.6, 0.8, 0.7, 0.9, 0.85)
    validation = Scripted(*([x, x + 0.01] for x in values))
    guard = Guard(validation, IMAGES)
    checkpoint = Checkpoint(tmp_path, MONITOR, validation, guard)
    trained(model, validation, guard, checkpoint)
    assert (checkpoint.best_epoch, checkpoint.share) == (2, 0.375)
    assert checkpoint.best == pytest.approx(0.905)
    end = keras.models.load_model(tmp_path / "last.keras")
    best = keras.models.load_model(tmp_path / "best.keras")
    rows = zip(start, weights_of(end), weights_of(best), strict=True)
    for first, last, kept in rows:
        np.testing.assert_allclose(
            kept, 0.625 * first + 0.375 * last, rtol=1e-5, atol=1e-6
        )


def test_best_file_stays_where_an_epoch_beats_the_guard(tmp_path) -> None:
    model = model_of(rate=0.1)
    values = (0.5, 0.9, 0.6, 0.6, 0.8, 0.7, 0.7, 0.7)
    validation = Scripted(*([x, x + 0.01] for x in values))
    guard = Guard(validation, IMAGES)
    checkpoint = Checkpoint(tmp_path, MONITOR, validation, guard)
    trained(model, validation, guard, checkpoint)
    assert guard.share == 0.5
    assert (checkpoint.best_epoch, checkpoint.share) == (1, None)


def test_resumed_guard_goes_back_to_the_first_start(tmp_path) -> None:
    model = model_of(rate=0.1)
    _, whole = guards = guard_of()
    trained(model, *guards)
    stopped, again = model_of(rate=0.1), model_of(rate=0.1)
    stop = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: interrupt(epoch)
    )
    with pytest.raises(KeyboardInterrupt):
        trained(stopped, *guard_of(), Resume(tmp_path), stop)
    _, guard = guards = guard_of()
    trained(again, *guards, Resume(tmp_path))
    assert guard.values == whole.values
    for mine, theirs in zip(weights_of(model), weights_of(again), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def interrupt(epoch: int) -> None:
    if epoch == 1:
        raise KeyboardInterrupt


def test_guard_requires_the_start_to_be_measured() -> None:
    with pytest.raises(ValueError, match="must measure the start"):
        Guard(RetrievalEvaluation(HELD_OUT), IMAGES)
