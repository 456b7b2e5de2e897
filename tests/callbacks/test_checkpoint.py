import logging

import keras
import numpy as np
import pytest

from keras_dml.callbacks import Checkpoint


def model() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def checkpoint_of(folder, network) -> Checkpoint:
    callback = Checkpoint(folder, monitor="val_map@r")
    callback.set_model(network)
    return callback


def weights_in(path) -> np.ndarray:
    return keras.models.load_model(path).get_weights()[0]


def test_keeps_best_and_last(tmp_path) -> None:
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


def test_a_monitor_that_nobody_writes_is_an_error(tmp_path) -> None:
    callback = checkpoint_of(tmp_path, model())
    with pytest.raises(ValueError, match=r"val_map@r.*\['loss'\]"):
        callback.on_epoch_end(0, {"loss": 1.0})
