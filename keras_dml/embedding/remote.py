"""Images at URLs, which are downloaded while they are embedded."""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath

from keras_dml.data import Examples, ImageSet
from keras_dml.embedding.storage import file_system, is_url

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

    Args:
        examples: The set. If it does not have URLs, it is yielded unchanged.

    Yields:
        The same examples as local files, and the reasons why some could not be
        downloaded, by row.

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
        local = ImageSet(
            paths,
            examples.labels,
            examples.names,
            examples.ids,
            examples.boxes,
        )
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
