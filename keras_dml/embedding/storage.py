"""Storage: a folder of files, on a disk or at a URL that fsspec supports."""

import contextlib
import errno
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias

from keras_dml.utils.arguments import import_extra
from keras_dml.utils.files import one_at_a_time, sweep, write_atomically

Folder: TypeAlias = str | os.PathLike[str]
"""A path, or a URL that fsspec supports, such as s3://bucket/gallery."""

EXTRA = "parquet"


class Storage:
    """A folder whose files are written atomically.

    Args:
        folder: A path or a URL.

    Attributes:
        name: The folder as given by the user.

    Raises:
        ImportError: If fsspec, or a package it needs for such URLs, is missing.
        ValueError: If fsspec does not support such URLs.
    """

    def __init__(self, folder: Folder) -> None:
        self.name = os.fspath(folder)
        self._files, self._root = file_system(self.name)
        protocol = self._files.protocol
        self._is_local = "file" in (protocol, *protocol)

    def sizes(self) -> dict[str, int]:
        """Sizes, in bytes, of the visible files directly in the folder.

        A folder in it has size -1. If the folder does not exist, there are no
        files.

        Raises:
            NotADirectoryError: If the folder is a file.
        """
        self._files.invalidate_cache()  # Other writers may have added files.
        if self._files.isfile(self._root):
            raise NotADirectoryError(
                f"{self.name!r} must be a folder. Received: a file. Use "
                "another path."
            )
        try:
            found = self._files.ls(self._root, detail=True)
        except FileNotFoundError:
            return {}
        named = {x["name"].rstrip("/").rpartition("/")[2]: x for x in found}
        return {
            name: -1 if x["type"] == "directory" else x["size"]
            for name, x in sorted(named.items())
            if name and not name.startswith(".")
        }

    def open(self, name: str) -> Any:
        """Opens a file for reading, as a context manager; or OSError."""
        path = self._at(name)
        if self._is_local and not self._files.isfile(path):
            raise FileNotFoundError(errno.ENOENT, "There is no file", path)
        return self._files.open(path, "rb")

    def read(self, name: str) -> bytes:
        """The content of a file; OSError if it cannot be read."""
        with self.open(name) as file:
            content: bytes = file.read()
        return content

    def write(self, name: str, content: bytes) -> None:
        """Writes a file atomically; OSError if there is not enough space."""
        if self._is_local:  # fsspec does not write these atomically.
            write_atomically(self._at(name), content)
            return
        try:
            self._files.pipe_file(self._at(name), content)
        except NotImplementedError:
            raise OSError(errno.EROFS, f"{self.name!r} is read-only") from None

    def remove(self, name: str) -> None:
        """Removes a file if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._at(name))

    def sweep(self) -> None:
        """Removes the incomplete files of writers that were killed."""
        if self._is_local:
            sweep(self._root)

    def lock(self, what: str) -> AbstractContextManager[None]:
        """Locks a folder on a disk; BlockingIOError if it is locked."""
        if self._is_local:
            return one_at_a_time(self._root, what)
        return contextlib.nullcontext()

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def from_anywhere(folder: Folder) -> str:
    """An absolute path, or a URL, for processes in other folders."""
    name = os.fspath(folder)
    return name if is_url(name) else os.path.abspath(os.path.expanduser(name))


def is_url(name: str) -> bool:
    """Whether a string is a URL instead of a path."""
    return "://" in name


def file_system(name: str) -> tuple[Any, str]:
    """The fsspec file system of a path or a URL, and the path in it.

    Raises:
        ImportError: If fsspec, or a package it needs for such URLs, is missing.
        ValueError: If fsspec does not support such URLs.
    """
    fsspec = import_extra(f"To read and write {name!r}", "fsspec", EXTRA)
    if not is_url(name):
        return fsspec.filesystem("file"), Path(from_anywhere(name)).as_posix()
    found: tuple[Any, str] = fsspec.url_to_fs(name)
    return found
