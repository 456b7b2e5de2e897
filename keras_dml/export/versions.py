"""Versions: the folders NAME/1, NAME/2, … that a server loads.

A version is written into a hidden folder beside it and then renamed, in one
step: it is there whole or not at all, whenever the process is killed. What
may be left of the hidden folder starts with a dot, and is no version to a
server, which looks for integers. A version that is there is never changed,
since a server may be using it: a new export is a new version.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def version_folder(path: Path) -> Path:
    """The folder of the version that is to be written.

    Args:
        path: NAME/VERSION, or NAME for the next version.

    Raises:
        FileExistsError: If the version exists.
    """
    if not is_version(path):
        versions = path.iterdir() if path.exists() else ()
        taken = [int(x.name) for x in versions if is_version(x)]
        return path / str(max(taken, default=0) + 1)
    if path.exists():
        raise FileExistsError(
            "`path` of export must be a new version. Received: "
            f"path={str(path)!r}, which exists. Use "
            f"path={str(path.parent)!r} for the next free version."
        )
    return path


def is_version(path: Path) -> bool:
    """Whether a server takes a folder of this name for a version."""
    return re.fullmatch("[0-9]+", path.name) is not None


@contextmanager
def new_version(target: Path) -> Iterator[Path]:
    """A folder to be made, which becomes `target` when the block ends.

    Raises:
        OSError: If another process has written `target` meanwhile.
    """
    beside = next(x for x in target.absolute().parents if x.exists())
    with tempfile.TemporaryDirectory(prefix=".export-", dir=beside) as folder:
        new = Path(folder) / "new"
        yield new
        target.parent.mkdir(parents=True, exist_ok=True)
        new.rename(target)
