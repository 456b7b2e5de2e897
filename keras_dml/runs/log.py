"""The log of a run: metrics of every epoch, as far as the disk takes them."""

import csv
import io
import logging
from pathlib import Path
from typing import Any

import keras

from keras_dml.utils.files import write_atomically

logger = logging.getLogger(__name__)


class RunLog(keras.callbacks.Callback):
    """Writes a row for each epoch, as `keras.callbacks.CSVLogger` does.

    The file is written whole each time, so that it has every row once, also
    where a training continues, or the disk was full for some epochs.

    Args:
        path: The file.

    Attributes:
        error: What stopped the rows that are missing; None if none are.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.error: str | None = None
        self._rows: list[dict[str, Any]] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        row = dict(sorted((logs or {}).items()))
        self._rows.append({"epoch": epoch, **row})
        self._write()

    def on_train_end(self, logs: Any = None) -> None:
        if self.error is not None:
            self._write()

    def get_state(self) -> dict[str, Any]:
        """What it has seen of a training; see `callbacks.Resume`."""
        return {"rows": self._rows}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` gave."""
        self._rows = state["rows"]
        if self._rows:
            self._write()

    def _write(self) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(
            text, list(self._rows[0]), restval="NA", extrasaction="ignore"
        )
        writer.writeheader()
        writer.writerows(self._rows)
        try:
            write_atomically(self.path, text.getvalue())
        except OSError as error:
            if self.error is None:
                logger.error(
                    "Could not write %s: %s. Training continues.",
                    self.path,
                    error,
                )
            self.error = error.strerror or str(error)
        else:
            self.error = None
