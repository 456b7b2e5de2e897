"""Storage: a folder of files, on a disk or in an object store."""

import contextlib
import errno
import os
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias

from keras_dml.utils.arguments import import_extra
from keras_dml.utils.files import (
    check_regular,
    one_at_a_time,
    write_atomically,
)

Folder: TypeAlias = str | os.PathLike[str]
"""A path, or a URL that fsspec supports, such as s3://bucket/gallery."""

EXTRA = "parquet"

_PARTIAL = re.compile(r"\.(shard-\d+|_run|_manifest)\.\w+\.[0-9a-f]{16}\.\w+")
"""Names that `atomic_file` gives to files until they are complete."""


class Storage:
    """A folder on a disk, whose files are written atomically.

    Attributes:
        name: The folder as given by the user.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = Path(os.path.abspath(path.expanduser()))

    def sizes(self) -> dict[str, int]:
        """Sizes, in bytes, of the visible files directly in the folder.

        Anything that is not a file has size -1. If the folder does not exist,
        there are none.

        Raises:
            NotADirectoryError: If the folder is a file.
        """
        if not self._path.exists():
            return {}
        if not self._path.is_dir():
            raise _is_file(self.name)
        return {
            x.name: x.stat().st_size if x.is_file() else -1
            for x in sorted(self._path.iterdir())
            if not x.name.startswith(".")
        }

    def open(self, name: str) -> Any:
        """Opens a file for reading, as a context manager; or OSError."""
        check_regular(self._path / name)
        return (self._path / name).open("rb")

    def read(self, name: str) -> bytes:
        """The content of a file; OSError if it cannot be read."""
        with self.open(name) as file:
            content: bytes = file.read()
        return content

    def write(self, name: str, content: bytes) -> None:
        """Writes a file atomically; OSError if there is not enough space."""
        write_atomically(self._path / name, content)

    def remove(self, name: str) -> None:
        """Removes a file if it exists."""
        (self._path / name).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Removes the incomplete files of writers that were killed."""
        for path in self._path.iterdir():
            if _PARTIAL.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def lock(self, what: str) -> AbstractContextManager[None]:
        """Locks the folder; BlockingIOError if there is another writer."""
        return one_at_a_time(self._path, what)


class _Objects(Storage):
    """A prefix of an object store, which writes atomically and has no locks."""

    def __init__(self, url: str, files: Any, root: str) -> None:
        self.name = url
        self._files, self._root = files, root

    def sizes(self) -> dict[str, int]:
        self._files.invalidate_cache()  # Other writers may have added objects.
        if self._files.isfile(self._root):
            raise _is_file(self.name)
        try:
            found = self._files.ls(self._root, detail=True)
        except FileNotFoundError:
            return {}
        named = {x["name"].rstrip("/").rpartition("/")[2]: x for x in found}
        return {
            name: x["size"] if x["type"] == "file" else -1
            for name, x in sorted(named.items())
            if name and not name.startswith(".")
        }

    def open(self, name: str) -> Any:
        return self._files.open(self._at(name), "rb")

    def write(self, name: str, content: bytes) -> None:
        try:
            self._files.pipe_file(self._at(name), content)
        except NotImplementedError:
            raise OSError(errno.EROFS, f"{self.name!r} is read-only") from None

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._at(name))

    def sweep(self) -> None:
        """Does nothing: objects are never incomplete."""

    def lock(self, what: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def _is_file(name: str) -> NotADirectoryError:
    return NotADirectoryError(
        f"{name!r} must be a folder. Received: a file. Use another path."
    )


def storage_of(folder: Folder) -> Storage:
    """The storage at a path or a URL.

    Raises:
        ImportError: If fsspec, or a package it needs for such URLs, is missing.
        ValueError: If fsspec does not support such URLs.
    """
    name = os.fspath(folder)
    if not is_url(name):
        return Storage(Path(name))
    files, path = file_system(name)
    # fsspec's local files are not written atomically, unlike objects.
    is_local = "file" in (files.protocol, *files.protocol)
    return Storage(Path(path)) if is_local else _Objects(name, files, path)


def from_anywhere(folder: Folder) -> str:
    """An absolute path, or a URL, for processes in other folders."""
    name = os.fspath(folder)
    return name if is_url(name) else os.path.abspath(os.path.expanduser(name))


def is_url(name: str) -> bool:
    """Whether a string is a URL instead of a path."""
    return "://" in name


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path of the URL in it.

    Raises:
        ImportError: If fsspec, or a package it needs for such URLs, is missing.
        ValueError: If fsspec does not support such URLs.
    """
    fsspec = import_extra(f"To read and write {url!r}", "fsspec", EXTRA)
    found: tuple[Any, str] = fsspec.url_to_fs(url)
    return found
