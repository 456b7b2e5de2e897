"""Generations: the latest states of training, in files with checksums."""

import contextlib
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from keras_dml.utils.files import atomic_file, one_at_a_time, sweep

logger = logging.getLogger(__name__)

FORMAT = 1
"""Version of the file format. Files of later versions are not read."""

KEPT = 2
"""Number of generations to keep."""

_NAME = re.compile(r"state-(\d+)\.npz")
_ARRAY = "__array__"

Array: TypeAlias = npt.NDArray[Any]
State: TypeAlias = dict[str, Any]
"""Numbers, strings, None, arrays, and lists and dicts of these."""


class StateError(ValueError):
    """Training cannot continue from the saved state."""


class Generations:
    """The last two states, `state-N.npz`, in a folder.

    A state is written atomically, and the previous one is kept. A file contains
    JSON, `content`, and the arrays that it refers to. It is a ZIP archive, so
    each of these has a checksum, which reading verifies.

    Args:
        folder: The folder, which is created if needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._damaged: set[Path] = set()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder against use by other trainings.

        Raises:
            BlockingIOError: If another training uses it.
        """
        with one_at_a_time(self.folder, "training"):
            sweep(self.folder)
            yield

    def paths(self) -> list[Path]:
        """The files of states, newest first."""
        found = {
            path: int(match[1])
            for path in self.folder.glob("state-*.npz")
            if (match := _NAME.fullmatch(path.name))
        }
        return sorted(found, key=found.__getitem__, reverse=True)

    def write(self, state: State) -> Path:
        """Adds a generation, and removes those that are too old.

        Raises:
            OSError: If it cannot be written. Earlier ones are then unchanged.
        """
        before = self.paths()
        number = 1 + max((int(_number(path)) for path in before), default=0)
        path = self.folder / f"state-{number}.npz"
        with atomic_file(path) as partial:
            _write(partial, state)
        whole = [x for x in before if x not in self._damaged]
        for old in {*before} - {*whole[: KEPT - 1]}:
            old.unlink()
        return path

    def read(self) -> tuple[Path, State] | None:
        """The newest undamaged state; None if there are no states.

        Raises:
            StateError: If all are damaged, or the newest was written by a later
                version of the package.
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
        """The state that the first of several workers has read.

        Raises:
            StateError: If this worker cannot see the file.
        """
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
    plain = _packed(state, arrays)
    content = json.dumps({"format": FORMAT, **plain}).encode()
    named: dict[str, Any] = {
        "content": np.frombuffer(content, np.uint8),
        **{f"array_{i}": array for i, array in enumerate(arrays)},
    }
    np.savez(path, **named)


def _read(path: Path) -> State:
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        content = file["content"].tobytes()
        plain = json.loads(content)
        if plain.pop("format") > FORMAT:
            raise _Later
        count = sum(name.startswith("array_") for name in file.files)
        arrays = [file[f"array_{i}"] for i in range(count)]
    state: State = _unpacked(plain, arrays)
    return state


def _packed(value: Any, arrays: list[Array]) -> Any:
    """A value with its arrays replaced by references and added to a list."""
    if isinstance(value, dict):
        return {str(k): _packed(x, arrays) for k, x in value.items()}
    if isinstance(value, list | tuple):
        return [_packed(x, arrays) for x in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {_ARRAY: len(arrays) - 1}
    return value


def _unpacked(value: Any, arrays: list[Array]) -> Any:
    if isinstance(value, list):
        return [_unpacked(x, arrays) for x in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_ARRAY}:
        return arrays[value[_ARRAY]]
    return {k: _unpacked(x, arrays) for k, x in value.items()}
