"""The log of a run: metrics of every epoch, as far as the disk takes them."""

import logging
from collections.abc import Callable
from typing import Any

import keras

logger = logging.getLogger(__name__)


class RunLog(keras.callbacks.CSVLogger):
    """A `CSVLogger` that lets a training go on when the disk is full.

    Rows that cannot be written wait in memory, and are written with the next
    that can.

    Attributes:
        error: What stopped the rows that are missing; None if none are.
    """

    def __init__(self, filename: str) -> None:
        super().__init__(filename)
        self.error: str | None = None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._attempt(lambda: super(RunLog, self).on_epoch_end(epoch, logs))

    def on_train_end(self, logs: Any = None) -> None:
        self._attempt(super().on_train_end)

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            if self.error is None:
                logger.error(
                    "Could not write %s: %s. Training goes on.",
                    self.filename,
                    error,
                )
            self.error = error.strerror or str(error)
        else:
            self.error = None
