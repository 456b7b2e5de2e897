"""Store: the folder of an index, replaced whole and checked when read.

    DIR/index.json     the manifest: what the index is, and its files
    DIR/data/…         those files, each under a name that is never reused
    DIR/.lock          held by the one process that writes

A save writes new files first and then replaces the manifest, which is atomic.
Who reads sees the old version or the new one.

Whatever a writer that is killed can leave behind has a name that the manifest
lists: files of the version before, and those whose names begin with the token
that is drawn for the next version. A save removes these and nothing else, and
refuses a folder in which there is anything else.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from keras_dml.search import faiss_kinds
from keras_dml.search.engine import EXACT, Engine
from keras_dml.search.manifest import (
    MODEL,
    ROWS,
    VECTORS,
    Content,
    FileEntry,
    IndexFileError,
    Manifest,
)
from keras_dml.search.metrics import Metric
from keras_dml.search.rows import RowTable, ascending
from keras_dml.utils.files import LOCK, check_regular, digest, locked, sync

MANIFEST, DATA = "index.json", "data"

Write = Callable[[Path], object]


def folder_at(path: str | os.PathLike[str]) -> Path:
    """The folder at a path, which is a link only if its own name is one."""
    folder = Path(os.path.abspath(path))
    return folder.parent.resolve() / folder.name


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of an index."""
    return (Path(path) / MANIFEST).exists()


def save(
    folder: Path,
    content: Content,
    writers: Mapping[str, Write],
    version: str | None,
    overwrite: bool,
) -> str:
    """Writes an index and makes it the one that counts; says its version.

    Args:
        folder: Where it is or will be.
        content: What it is.
        writers: What writes its files, by what they hold.
        version: The version that may be replaced; any if `overwrite`.
        overwrite: See `Index.save`.
    """
    # Beside other files not even a lock is made. Where there is one, another
    # process may be writing, whose files look like others before it is done.
    if not _has_lock(folder):
        try:
            _inspect(folder)
        except FileExistsError:
            if not _has_lock(folder):  # Nor was one made meanwhile.
                raise
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK):
        # At first, one without an index, which lists the files to come.
        begun = folder / MANIFEST
        current = _inspect(folder) or _write_manifest(begun, Manifest())
        if current.content and not overwrite and current.next != version:
            raise FileExistsError(
                "`path` of Index.save must be new, or hold the version that "
                "this index was loaded from or saved as. Received: "
                f"path={str(folder)!r}, which holds another version or another "
                "index. Use overwrite=True to replace it, or another path."
            )
        try:
            return _replace(folder, current, content, writers).next
        finally:
            if _clean(folder).content is None:
                (folder / MANIFEST).unlink()


def load(
    folder: Path, verify: bool
) -> tuple[str, Content, Engine, RowTable, Path | None]:
    """Version, content, vectors, rows and the model's file of an index."""
    manifest = read(folder)
    while True:
        try:
            return manifest.next, *_load(folder, manifest, verify)
        except (FileNotFoundError, IndexFileError):
            # Another process may have replaced the version meanwhile, and
            # faiss says of a missing file that it cannot be read.
            newer = read(folder)
            if newer == manifest:
                raise
            manifest = newer


def read(folder: Path) -> Manifest:
    """The manifest of an index; IndexFileError if it is damaged."""
    path = folder / MANIFEST
    try:
        check_regular(path)
        return Manifest.from_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"There is no index in {str(folder)!r}: it has no {MANIFEST}. Use "
            "`keras-dml index` or `Index.save` to write one."
        ) from None
    except IndexFileError as error:
        raise IndexFileError(f"{str(path)!r} {error}.") from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from None


def _replace(
    folder: Path,
    current: Manifest,
    content: Content,
    writers: Mapping[str, Write],
) -> Manifest:
    """Writes a version and makes it the one that counts."""
    _clean(folder)
    (folder / DATA).mkdir(exist_ok=True)
    files = {
        part: _write_file(folder, f"{current.next}-{part}", write)
        for part, write in writers.items()
    }
    path = folder / DATA / f"{current.next}-{MANIFEST}"
    new = Manifest(content, files, tuple(current.used))
    _write_manifest(path, new)
    sync(folder / DATA)
    os.replace(path, folder / MANIFEST)
    sync(folder)
    return new


def _write_file(folder: Path, name: str, write: Write) -> FileEntry:
    path = folder / DATA / name
    write(path)
    # The disk has to be waited for, and the checksum takes a processor.
    with ThreadPoolExecutor(1) as pool:
        synced = pool.submit(sync, path)
        entry = FileEntry(name, path.stat().st_size, digest(path))
        synced.result()
    return entry


def _write_manifest(path: Path, manifest: Manifest) -> Manifest:
    path.write_text(manifest.to_json(), encoding="utf-8")
    sync(path)
    return manifest


def _clean(folder: Path) -> Manifest:
    """Removes what writers left, as far as the manifest lists it."""
    manifest = read(folder)
    for name in manifest.removable - manifest.used:
        (folder / DATA / name).unlink(missing_ok=True)
    return manifest


def _has_lock(folder: Path) -> bool:
    lock = folder / LOCK
    return lock.is_file() and not lock.is_symlink()


def _inspect(folder: Path) -> Manifest | None:
    """The manifest of an index beside which there is nothing else, or None."""
    try:
        return _inspected(folder, folder / DATA, folder / MANIFEST)
    except (OSError, ValueError) as error:
        problem = str(error).removesuffix(".")
        raise FileExistsError(
            "`path` of Index.save must be a new folder, or a folder that holds "
            f"an index and nothing else. Received: path={str(folder)!r}. The "
            f"problem: {problem}. Nothing was written. Use another path, or "
            "move the other files away."
        ) from None


def _inspected(folder: Path, data: Path, path: Path) -> Manifest | None:
    for own in (folder, data, path, folder / LOCK):
        if own.is_symlink():
            raise ValueError(f"{str(own)!r} is a link, which is not followed")
    if not folder.exists():
        return None
    # A manifest that is empty was begun, and nothing else was.
    manifest = read(folder) if path.exists() and path.stat().st_size else None
    known = manifest.used | manifest.removable if manifest else set()
    foreign = {x.name for x in folder.iterdir()} - {MANIFEST, DATA, LOCK}
    for file in data.iterdir() if data.exists() else ():
        if file.name not in known or file.is_symlink() or not file.is_file():
            foreign.add(f"{DATA}/{file.name}")
    if foreign:
        some = ", ".join(sorted(foreign)[:3])
        raise ValueError(f"it holds other files: {some}")
    return manifest


def _load(
    folder: Path, manifest: Manifest, verify: bool
) -> tuple[Content, Engine, RowTable, Path | None]:
    content = manifest.content
    if content is None:
        raise FileNotFoundError(f"No save to {str(folder)!r} was completed.")
    metric = Metric(content.metric)
    paths = {x: _found(folder, entry) for x, entry in manifest.files.items()}
    # Vectors first: there are no more of them than their file can hold.
    count = content.rows + len(content.hidden)
    with (
        _verifying(paths, manifest.files if verify else {}),
        _parsing(path := paths[VECTORS]),
    ):
        vectors = faiss_kinds.read(
            path, content.dim, count, content.factory, metric.faiss_type
        )
    with _parsing(path := paths[ROWS]):
        rows = RowTable.read(path, content.rows, content.next_id)
    with _parsing(folder / MANIFEST):
        engine = _engine(vectors, rows, content)
    return content, engine, rows, paths.get(MODEL)


def _engine(vectors: Any, rows: RowTable, content: Content) -> Engine:
    ids = rows.ids
    if content.hidden:
        hidden = ascending(list(content.hidden), content.next_id)
        ids = np.sort(np.concatenate([ids, hidden]))
        if content.factory == EXACT or not np.diff(ids).all():
            raise ValueError("its hidden vectors are not hidden")
    faiss_kinds.check_ids(vectors, ids)
    metric = Metric(content.metric)
    return Engine(vectors, metric, content.factory, content.parameters, ids)


@contextlib.contextmanager
def _parsing(path: Path) -> Iterator[None]:
    """A file is plain data, maybe of a stranger: what is wrong is named."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from None


def _found(folder: Path, entry: FileEntry) -> Path:
    """The path of a file that is as long as the one that was written."""
    path = folder / DATA / entry.name
    if not path.is_file():
        raise FileNotFoundError(
            f"The index {str(folder)!r} lacks the file {DATA}/{path.name}. "
            "Restore it, or build the index again."
        )
    size = path.stat().st_size
    if size != entry.bytes:
        raise _damaged(path, f"it has {size} bytes instead of {entry.bytes}")
    return path


@contextlib.contextmanager
def _verifying(
    paths: Mapping[str, Path], files: Mapping[str, FileEntry]
) -> Iterator[None]:
    """Compares checksums while a block reads; what they say goes first."""
    with ThreadPoolExecutor(1) as pool:
        checked = [paths[part] for part in files]
        digests = pool.map(digest, checked)
        try:
            yield
        finally:
            for path, entry in zip(checked, files.values(), strict=True):
                if next(digests) != entry.xxh3_128:
                    raise _damaged(path, "its checksum is wrong") from None


def _damaged(path: Path, how: object) -> IndexFileError:
    return IndexFileError(
        f"The index file {str(path)!r} is damaged: {how}. Restore it from a "
        "copy, or build the index again."
    )
