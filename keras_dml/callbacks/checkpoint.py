"""Checkpoint: the best and the last model, saved atomically."""

import json
import logging
import math
import os
import uuid
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras

from keras_dml.callbacks.guard import Guard
from keras_dml.callbacks.logs import RetrievalEvaluation
from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import alone, this_worker
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.files import atomic_file

logger = logging.getLogger(__name__)

_STATE = (
    "unsaved",
    "_epoch",
    "_reached",
    "_missed",
    "_training",
    "_is_logged",
)


class Checkpoint(keras.callbacks.Callback):
    """Keeps the best and the last model, `best.keras` and `last.keras`.

    If a model cannot be saved, for instance because the disk is full, this is
    reported, the earlier file is kept, and training continues. Saving
    `last.keras` is tried again when training ends. With several workers, only
    the first one saves.

    Args:
        folder: The folder to write to.
        monitor: The entry of the logs to maximize. With None, only `last.keras`
            is kept, for training without held-out data. The callback that
            writes the entry, such as `RetrievalEvaluation`, must come before
            this one; epochs that it does not measure cannot be the best.
            `MetricModel.fit` rejects an unknown name before training,
            provided that neither the model nor an earlier callback is of a
            custom class, whose logs are not known in advance.
        start: A `RetrievalEvaluation` with `start=True` that comes before this
            callback. The model before the first epoch then is `best.keras`
            until an epoch beats it by more than one standard error.
        guard: A `Guard` that comes before this callback. What it keeps at the
            end of training is `best.keras` if it is better than all epochs.

    Attributes:
        best_epoch: The epoch of `best.keras`, counted from 1, or 0 for the
            start; None until it is saved.
        share: How much of the way from the start to the last epoch
            `best.keras` is; None if it is an epoch's model.
        best: The monitored value in that epoch; None until then.
        last: The content of `last.keras`, such as "epoch 3"; None until it is
            saved.
        unsaved: For each of the two files that is outdated because it could not
            be saved, the epoch and the reason, by file name.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        monitor: str | None = "val_map@r",
        start: RetrievalEvaluation | None = None,
        guard: Guard | None = None,
    ) -> None:
        super().__init__()
        self.start = start
        self.guard = guard
        self.folder = Path(folder)
        self.monitor = monitor
        self.best_epoch: int | None = None
        self.best: float | None = None
        self.share: float | None = None
        self._epoch = 0
        self.last: str | None = None
        self.unsaved: dict[str, str] = {}
        self._reached: str | None = None
        self._missed = -math.inf
        self._training = ""
        self._is_logged = monitor is None

    def on_train_begin(self, logs: Any = None) -> None:
        self._training = uuid.uuid4().hex

    def check_logged(self, names: Iterable[str]) -> None:
        """Raises ValueError if the monitored entry will not be logged.

        Args:
            names: All names in the logs when this callback reads them.
        """
        if self.monitor is not None and self.monitor not in names:
            raise ValueError(
                "`monitor` of Checkpoint must be in the logs. Received: "
                f"monitor={self.monitor!r}, but the logs have {sorted(names)}."
                f"{did_you_mean(self.monitor, names)} Put a "
                "RetrievalEvaluation that measures it before the Checkpoint."
            )
        self._is_logged = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        values = (self.start and self.start.start_values) or {}
        is_first = self.best is None and self._reached is None
        if is_first and self.monitor is not None and self.monitor in values:
            self._save_best(0, values[self.monitor])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs = logs or {}
        if not self._is_logged:
            self.check_logged(logs)
        self._epoch = epoch + 1
        if not this_worker(strategy_of(self.model)).is_chief:
            return
        reached = f"epoch {epoch + 1}"
        self.save_last(reached)
        value = logs.get(self.monitor)
        if value is None or (self.best is not None and value <= self.best):
            return
        if self.best_epoch == 0 and self.start is not None:
            if not self.start.beats_start(str(self.monitor)):
                return
        self._save_best(epoch + 1, float(value))

    def _save_best(
        self, epoch: int, value: float, share: float | None = None
    ) -> None:
        if not this_worker(strategy_of(self.model)).is_chief:
            return
        error = self._save("best", epoch=epoch, value=value, share=share)
        if error is None:
            self.best, self.best_epoch, self.share = value, epoch, share
        # If a better model could not be saved, it is still missing.
        if value >= self._missed:
            self._missed = value
            self._note("best", f"epoch {epoch}", error)

    def on_train_end(self, logs: Any = None) -> None:
        if self._reached is not None and self.last != self._reached:
            self.save_last(self._reached)
        share = self.guard and self.guard.share
        if self.guard is None or not share or share == 1:
            return  # The start and the last epoch were candidates before.
        value = self.guard.values[share]
        if self.best is None or value > self.best:
            self._save_best(self._epoch, value, share)

    def get_state(self) -> dict[str, Any]:
        """The state of this callback, for `Resume`."""
        return {name: getattr(self, name) for name in _STATE}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the result of `get_state`.

        The epochs of the two models are read from their files, because they may
        have been saved after the state, in epochs that are trained again.
        """
        for name in _STATE:
            setattr(self, name, state[name])
        best = self._read_metadata("best")
        self.best, self.best_epoch = best.get("value"), best.get("epoch")
        self.share = best.get("share")
        self.last = self._read_metadata("last").get("reached")
        if self.best is not None and self.best >= self._missed:
            self._missed = self.best
            self.unsaved.pop("best.keras", None)

    def save_last(self, reached: str) -> None:
        """Saves the current model as `last.keras`."""
        self._reached = reached
        error = self._save("last", reached=reached)
        if error is None:
            self.last = reached
        self._note("last", reached, error)

    def _note(self, name: str, reached: str, error: OSError | None) -> None:
        if error is None:
            self.unsaved.pop(f"{name}.keras", None)
        else:
            reason = error.strerror or error
            self.unsaved[f"{name}.keras"] = f"{reached}: {reason}"

    def _read_metadata(self, name: str) -> dict[str, Any]:
        """The metadata in a file; empty if it is not of this training."""
        try:
            with zipfile.ZipFile(self.folder / f"{name}.keras") as file:
                metadata: dict[str, Any] = json.loads(file.comment)
        except (OSError, ValueError, zipfile.BadZipFile):
            return {}
        return metadata if metadata.get("training") == self._training else {}

    def _save(self, name: str, **what: Any) -> OSError | None:
        """Saves the model, and returns the error if this fails.

        The file contains its own metadata: if they were written separately, the
        process might be killed in between.

        Args:
            name: The name of the file.
            **what: The metadata.
        """
        path = self.folder / f"{name}.keras"
        try:
            # Keras creates an optimizer to save one.
            with alone(), atomic_file(path) as partial:
                self.model.save(partial)
                metadata = json.dumps({"training": self._training, **what})
                with zipfile.ZipFile(partial, "a") as file:
                    file.comment = metadata.encode()
        except OSError as error:
            logger.error(
                "Could not save %s: %s. An earlier file, if any, is kept; "
                "training continues.",
                path,
                error,
            )
            return error
        return None
