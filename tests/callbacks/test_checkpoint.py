import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.callbacks import (
    Checkpoint,
    LearningRateMonitor,
    RetrievalEvaluation,
)
from keras_dml.data import ArraySet
from keras_dml.model import MetricModel
from tests.model.test_keras_contract import LABELS as ENCODED
from tests.model.test_keras_contract import small, vectors


def model() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def checkpoint_of(folder, network) -> Checkpoint:
    callback = Checkpoint(folder, monitor="val_map@r")
    callback.set_model(network)
    return callback


def weights_in(path) -> np.ndarray:
    return keras.models.load_model(path).get_weights()[0]


def test_checkpoint_keeps_best_and_last_model(tmp_path) -> None:
    network = model()
    callback = checkpoint_of(tmp_path, network)
    for epoch, value in enumerate([0.2, 0.5, 0.4]):
        network.set_weights([np.full((2, 1), epoch), np.zeros(1)])
        callback.on_epoch_end(epoch, {"val_map@r": value})
    assert callback.best_epoch == 2
    assert callback.best == 0.5
    assert np.all(weights_in(tmp_path / "best.keras") == 1)
    assert np.all(weights_in(tmp_path / "last.keras") == 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "best.keras", "last.keras",
    ]  # fmt: skip


class DiskFull:
    """Writes half a file and then fails, as a full disk does."""

    distribute_strategy = tf.distribute.get_strategy()

    def save(self, path) -> None:
        path.write_bytes(b"half a file")
        raise OSError(28, "No space left on device")


def test_training_goes_on_when_the_disk_is_full(tmp_path, caplog) -> None:
    callback = checkpoint_of(tmp_path, model())
    callback.on_epoch_end(0, {"val_map@r": 0.1})
    before = (tmp_path / "best.keras").read_bytes()
    callback.set_model(DiskFull())
    with caplog.at_level(logging.ERROR):
        callback.on_epoch_end(1, {"val_map@r": 0.9})
    assert "No space left" in caplog.text
    assert (tmp_path / "best.keras").read_bytes() == before
    assert callback.best_epoch == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "best.keras", "last.keras",
    ]  # fmt: skip


def test_unsaved_files_are_listed_until_the_disk_has_room(tmp_path) -> None:
    network = model()
    callback = checkpoint_of(tmp_path, network)

    def reach(epoch: int, value: float, is_full: bool) -> dict[str, str]:
        callback.set_model(DiskFull() if is_full else network)
        callback.on_epoch_end(epoch - 1, {"val_map@r": value})
        return callback.unsaved

    missing = {"best.keras": "epoch 2: No space left on device"}
    lasting = {"last.keras": "epoch 2: No space left on device"}
    assert reach(1, 0.1, False) == {}
    assert reach(2, 0.7, True) == missing | lasting
    assert reach(3, 0.2, False) == missing
    assert (callback.best_epoch, callback.last) == (3, "epoch 3")
    assert reach(4, 0.7, False) == {}
    assert callback.best_epoch == 4


def test_last_model_is_saved_again_at_the_end_of_training(tmp_path) -> None:
    network = model()
    callback = checkpoint_of(tmp_path, DiskFull())
    callback.on_train_end()
    assert callback.last is None
    callback.on_epoch_end(0, {"val_map@r": 0.1})
    callback.set_model(network)
    callback.on_train_end()
    assert callback.last == "epoch 1"
    assert list(callback.unsaved) == ["best.keras"]
    assert (tmp_path / "last.keras").exists()


def test_unlogged_monitor_raises(tmp_path) -> None:
    callback = checkpoint_of(tmp_path, model())
    with pytest.raises(ValueError, match=r"val_map@r.*\['loss'\]"):
        callback.on_epoch_end(0, {"loss": 1.0})


def test_epochs_without_a_measurement_are_skipped(tmp_path) -> None:
    callback = checkpoint_of(tmp_path, model())
    for epoch, value in enumerate([0.2, None, 0.5, None]):
        logs = {"loss": 1.0} if value is None else {"val_map@r": value}
        callback.on_epoch_end(epoch, logs)
    assert (callback.best_epoch, callback.last) == (3, "epoch 4")


LABELS = [f"class {i // 2}" for i in range(8)]
EXAMPLES = ArraySet(vectors()[:8], LABELS)
EVALUATION = RetrievalEvaluation(EXAMPLES, metrics="recall@1", prefixes=[2])


class Own(keras.callbacks.Callback):
    """A callback that may log anything."""

    def on_epoch_end(self, epoch, logs=None) -> None:
        logs["val_map@r"] = 0.5


class OwnEvaluation(RetrievalEvaluation):
    """A subclass of our callback, which may log anything, too."""


class OwnModel(MetricModel):
    """A model with a custom training step."""


class Stopped(Exception):
    """Raised when training begins."""


class Stop(keras.callbacks.Callback):
    def on_train_begin(self, logs=None) -> None:
        raise Stopped


def fit(network, *callbacks, **options) -> None:
    callbacks = [*callbacks, Stop()]
    network.fit(vectors(), ENCODED, callbacks=callbacks, verbose=0, **options)


@pytest.mark.parametrize(
    ("monitor", "before", "message"),
    [
        ("val_map@r", [], r"\['loss'\].*Put a RetrievalEvaluation"),
        ("val_recal@1", [EVALUATION], "Did you mean 'val_recall@1'"),
        ("val_map@r", [EVALUATION], "before the Checkpoint"),
        ("val_loss", [], "the logs have"),
        ("learning_rate", [keras.callbacks.EarlyStopping()], "the logs have"),
    ],
)
def test_unlogged_monitor_raises_before_training(
    monitor, before, message, tmp_path
) -> None:
    callbacks = [*before, Checkpoint(tmp_path, monitor), EVALUATION]
    with pytest.raises(ValueError, match=message):
        fit(small(), *callbacks)
    # A list of Keras is accepted, too.
    callback_list = keras.callbacks.CallbackList(callbacks)
    with pytest.raises(ValueError, match=message):
        small().fit(vectors(), ENCODED, callbacks=callback_list)


RATE = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1)


@pytest.mark.parametrize(
    ("monitor", "before", "options"),
    [
        ("val_recall@1", [EVALUATION], {}),
        ("val_2/recall@1", [RATE, EVALUATION], {}),
        ("loss", [], {}),
        ("val_loss", [EVALUATION], {"validation_split": 0.5}),
        ("learning_rate", [RATE], {}),
        ("learning_rate", [LearningRateMonitor()], {}),
        # Monitors that cannot be checked are accepted.
        ("val_map@r", [Own(), EVALUATION], {}),
        ("val_map@r", [OwnEvaluation(EXAMPLES, metrics="recall@1")], {}),
        ("val_map@r", [keras.callbacks.LambdaCallback(print)], {}),
    ],
)
def test_monitor_that_may_be_logged_is_accepted(
    monitor, before, options, tmp_path
) -> None:
    with pytest.raises(Stopped):
        fit(small(), *before, Checkpoint(tmp_path, monitor), **options)


def test_any_monitor_is_accepted_with_a_dataset(tmp_path) -> None:
    data = tf.data.Dataset.from_tensor_slices((vectors(), ENCODED)).batch(4)
    evaluation = RetrievalEvaluation(data, metrics="recall@1")
    with pytest.raises(Stopped):
        fit(small(), evaluation, Checkpoint(tmp_path, "val_map@r"))


def test_any_monitor_is_accepted_with_custom_models_and_metrics(
    tmp_path,
) -> None:
    plain = small()
    custom_model = OwnModel(plain.backbone, plain.head, plain.objective)
    custom_model.compile()
    measured = small(metrics=[keras.metrics.MeanSquaredError()])
    for network in (custom_model, measured):
        with pytest.raises(Stopped):
            fit(network, Checkpoint(tmp_path, "val_map@r"))


class Scripted(RetrievalEvaluation):
    """Measures, one after another, a MAP@R of each class that it is told."""

    def __init__(self, *by_class: list[float]) -> None:
        super().__init__(
            ArraySet(np.zeros((4, 2)), [0, 0, 1, 1]),
            metrics="map@r",
            start=True,
        )
        self.script = list(by_class)

    def _values_and_classes(self):
        values = self.script.pop(0)
        return {"map@r": float(np.mean(values))}, {"map@r": values}


def test_start_stays_the_best_until_an_epoch_gains_a_standard_error(
    tmp_path,
) -> None:
    network = model()
    # Gains of 0.025 ± 0.048, 0.0875 ± 0.0125 and, over this, 0.0025.
    start = Scripted(
        [0.5, 0.5, 0.5, 0.5],
        [0.6, 0.4, 0.6, 0.5],
        [0.6, 0.6, 0.55, 0.6],
        [0.6, 0.6, 0.56, 0.6],
    )
    checkpoint = Checkpoint(tmp_path, "val_map@r", start)
    callbacks = keras.callbacks.CallbackList(
        [start, checkpoint], model=network, epochs=3, steps=1, verbose=0
    )
    callbacks.on_train_begin()
    best = []
    for epoch in range(3):
        callbacks.on_epoch_begin(epoch)
        best.append(checkpoint.best_epoch)
        network.set_weights([np.full((2, 1), epoch + 1), np.zeros(1)])
        callbacks.on_epoch_end(epoch, {})
    assert [*best, checkpoint.best_epoch] == [0, 0, 2, 3]
    assert checkpoint.best == pytest.approx(0.59)
    assert np.all(weights_in(tmp_path / "best.keras") == 3)


def test_resumed_training_keeps_its_start(tmp_path) -> None:
    network = model()
    start = Scripted([0.5, 0.5], [0.4, 0.4], [0.9, 0.9])
    checkpoint = Checkpoint(tmp_path, "val_map@r", start)
    for callback in (start, checkpoint):
        callback.set_params({"epochs": 2})
        callback.set_model(network)
        callback.on_train_begin()
        callback.on_epoch_begin(0)
        callback.on_epoch_end(0, {"val_map@r": 0.4})
    states = [start.get_state(), checkpoint.get_state()]
    again = Scripted([0.51, 0.6])
    other = Checkpoint(tmp_path, "val_map@r", again)
    for callback, state in zip((again, other), states, strict=True):
        callback.set_params({"epochs": 2})
        callback.set_model(network)
        callback.on_train_begin()
        callback.set_state(state)
        callback.on_epoch_begin(1)
    assert again.start_values == {"val_map@r": 0.5}
    assert (other.best_epoch, other.best) == (0, 0.5)
    again.on_epoch_end(1, {})
    assert again.beats_start("val_map@r")
    assert not again.script
