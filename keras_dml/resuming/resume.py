"""Resume: where and how often the state of training is saved."""

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
"""Exit status after SIGTERM: `EX_TEMPFAIL` of BSD's sysexits.h, try again."""

_UNITS = {"s": 1, "m": 60, "h": 3600}


class Resume(keras.callbacks.Callback):
    """Saves the state of `MetricModel.fit`; the same call continues from it.

    If the folder holds a state, `fit` continues from there, even within an
    epoch. The weights, optimizer slots, states of random generators and logs
    are in the end bit-identical to those of uninterrupted training. If there is
    no state, `fit` starts normally. Once training is complete, the same call
    does not train any further.

    A state is written atomically at the end of every epoch, and within epochs
    as set by `every`. The previous state is kept, and used if the newest is
    damaged. If a state cannot be written, for instance because the disk is
    full, the error is logged and training continues. After SIGTERM, a state is
    written at the end of the step, and the process exits with status 75. With
    several workers, a SIGTERM to any of them makes all of them do so after the
    same step, within about a second.

    A state includes those of the callbacks of this package; of Keras's
    `History`, `EarlyStopping`, `ReduceLROnPlateau`, `ModelCheckpoint` and
    `CSVLogger`; and of every callback that has `get_state()`, which returns a
    dict of numbers, strings, arrays, lists and dicts, and `set_state(state)`.
    When training continues within an epoch, their `on_epoch_begin` is not
    called again.

    Training can only continue within an epoch if a sampler plans the batches,
    as for those of `keras_dml.data.pipeline`, even after `map`, and for
    balanced batches of arrays. Otherwise, the interrupted epoch is trained
    again from its beginning.

    Args:
        folder: The folder for states, which must not be shared with other
            trainings.
        sampler: The sampler that plans the batches, if they are from a dataset
            that `pipeline` did not create. Its epoch is restored.
        every: How often to save within epochs: a number of steps, or a time
            such as "90s", "5m" or "1h". With None, only after epochs.
        identity: Further JSON values, by name, that must not change before
            training continues. Versions, model, optimizer, sampler and data are
            always compared.

    Attributes:
        seconds: Time spent on writing states so far.

    Raises:
        ValueError: If `every` is invalid. By `fit`: if the state is of a
            different model, sampler or data set, or was written with other
            versions of this package, Keras, TensorFlow or NumPy, in which case
            the differences are named; or if all states are damaged.
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
        """Whether there is a state to continue from."""
        return bool(Generations(self.folder).paths())

    def on_train_begin(self, logs: Any = None) -> None:
        # `MetricModel.fit` removes it from the list of callbacks.
        raise ValueError(
            "Resume must be used with MetricModel.fit. Received: "
            f"{type(self.model).__name__}. Use keras.callbacks."
            "BackupAndRestore for other models."
        )


def parsed_every(every: Any) -> tuple[int | None, float | None]:
    """The steps, or the seconds, after which to save a state.

    Raises:
        ValueError: If `every` is neither a number of steps nor a time.
    """
    if every is None:
        return None, None
    if isinstance(every, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", every)
        if found and float(found[1]) > 0:
            return None, float(found[1]) * _UNITS[found[2]]
        if not every.isdecimal():
            raise ValueError(
                "`every` of Resume must be a number of steps or a time. "
                f'Received: every={every!r}. Use 200, "90s", "5m" or "1h".'
            )
        every = int(every)
    return check_count("Resume", "every", every), None
