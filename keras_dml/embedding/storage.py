"""Storage: a folder of files, on a disk or at a URL that fsspec supports."""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from keras_dml.data import Examples, ImageSet
from keras_dml.utils.files import one_at_a_time, sweep, write_atomically

Folder: TypeAlias = str | os.PathLike[str]
"""A path, or a URL that fsspec supports, such as s3://bucket/gallery."""


def is_url(name: str) -> bool:
    """Whether a string is a URL instead of a path."""
    return "://" in name


def absolute(name: Folder) -> str:
    """A path for any working directory; URLs are unchanged."""
    text = os.fspath(name)
    return text if is_url(text) else os.path.abspath(os.path.expanduser(text))


class Storage:
    """A folder whose files are written aside and renamed.

    Args:
        folder: A path or a URL.

    Attributes:
        name: The folder as given by the user.

    Raises:
        ImportError: If a package that fsspec needs for such URLs is missing.
        ValueError: If fsspec does not support such URLs.
    """

    def __init__(self, folder: Folder) -> None:
        import fsspec

        self.name = os.fspath(folder)
        path = absolute(folder)
        self._is_local = not is_url(path)
        url = f"file://{path}" if self._is_local else path
        self._files, self._root = fsspec.url_to_fs(url)

    def names(self) -> set[str]:
        """Names of the visible files and folders directly in the folder."""
        self._files.invalidate_cache()  # Another writer may have added files.
        try:
            paths = self._files.ls(self._root, detail=False)
        except FileNotFoundError:
            return set()
        names = {PurePosixPath(path).name for path in paths}
        return {name for name in names if not name.startswith(".")}

    def open(self, name: str) -> Any:
        """Opens a file for reading, as a context manager; or OSError."""
        return self._files.open(self._path(name), "rb")

    def write(self, name: str, content: bytes) -> None:
        """Writes a file whole or not at all; OSError if there is no space."""
        path = self._path(name)
        if self._is_local:
            write_atomically(path, content)
            return
        aside = self._path(f".{name}.{secrets.token_hex(8)}")
        try:
            self._files.pipe_file(aside, content)
            self._files.mv(aside, path)
        except NotImplementedError:
            raise OSError(f"{self.name!r} is read-only") from None

    def remove(self, name: str) -> None:
        """Removes a file."""
        self._files.rm_file(self._path(name))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Locks a folder on a disk; BlockingIOError if it is locked.

        Incomplete files of writers that were killed are removed.
        """
        if not self._is_local:
            yield
            return
        with one_at_a_time(self._root, "embedding"):
            sweep(self._root)
            yield

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def with_paths(images: ImageSet, paths: Iterable[str]) -> ImageSet:
    """The same images at other paths."""
    about = images.labels, images.names, images.ids, images.boxes
    return ImageSet(list(paths), *about)


@contextlib.contextmanager
def downloaded(examples: Examples) -> Iterator[Examples]:
    """Has the images of a set that are at URLs in files while the block runs.

    Raises:
        OSError: If an image cannot be downloaded, or there is no space.
    """
    paths = (isinstance(examples, ImageSet) and examples.paths) or ()
    urls = list(filter(is_url, paths))
    if not isinstance(examples, ImageSet) or not urls:
        yield examples
        return
    import fsspec

    with tempfile.TemporaryDirectory(prefix="keras_dml-") as folder:
        files = {
            url: f"{folder}/{number}{PurePosixPath(url).suffix[:8]}"
            for number, url in enumerate(urls)
        }
        try:
            for protocol in {url.partition("://")[0] for url in urls}:
                batch = [x for x in files if x.startswith(f"{protocol}://")]
                file_system, _ = fsspec.url_to_fs(batch[0])
                file_system.get(batch, [files[url] for url in batch])
        except Exception as error:  # Every file system has its own errors.
            raise OSError(
                "Images could not be downloaded: "
                f"{type(error).__name__}: {error}"
            ) from error
        try:
            yield with_paths(examples, (files.get(x, x) for x in paths))
        except ValueError as error:  # It names a local file.
            message = str(error)
            for url, file in files.items():
                message = message.replace(file, url)
            raise ValueError(message) from error
