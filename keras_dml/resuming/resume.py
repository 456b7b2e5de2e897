"""Resume: where and how often the state of training is saved, and its files."""

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data import Sampler
from keras_dml.utils.arguments import check_count
from keras_dml.utils.files import atomic_file, one_at_a_time, sweep

logger = logging.getLogger(__name__)

TERMINATED = 75
"""Exit status after SIGTERM: `EX_TEMPFAIL` of BSD's sysexits.h, try again."""

_UNITS = {"s": 1, "m": 60, "h": 3600}

FORMAT = 1
"""Version of the file format. Files of later versions are not read."""

NUM_GENERATIONS = 2
"""Number of generations that are kept."""

_NAME = re.compile(r"state-(\d+)\.npz")
_ARRAY = "__array__"

Array: TypeAlias = npt.NDArray[Any]
State: TypeAlias = dict[str, Any]
"""Numbers, strings, None, arrays, and lists and dicts of these."""


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
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", every)
        if match and float(match[1]) > 0:
            return None, float(match[1]) * _UNITS[match[2]]
        if not every.isdecimal():
            raise ValueError(
                "`every` of Resume must be a number of steps or a time. "
                f'Received: every={every!r}. Use 200, "90s", "5m" or "1h".'
            )
        every = int(every)
    return check_count("Resume", "every", every), None


class StateError(ValueError):
    """Training cannot continue from the saved state."""


class Generations:
    """The last two states, `state-N.npz`, in a folder.

    A state is written atomically, and the previous one is kept. A file contains
    JSON, `content`, and the arrays that it refers to. It is a ZIP archive, so
    each of these has a checksum, which reading verifies.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._damaged: set[Path] = set()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the folder; `BlockingIOError` if another training uses it."""
        with one_at_a_time(self.folder, "training"):
            sweep(self.folder)
            yield

    def paths(self) -> list[Path]:
        """The files of states, newest first."""
        numbers = {
            path: int(match[1])
            for path in self.folder.glob("state-*.npz")
            if (match := _NAME.fullmatch(path.name))
        }
        return sorted(numbers, key=numbers.__getitem__, reverse=True)

    def write(self, state: State) -> Path:
        """Adds a generation, and then removes those that are too old."""
        before = self.paths()
        number = 1 + max((int(_number(path)) for path in before), default=0)
        path = self.folder / f"state-{number}.npz"
        with atomic_file(path) as partial:
            _write(partial, state)
        whole = [x for x in before if x not in self._damaged]
        for old in {*before} - {*whole[: NUM_GENERATIONS - 1]}:
            old.unlink()
        return path

    def read(self) -> tuple[Path, State] | None:
        """The newest undamaged state; None if there are no states.

        Raises `StateError` if all are damaged, or the newest was written by a
        later version of the package.
        """
        paths = self.paths()
        for path in paths:
            try:
                state = _read(path)
            except _Later:
                raise StateError(
                    f"The state {path} was written by a later version of "
                    "keras_dml. Use that version, or another folder."
                ) from None
            except Exception as error:  # A damaged file may raise any error.
                logger.warning(
                    "The state %s is damaged (%s: %s); the one before it is "
                    "used instead.",
                    path,
                    type(error).__name__,
                    error,
                )
                self._damaged.add(path)
            else:
                return path, state
        if paths:
            raise StateError(
                f"{self.folder} must have an undamaged state. Received: "
                f"{', '.join(x.name for x in paths)}, all damaged. Remove the "
                "folder to start again."
            )
        return None

    def read_named(self, name: str) -> tuple[Path, State]:
        """The state that the first of several workers has read."""
        path = self.folder / name
        try:
            return path, _read(path)
        except OSError:
            raise StateError(
                "All workers must see the states that the first one writes. "
                f"Received: {path} is missing. Use a folder that all workers "
                "share."
            ) from None


class _Later(Exception):
    """A file was written by a later version of the package."""


def _number(path: Path) -> str:
    return path.stem.removeprefix("state-")


def _write(path: Path, state: State) -> None:
    arrays: list[Array] = []
    plain = _pack(state, arrays)
    content = json.dumps({"format": FORMAT, **plain}).encode()
    entries: dict[str, Any] = {
        "content": np.frombuffer(content, np.uint8),
        **{f"array_{i}": array for i, array in enumerate(arrays)},
    }
    np.savez(path, **entries)


def _read(path: Path) -> State:
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        content = file["content"].tobytes()
        plain = json.loads(content)
        if plain.pop("format") > FORMAT:
            raise _Later
        count = sum(name.startswith("array_") for name in file.files)
        arrays = [file[f"array_{i}"] for i in range(count)]
    state: State = _unpack(plain, arrays)
    return state


def _pack(value: Any, arrays: list[Array]) -> Any:
    """A value with its arrays replaced by references and added to a list."""
    if isinstance(value, dict):
        return {str(k): _pack(x, arrays) for k, x in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(x, arrays) for x in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {_ARRAY: len(arrays) - 1}
    return value


def _unpack(value: Any, arrays: list[Array]) -> Any:
    if isinstance(value, list):
        return [_unpack(x, arrays) for x in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_ARRAY}:
        return arrays[value[_ARRAY]]
    return {k: _unpack(x, arrays) for k, x in value.items()}
