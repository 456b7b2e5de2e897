"""The log of a run, also on a disk that is full, and of one that goes on."""

import csv
import json
from pathlib import Path

import keras

from keras_dml.runs import folder
from keras_dml.runs.folder import RunLog


def test_a_log_is_that_of_keras(tmp_path: Path) -> None:
    ours = RunLog(tmp_path / "ours.csv")
    theirs = keras.callbacks.CSVLogger(str(tmp_path / "theirs.csv"))
    theirs.on_train_begin()
    for epoch, loss in enumerate((0.1, 1e-9, float("nan"))):
        for writer in (ours, theirs):
            logged = {"val_map@r": 1 / 3, "loss": loss}
            writer.on_epoch_end(epoch, logged if epoch < 2 else {"loss": loss})
    theirs.on_train_end()
    expected = (tmp_path / "theirs.csv").read_bytes()
    assert (tmp_path / "ours.csv").read_bytes() == expected


def test_a_log_on_a_full_disk_has_every_row(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    log = RunLog(tmp_path / "metrics.csv")
    with monkeypatch.context() as full:
        full.setattr(folder, "write_atomically", fail)
        for epoch in range(2):
            log.on_epoch_end(epoch, {"loss": 0.5})
    assert len(caplog.records) == 1
    assert "No space left on device. Training continues" in caplog.text
    assert log.error == "No space left on device"
    log.on_train_end()
    assert log.error is None
    # A process that goes on writes the rows of the one before it.
    again = RunLog(tmp_path / "metrics.csv")
    again.set_state(json.loads(json.dumps(log.get_state())))
    again.on_epoch_end(2, {"loss": 0.25})
    with (tmp_path / "metrics.csv").open() as file:
        rows = [(row["epoch"], row["loss"]) for row in csv.DictReader(file)]
    assert rows == [("0", "0.5"), ("1", "0.5"), ("2", "0.25")]
