"""The log of a run on a disk that is full."""

from pathlib import Path

from keras_dml.runs.log import RunLog


class Full:
    """A file on a disk that has room for some bytes."""

    def __init__(self, file, room: int) -> None:
        self.file, self.room, self.waiting = file, room, ""
        self.closed = False

    def write(self, text: str) -> None:
        self.waiting += text

    def flush(self) -> None:
        fits = self.waiting[: self.room]
        self.file.write(fits)
        self.waiting = self.waiting[len(fits) :]
        self.room -= len(fits)
        if self.waiting:
            raise OSError(28, "No space left on device")

    def close(self) -> None:
        self.closed = True
        self.flush()


def test_rows_wait_until_there_is_room(tmp_path: Path, caplog) -> None:
    path = tmp_path / "metrics.csv"
    log = RunLog(str(path))
    log.on_train_begin()
    log.csv_file = Full(log.csv_file, room=20)
    for epoch in range(3):
        log.on_epoch_end(epoch, {"loss": 1.5, "val_x": 1})
    assert log.error == "No space left on device"
    assert len(caplog.records) == 1
    log.csv_file.room = 1000
    log.on_epoch_end(3, {"loss": 1.5, "val_x": 1})
    assert log.error is None
    log.on_train_end()
    log.csv_file.file.close()
    assert path.read_text().split() == [
        "epoch,loss,val_x", *(f"{epoch},1.5,1" for epoch in range(4)),
    ]  # fmt: skip


def test_a_device_without_room(caplog) -> None:
    """What Keras's own log ends a training with."""
    log = RunLog("/dev/full")
    log.on_train_begin()
    log.on_epoch_end(0, {"loss": 1.5})
    log.on_epoch_end(1, {"loss": 1.5})
    log.on_train_end()
    assert log.error == "No space left on device"
    assert "Could not write /dev/full" in caplog.text
