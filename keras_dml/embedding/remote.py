"""Images at URLs: fetched for as long as they are embedded."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath

from keras_dml.data import Examples, ImageSet
from keras_dml.embedding.storage import file_system, is_url

_THREADS = 16
_WAITS = (0.5, 2.0)
"""Seconds before the second and the third try."""

# To try again is of no use.
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError)


def check_protocols(examples: Examples) -> None:
    """Raises an error unless all URLs of a set can be read here.

    Raises:
        ImportError: If fsspec, or what it needs for such URLs, is missing.
        ValueError: If it knows no such URLs.
    """
    first: dict[str, str] = {}
    for url in _urls(examples):
        first.setdefault(url.partition("://")[0], url)
    for url in first.values():
        file_system(url)


@contextlib.contextmanager
def on_this_machine(
    examples: Examples,
) -> Iterator[tuple[Examples, dict[int, str]]]:
    """A set whose images at URLs are files while the block runs.

    Args:
        examples: The set; most have no URLs, and are left as they are.

    Yields:
        The same examples, and why some could not be fetched, by row.

    Raises:
        OSError: If there is no room for the files.
    """
    if not isinstance(examples, ImageSet) or not _urls(examples):
        yield examples, {}
        return
    urls = examples.paths or ()
    with tempfile.TemporaryDirectory(prefix="keras_dml-") as folder:
        with ThreadPoolExecutor(_THREADS) as pool:
            fetched = pool.map(partial(_fetch, folder), range(len(urls)), urls)
            paths, failures = zip(*fetched, strict=True)
        local = ImageSet(
            paths,
            examples.labels,
            examples.names,
            examples.ids,
            examples.boxes,
        )
        yield local, {row: x for row, x in enumerate(failures) if x}


def original(local: Examples, given: Examples, row: int, message: str) -> str:
    """A message on an example that names its URL, and not the local file."""
    if isinstance(local, ImageSet) and isinstance(given, ImageSet):
        here, there = local.paths or (), given.paths or ()
        if here and here[row] != there[row]:
            return message.replace(here[row], there[row])
    return message


def _urls(examples: Examples) -> list[str]:
    paths = examples.paths if isinstance(examples, ImageSet) else None
    return [path for path in paths or () if is_url(path)]


def _fetch(folder: str, number: int, url: str) -> tuple[str, str]:
    """The file of an image, and why it is not there, if it is not."""
    if not is_url(url):
        return url, ""
    path = Path(folder) / f"{number}{PurePosixPath(url).suffix[:8]}"
    try:
        content = _content(url)
    except Exception as error:  # Each file system has errors of its own.
        why = f"{type(error).__name__}: {error}"
        return str(path), f"The image {url!r} cannot be fetched: {why}"
    path.write_bytes(content)
    return str(path), ""


def _content(url: str) -> bytes:
    """What is at a URL; networks get several tries."""
    files, path = file_system(url)
    for wait in _WAITS:
        try:
            return bytes(files.cat_file(path))
        except _FINAL:
            raise
        except Exception:
            time.sleep(wait)
    return bytes(files.cat_file(path))
