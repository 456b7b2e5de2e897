"""Storage: a folder of files, on a disk or at a URL that fsspec supports.

Images at URLs are downloaded while they are embedded, see `on_this_machine`.
"""

import contextlib
import errno
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from keras_dml.data import Examples, ImageSet
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.files import one_at_a_time, sweep, write_atomically

Folder: TypeAlias = str | os.PathLike[str]
"""A path, or a URL that fsspec supports, such as s3://bucket/gallery."""

EXTRA = "parquet"

_THREADS = 16
_WAITS = (0.5, 2.0)
"""Seconds before the second and the third attempt."""

# Errors for which trying again does not help.
_FINAL = (
    FileNotFoundError,
    ImportError,
    IsADirectoryError,
    PermissionError,
    ValueError,
)


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


def check_protocols(examples: Examples) -> None:
    """Checks that the protocols of the URLs of a set are supported.

    If others are, a row with a protocol that nobody knows is a bad one.

    Raises:
        ImportError: If fsspec, or a package it needs for such URLs, is missing.
        ValueError: If fsspec supports no row of the set.
    """
    paths = _paths(examples)
    first = {x.partition("://")[0]: x for x in filter(is_url, reversed(paths))}
    unknown = {}
    for protocol, url in first.items():
        try:
            file_system(url)
        except ValueError as error:
            unknown[protocol] = error
    if unknown and len(unknown) == len(first) and all(map(is_url, paths)):
        reason = unknown[paths[0].partition("://")[0]]
        raise ValueError(
            "`examples` must be at paths, or at URLs that fsspec supports. "
            f"Received: row 0, {paths[0]!r}: {reason}."
        )


def _paths(examples: Examples) -> Sequence[str]:
    return examples.paths or () if isinstance(examples, ImageSet) else ()


@contextlib.contextmanager
def on_this_machine(
    examples: Examples,
) -> Iterator[tuple[Examples, dict[int, str]]]:
    """Downloads the images of a set that are at URLs while the block runs.

    Yields:
        The same examples as local files, and the reasons why some could not be
        downloaded, by row; a set without URLs as it is.

    Raises:
        OSError: If there is not enough space for the files.
    """
    urls = _paths(examples)
    if not isinstance(examples, ImageSet) or not any(map(is_url, urls)):
        yield examples, {}
        return
    with tempfile.TemporaryDirectory(prefix="keras_dml-") as folder:
        with ThreadPoolExecutor(_THREADS) as pool:
            fetched = pool.map(partial(_fetch, folder), range(len(urls)), urls)
            paths, failures = zip(*fetched, strict=True)
        about = examples.labels, examples.names, examples.ids, examples.boxes
        local = ImageSet(paths, *about)
        yield local, {row: x for row, x in enumerate(failures) if x}


def original(local: Examples, given: Examples, row: int, message: str) -> str:
    """A message about an example with its URL instead of the local file."""
    if isinstance(local, ImageSet) and isinstance(given, ImageSet):
        here, there = local.paths or (), given.paths or ()
        if here and here[row] != there[row]:
            return message.replace(here[row], there[row])
    return message


def _fetch(folder: str, number: int, url: str) -> tuple[str, str]:
    """The file of an image, and the reason if it could not be downloaded."""
    if not is_url(url):
        return url, ""
    path = Path(folder) / f"{number}{PurePosixPath(url).suffix[:8]}"
    try:
        content = _content(url)
    except Exception as error:  # Every file system has its own errors.
        why = f"{type(error).__name__}: {error}"
        return str(path), f"The image {url!r} cannot be downloaded: {why}"
    path.write_bytes(content)
    return str(path), ""


def _content(url: str) -> bytes:
    """The content at a URL; several attempts are made."""
    files, path = file_system(url)
    for wait in _WAITS:
        try:
            return bytes(files.cat_file(path))
        except _FINAL:
            raise
        except Exception:
            time.sleep(wait)
    return bytes(files.cat_file(path))
