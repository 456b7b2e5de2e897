"""Resume: where and how often the state of a training is kept."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from keras_dml.data import Sampler
from keras_dml.resuming.generations import Generations
from keras_dml.utils.arguments import check_count

TERMINATED = 75
"""Exit status after SIGTERM, `EX_TEMPFAIL` of BSD's sysexits.h: try again."""

_UNITS = {"s": 1, "m": 60, "h": 3600}


class Resume(keras.callbacks.Callback):
    """Keeps the state of `MetricModel.fit`; the same call continues from it.

    Where the folder has a state, `fit` begins where that was written, within
    an epoch, too, and ends with the same bits as without the interruption:
    weights, slots of the optimizer, states of random generators, logs. Where
    it has none, `fit` begins as ever. After the last epoch the same call
    trains nothing.

    A state is written at the end of every epoch, and within epochs as `every`
    says, whole or not at all; the one before it is kept and used where the
    newest is damaged. If it cannot be written, because the disk is full, that
    is logged and training continues. After SIGTERM a state is written at the
    end of the step, and the process exits with status 75. Several workers all
    do so in the same step, within about a second, if one of them gets it.

    The state has what callbacks of this package have seen, of Keras's
    `History`, `EarlyStopping`, `ReduceLROnPlateau`, `ModelCheckpoint` and
    `CSVLogger`, and of all that have `get_state()`, which gives a dict of
    numbers, strings, arrays, lists and dicts, and `set_state(state)`. Within
    an epoch their `on_epoch_begin` is not called again.

    Within an epoch a training continues only where a sampler plans the batches:
    those of `keras_dml.data.pipeline`, also if they are mapped, and balanced
    batches of arrays. Others go on from the beginning of the epoch that was
    interrupted.

    Args:
        folder: Where states are kept. A training has one of its own.
        sampler: What plans the batches, where `fit` cannot know that: of a
            dataset that is not made by `pipeline`. Its epoch is restored.
        every: How often within epochs: after so many steps, or after a time,
            "90s", "5m" or "1h". None: not.
        identity: What else must be the same when the training continues, of
            values that JSON has; differences are named by their keys. Of
            versions, model, optimizer, sampler and data it is known.

    Attributes:
        seconds: Time spent on writing so far.

    Raises:
        ValueError: If `every` is not as described. By `fit`: if the state is
            of another model, sampler, data set, version of this package, of
            Keras, TensorFlow or NumPy, which is named, or if no state is
            whole.
        BlockingIOError: By `fit`, if another training uses the folder.
        SystemExit: By `fit`, after SIGTERM.

    Example:

    ```python
    model.fit(batches, epochs=4, callbacks=[Resume("state", every="5m")])
    ```
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        sampler: Sampler | None = None,
        every: int | str | None = None,
        *,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.sampler = sampler
        self.every = every
        self.identity = dict(identity or {})
        self.every_steps, self.every_seconds = parsed_every(every)
        self.seconds = 0.0

    @property
    def has_state(self) -> bool:
        """Whether there is something to go on from."""
        return bool(Generations(self.folder).paths())

    def on_train_begin(self, logs: Any = None) -> None:
        # `MetricModel.fit` takes it out of the list of callbacks.
        raise ValueError(
            "Resume is for MetricModel.fit. Received: "
            f"{type(self.model).__name__}. Use keras.callbacks."
            "BackupAndRestore for other models."
        )


def parsed_every(every: Any) -> tuple[int | None, float | None]:
    """After how many steps, or seconds, a state is due.

    Raises:
        ValueError: If it is neither.
    """
    if every is None:
        return None, None
    if isinstance(every, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", every)
        if found and float(found[1]) > 0:
            return None, float(found[1]) * _UNITS[found[2]]
        if not every.isdecimal():
            raise ValueError(
                "`every` of Resume must be a number of steps, or a time. "
                f'Received: every={every!r}. Use 200, "90s", "5m" or "1h".'
            )
        every = int(every)
    return check_count("Resume", "every", every), None
