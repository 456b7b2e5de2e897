"""The folder of an index: replaced whole, checked when it is read.

    DIR/index.json     what the index is, and which files it consists of
    DIR/data/…         those files, each under a name that is never reused

A new version writes new files first and then replaces `index.json`, which is
atomic. Whoever reads sees the old version or the new one, and a process that
is killed leaves nothing behind but files that the next one removes.
"""

import contextlib
import json
import mmap
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from xxhash import xxh3_128_hexdigest

from keras_dml.search.memory import Memory, room
from keras_dml.utils.types import Config

MANIFEST, DATA, LOCK = "index.json", "data", ".lock"
FORMAT, FORMAT_VERSION = "keras_dml.search", 2

Source: TypeAlias = Callable[[Path], None] | Memory
"""What a file is to hold: what a call writes, or bytes that are at hand."""


class IndexFileError(ValueError):
    """A folder that is no index, or a damaged one."""


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of an index."""
    return (Path(path) / MANIFEST).exists()


def write(
    folder: Path,
    content: Config,
    sources: Mapping[str, Source],
    *,
    expected: int | None,
) -> int:
    """Writes a version of an index and makes it the one that counts.

    Args:
        folder: Where the index is or will be.
        content: What the index is, as plain values.
        sources: What each of its files is to hold, by file names, which
            tell apart what belongs to one version.
        expected: The version that is to be replaced; 0 if there must be
            none, None if any may be.

    Returns:
        The number of the new version.

    Raises:
        FileExistsError: If there is something else at `folder`.
    """
    (folder / DATA).mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        current = _version(folder)
        _check_expected(folder, current, expected)
        try:
            manifest = _write_new(folder, content, sources, current + 1)
            os.replace(manifest, folder / MANIFEST)
            _sync(folder)
        finally:
            # What a version before left, or a failure now.
            _remove_unused(folder)
    return current + 1


def check_free(folder: Path) -> None:
    """Checks that nothing but an index, or nothing at all, is there.

    Raises:
        FileExistsError: If there is something else at `folder`.
    """
    if folder.is_file() or (folder.is_dir() and not _is_ours(folder)):
        raise FileExistsError(
            "`path` of Index.save must be a new folder, or that of an index. "
            f"Received: path={str(folder)!r}, which is something else. Use "
            "another path."
        )


def read(folder: Path) -> Config:
    """What an index is: the contents of its manifest.

    Raises:
        FileNotFoundError: If there is no index in `folder`.
        IndexFileError: If it is damaged, of another kind or newer.
    """
    path = folder / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"There is no index in {str(folder)!r}: it has no {MANIFEST}. "
            "`keras-dml index` and `Index.save` write one."
        ) from None
    except UnicodeDecodeError:
        raise _damaged(path, "it is not text") from None
    try:
        manifest = json.loads(text)
    except ValueError:
        raise _damaged(path, "it is not JSON") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise IndexFileError(
            f"{str(path)!r} is not of an index of keras_dml. Received: a file "
            f"without the format {FORMAT!r}."
        )
    if manifest.get("format_version") != FORMAT_VERSION:
        raise IndexFileError(
            f"The index {str(folder)!r} must be of format version "
            f"{FORMAT_VERSION}. Received: format_version="
            f"{manifest.get('format_version')!r}. Read it with the version of "
            "keras_dml that wrote it, or build it again."
        )
    if manifest.pop("checksum", None) != _checksum(manifest):
        raise _damaged(path, "its checksum does not fit")
    return manifest


def checked_file(
    folder: Path, manifest: Config, name: str, verify: bool = True
) -> Path:
    """The path of one of the index's files, after a look at it.

    Args:
        folder: The folder of the index.
        manifest: Of `read`.
        name: The name that `write` was given.
        verify: Whether to compare its checksum too, not just its size.

    Raises:
        FileNotFoundError: If the file is not there, for instance because
            another process has written a new version.
        IndexFileError: If the file is not the one that was written.
    """
    entry = manifest["files"][name]
    path = _path(folder, entry)
    if verify and _digest_of_file(path) != entry["xxh3_128"]:
        raise _damaged(path, "its checksum does not fit")
    return path


def read_file(
    folder: Path, manifest: Config, name: str, verify: bool = True
) -> Memory:
    """The content of one of the index's files; see `checked_file`."""
    entry = manifest["files"][name]
    path = _path(folder, entry)
    memory = room(entry["bytes"])
    with path.open("rb") as file:
        size = file.readinto(memory.data)
    if size != entry["bytes"]:
        raise _damaged(path, f"it has {size} bytes, not {entry['bytes']}")
    if verify and xxh3_128_hexdigest(memory.data) != entry["xxh3_128"]:
        raise _damaged(path, "its checksum does not fit")
    return memory


def _path(folder: Path, entry: Config) -> Path:
    """Where a file is, which exists and has its size."""
    path = folder / DATA / entry["name"]
    if not path.exists():
        raise FileNotFoundError(
            f"The index {str(folder)!r} lacks its file {DATA}/{path.name}. "
            "Restore it, or build the index again."
        )
    size = path.stat().st_size
    if size != entry["bytes"]:
        raise _damaged(path, f"it has {size} bytes, not {entry['bytes']}")
    return path


def _damaged(path: Path, how: str) -> IndexFileError:
    return IndexFileError(
        f"The index file {str(path)!r} is damaged: {how}. Restore it from a "
        "copy, or build the index again."
    )


def _is_ours(folder: Path) -> bool:
    names = {x.name for x in folder.iterdir()}
    return MANIFEST in names or names <= {DATA, LOCK}


def _version(folder: Path) -> int:
    """The current version; 0 without any that can be read."""
    try:
        return int(read(folder)["version"])
    except (FileNotFoundError, IndexFileError):
        return 0


def _check_expected(folder: Path, current: int, expected: int | None) -> None:
    if expected is None or current == expected:
        is_new = expected == 0 and (folder / MANIFEST).exists()
        if not is_new:
            return
    raise FileExistsError(
        f"`path` of Index.save must hold version {expected or 'none'} of the "
        f"index. Received: path={str(folder)!r}, which holds version "
        f"{current or 'unknown'}: it was written by another. Use "
        "overwrite=True to replace it, or another path."
    )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time; the system ends the lock of a killed one."""
    try:
        import fcntl
    except ImportError:  # Not a POSIX system: the last writer wins.
        yield
        return
    with (folder / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write_new(
    folder: Path, content: Config, sources: Mapping[str, Source], version: int
) -> Path:
    """Writes all of a version; returns its manifest, to be put in place."""
    with ThreadPoolExecutor() as pool:
        files, syncs = _write_files(folder, sources, pool)
        manifest = _write_manifest(folder, {**content, "files": files}, version)
        # Together: to wait for the disk is most of what a small index costs.
        syncs += [pool.submit(_sync, x) for x in (manifest, folder / DATA)]
        for sync in syncs:
            sync.result()
    return manifest


def _write_files(
    folder: Path, sources: Mapping[str, Source], pool: Executor
) -> tuple[Config, list[Future[None]]]:
    """Writes files; while the disk takes one, the next is made.

    Returns:
        What the manifest says of them, and when they are on the disk.
    """
    paths: dict[str, Path] = {}
    syncs, digests = [], {}
    for name, source in sources.items():
        if isinstance(source, np.ndarray):
            digests[name] = pool.submit(xxh3_128_hexdigest, source.data)
        path = paths[name] = _write_file(folder, name, source)
        syncs.append(pool.submit(_sync, path))
        if name not in digests:
            digests[name] = pool.submit(_digest_of_file, path)
    files = {
        name: {
            "name": path.name,
            "bytes": path.stat().st_size,
            "xxh3_128": digests[name].result(),
        }
        for name, path in paths.items()
    }
    return files, syncs


def _write_file(folder: Path, name: str, source: Source) -> Path:
    path = folder / DATA / f"{secrets.token_hex(8)}-{name}"
    if isinstance(source, np.ndarray):
        path.write_bytes(source.data)
    else:
        source(path)
    return path


def _write_manifest(folder: Path, content: Config, version: int) -> Path:
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": version,
        **content,
    }
    manifest["checksum"] = _checksum(manifest)
    path = folder / DATA / f"{secrets.token_hex(8)}-{MANIFEST}"
    text = json.dumps(manifest, indent=1, allow_nan=False)
    path.write_text(text, encoding="utf-8")
    return path


def _remove_unused(folder: Path) -> None:
    try:
        used = {x["name"] for x in read(folder)["files"].values()}
    except FileNotFoundError:
        used = set()
    except IndexFileError:
        return  # There may be something to restore.
    for path in (folder / DATA).iterdir():
        if path.name not in used:
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest_of_file(path: Path) -> str:
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        return xxh3_128_hexdigest(content)


def _checksum(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True, allow_nan=False)
    return xxh3_128_hexdigest(text.encode())
