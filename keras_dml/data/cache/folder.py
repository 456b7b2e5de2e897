"""Where data sets that were built once are kept."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO


def cache_folder() -> Path:
    """The folder for files that can be built again.

    It is `$KERAS_DML_HOME` where that is set. Otherwise it is the folder
    `keras_dml` in the user's cache folder: `$XDG_CACHE_HOME` or `~/.cache`
    on Linux, `~/Library/Caches` on macOS, `%LOCALAPPDATA%` on Windows. It
    may not exist yet.
    """
    home = os.environ.get("KERAS_DML_HOME")
    if home:
        return Path(home).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "keras_dml"
    variable = "LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME"
    parent = os.environ.get(variable)
    return Path(parent or Path.home() / ".cache") / "keras_dml"


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes a file that others see whole or not at all.

    Args:
        path: The file; its folder is made where needed.
        write: Writes the content to the open file it is given.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}."
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
