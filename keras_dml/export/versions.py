"""Versions: the folders NAME/1, NAME/2, … of which a server loads the last.

A version is written to a hidden folder next to it and then renamed in one step,
so it exists completely or not at all, even if the process is killed. A hidden
folder that is left over starts with a dot and is ignored by servers, which look
for integers. An existing version is never changed, since a server may be using
it: a new export is a new version.
"""

import re
from pathlib import Path


def version_folder(path: Path) -> Path:
    """The folder of NAME/VERSION, or of the next version of NAME."""
    if not is_version(path):
        versions = path.iterdir() if path.exists() else ()
        taken = [int(x.name) for x in versions if is_version(x)]
        return path / str(max(taken, default=0) + 1)
    if path.exists():
        raise FileExistsError(
            "`path` of export must be a new version. Received: "
            f"path={str(path)!r}, which exists. Use path={str(path.parent)!r} "
            "for the next free version."
        )
    return path


def is_version(path: Path) -> bool:
    """Whether a server takes a folder of this name for a version."""
    return re.fullmatch("[0-9]+", path.name) is not None
