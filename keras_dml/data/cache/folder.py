"""The folder of data sets that were built once."""

import os
import sys
from pathlib import Path


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
