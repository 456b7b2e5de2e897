"""Checkpoint: best and last model, never half-written."""

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras

from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.files import atomic_file

logger = logging.getLogger(__name__)


class Checkpoint(keras.callbacks.Callback):
    """Keeps `best.keras` and `last.keras` in a folder.

    A model that cannot be saved, because the disk is full, is reported
    and training goes on; what was saved before survives.

    Args:
        folder: Where to write.
        monitor: The entry of the logs whose maximum is best; a callback
            that writes it, such as `RetrievalEvaluation`, comes before
            this one. `MetricModel.fit` refuses a name before training if
            it knows all that will be logged: if neither the model nor a
            callback before this one is of a class of yours.

    Attributes:
        best_epoch: The epoch of `best.keras`, counted from 1; None before
            there is one.
        best: The value that was monitored then; None before there is one.
    """

    def __init__(
        self, folder: str | os.PathLike[str], monitor: str = "val_map@r"
    ) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.monitor = monitor
        self.best_epoch: int | None = None
        self.best: float | None = None

    def check_logged(self, names: Iterable[str]) -> None:
        """Raises `ValueError` if what is monitored will not be logged.

        Args:
            names: All names in the logs, when this callback reads them.
        """
        if self.monitor not in names:
            raise ValueError(
                "`monitor` of Checkpoint must be in the logs. Received: "
                f"monitor={self.monitor!r}, and the logs have {sorted(names)}."
                f"{did_you_mean(self.monitor, names)} Put a "
                "RetrievalEvaluation that measures it before the Checkpoint."
            )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs = logs or {}
        self.check_logged(logs)
        value = logs[self.monitor]
        self._save("last")
        is_best = self.best is None or value > self.best
        if is_best and self._save("best"):
            self.best = float(value)
            self.best_epoch = epoch + 1

    def _save(self, name: str) -> bool:
        path = self.folder / f"{name}.keras"
        try:
            with atomic_file(path) as partial:
                self.model.save(partial)
        except OSError as error:
            logger.error(
                "Could not save %s: %s. The file saved before, if any, is "
                "still there; training goes on.",
                path,
                error,
            )
            return False
        return True
