"""Where exports land: whole, or not at all.

An export is written into a hidden folder beside its target, and one call of
the system moves it into place. A process that is killed before leaves the
target as it was, one that is killed after leaves the new export; what may
be left of the hidden folder starts with a dot, and is no version to a
server, which looks for integers.
"""

import ctypes
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

_WORKING_FOLDER = -100
_EXCHANGE = 2
"""AT_FDCWD and RENAME_EXCHANGE of Linux."""


def version_folder(path: Path, overwrite: bool) -> Path:
    """The folder of the version that is to be written.

    Raises:
        FileExistsError: If it exists and may not be replaced.
    """
    if not is_version(path):
        versions = path.iterdir() if path.exists() else ()
        taken = [int(x.name) for x in versions if is_version(x)]
        return path / str(max(taken, default=0) + 1)
    is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    is_export = tf.saved_model.contains_saved_model(str(path))
    if is_free or (is_export and overwrite):
        return path
    replace = "overwrite=True to replace it, " if is_export else ""
    raise FileExistsError(
        f"`path` of export must be free. Received: path={str(path)!r}, which "
        f"exists. Use {replace}another version, or path={str(path.parent)!r} "
        "for the next free version."
    )


def is_version(path: Path) -> bool:
    """Whether a server takes a folder of this name for a version."""
    return re.fullmatch("[0-9]+", path.name) is not None


def free_file(path: Path, suffix: str, overwrite: bool) -> Path:
    """The file that is to be written.

    Raises:
        ValueError: If it has another suffix.
        FileExistsError: If it exists and may not be replaced.
    """
    if path.suffix != suffix:
        raise ValueError(
            f"`path` of export must end in {suffix!r} for this format. "
            f"Received: path={str(path)!r}."
        )
    if path.is_dir() or (path.exists() and not overwrite):
        replace = "" if path.is_dir() else "overwrite=True to replace it, or "
        raise FileExistsError(
            f"`path` of export must be free. Received: path={str(path)!r}, "
            f"which exists. Use {replace}another path."
        )
    return path


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """A hidden folder on the file system of the target, then removed."""
    beside = next(x for x in target.absolute().parents if x.exists())
    with tempfile.TemporaryDirectory(prefix=".export-", dir=beside) as folder:
        yield Path(folder)


def land_folder(new: Path, target: Path, overwrite: bool) -> None:
    """Moves a folder into place, by one call of the system.

    Raises:
        OSError: If another process has written there meanwhile, or if
            folders cannot be exchanged here.
    """
    if overwrite and target.exists():
        _exchange(new, target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    new.rename(target)


def land_file(new: Path, target: Path) -> None:
    """Moves a file into place, by one call of the system."""
    target.parent.mkdir(parents=True, exist_ok=True)
    new.replace(target)


def _exchange(new: Path, target: Path) -> None:
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    folder, paths = _WORKING_FOLDER, (os.fsencode(new), os.fsencode(target))
    if renameat2 and not renameat2(
        folder, paths[0], folder, paths[1], _EXCHANGE
    ):
        return
    # Two calls would leave nothing in place between them.
    error = ctypes.get_errno()
    reason = f" ({os.strerror(error)})" if renameat2 else ""
    raise OSError(
        error,
        f"{target} cannot be exchanged for a new export in one step here"
        f"{reason}. Export another version: path={str(target.parent)!r}.",
    )
