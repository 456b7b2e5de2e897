"""Checkpoint: best and last model, never half-written."""

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

from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import this_worker
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.files import atomic_file

logger = logging.getLogger(__name__)

_STATE = ("unsaved", "_reached", "_missed", "_training")


class Checkpoint(keras.callbacks.Callback):
    """Keeps `best.keras` and `last.keras` in a folder.

    A model that cannot be saved, because the disk is full, is reported
    and training continues; what was saved before survives. If that was the
    last one, it is tried once more when training ends. Of several workers
    the first one saves, and the others do nothing.

    Args:
        folder: Where to write.
        monitor: The entry of the logs whose maximum is best; None keeps
            `last.keras` alone, where nothing is held out. A callback
            that writes it, such as `RetrievalEvaluation`, comes before
            this one. `MetricModel.fit` refuses a name before training if
            it knows all that will be logged: if neither the model nor a
            callback before this one is of a class of yours.

    Attributes:
        best_epoch: The epoch of `best.keras`, counted from 1; None before
            there is one.
        best: The value that was monitored then; None before there is one.
        last: What `last.keras` is, such as "epoch 3"; None before there is
            one.
        unsaved: Which of the two is not what it should be, as it could not
            be saved: the epoch and the reason, by file name.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        monitor: str | None = "val_map@r",
    ) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.monitor = monitor
        self.best_epoch: int | None = None
        self.best: float | None = None
        self.last: str | None = None
        self.unsaved: dict[str, str] = {}
        self._reached: str | None = None
        self._missed = -math.inf
        self._training = ""

    def on_train_begin(self, logs: Any = None) -> None:
        self._training = uuid.uuid4().hex

    def check_logged(self, names: Iterable[str]) -> None:
        """Raises `ValueError` if what is monitored will not be logged.

        Args:
            names: All names in the logs, when this callback reads them.
        """
        if self.monitor is not None and self.monitor not in names:
            raise ValueError(
                "`monitor` of Checkpoint must be in the logs. Received: "
                f"monitor={self.monitor!r}, and the logs have {sorted(names)}."
                f"{did_you_mean(self.monitor, names)} Put a "
                "RetrievalEvaluation that measures it before the Checkpoint."
            )

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs = logs or {}
        self.check_logged(logs)
        if not this_worker(strategy_of(self.model)).is_chief:
            return
        reached = f"epoch {epoch + 1}"
        self.save_last(reached)
        if self.monitor is None:
            return
        value = logs[self.monitor]
        if self.best is not None and value <= self.best:
            return
        error = self._save("best", epoch=epoch + 1, value=float(value))
        if error is None:
            self.best, self.best_epoch = float(value), epoch + 1
        # One that was better, and is not there, is missing still.
        if value >= self._missed:
            self._missed = float(value)
            self._note("best", reached, error)

    def on_train_end(self, logs: Any = None) -> None:
        if self._reached is not None and self.last != self._reached:
            self.save_last(self._reached)

    def get_state(self) -> dict[str, Any]:
        """What it has seen of a training; see `Resume`."""
        return {name: getattr(self, name) for name in _STATE}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` gave.

        What the two models are, they say themselves: they may be of epochs
        after the state, which were trained in vain.
        """
        for name in _STATE:
            setattr(self, name, state[name])
        best = self._said_by("best")
        self.best, self.best_epoch = best.get("value"), best.get("epoch")
        self.last = self._said_by("last").get("reached")
        if self.best is not None and self.best >= self._missed:
            self._missed = self.best
            self.unsaved.pop("best.keras", None)

    def save_last(self, reached: str) -> None:
        """Saves `last.keras`, the model as it is at some moment."""
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

    def _said_by(self, name: str) -> dict[str, Any]:
        """What a file says it is; nothing if it is not of this training."""
        try:
            with zipfile.ZipFile(self.folder / f"{name}.keras") as file:
                said: dict[str, Any] = json.loads(file.comment)
        except (OSError, ValueError, zipfile.BadZipFile):
            return {}
        return said if said.get("training") == self._training else {}

    def _save(self, name: str, **what: Any) -> OSError | None:
        """Saves the model; says what stopped it, if something did.

        The file says what it is, as nothing that is written after it can: the
        process may be killed in between.

        Args:
            name: Of the file.
            **what: What it is.
        """
        path = self.folder / f"{name}.keras"
        try:
            with atomic_file(path) as partial:
                self.model.save(partial)
                said = json.dumps({"training": self._training, **what})
                with zipfile.ZipFile(partial, "a") as file:
                    file.comment = said.encode()
        except OSError as error:
            logger.error(
                "Could not save %s: %s. An earlier file, if any, is kept; "
                "training continues.",
                path,
                error,
            )
            return error
        return None
