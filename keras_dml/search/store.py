"""Store: the folder of an index, replaced whole and checked when read.

    DIR/index.json     the manifest: settings of the index, and its files
    DIR/data/…         those files, under names that are never reused
    DIR/.lock          held by the one process that writes

A save writes new files first and then replaces the manifest, which is atomic:
readers see the old version or the new one. Afterwards it removes the files of
the old version and of killed saves, which it knows by their names. A folder
that holds anything else raises an error.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le

from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.model.identity import ModelIdentity
from keras_dml.search.engine import (
    EXACT,
    Engine,
    IndexSpec,
    MetricName,
    Similarity,
    make_index,
)
from keras_dml.search.recall import Recall
from keras_dml.search.rows import RowTable, parse_ids
from keras_dml.utils.files import (
    LOCK,
    Document,
    OtherDocument,
    check_regular,
    digest,
    file_lock,
    sync,
)

FORMAT = "keras_dml.search"

VECTORS, ROWS, MODEL = PARTS = "vectors.faiss", "rows.json", "model.keras"

MANIFEST, DATA = "index.json", "data"

FILE_NAME = re.compile(
    "[0-9a-f]{16}-(" + "|".join(map(re.escape, (*PARTS, MANIFEST))) + ")"
)
"""Names of the files that saves write: a random token, and the part."""


class IndexFileError(ValueError):
    """A folder that is not an index, or a damaged index."""


@dataclass(frozen=True)
class FileEntry:
    """A file of an index: its name in the folder, its size and checksum."""

    name: str
    bytes: int
    xxh3_128: str


@dataclass(frozen=True)
class Content:
    """Everything of an index but its vectors and rows; see `Index`."""

    dim: Annotated[int, Ge(1), Le(2**18)]
    rows: Annotated[int, Ge(0)]  # Their number, N.
    next_id: Annotated[int, Le(2**63 - 1)]
    hidden: tuple[int, ...]  # Ids of vectors that could not be removed.
    factory: str
    parameters: str
    recall: Recall | None
    threshold: AnyThreshold | None
    model: ModelIdentity | None
    faiss: str  # The version that wrote it.
    metric: MetricName

    @property
    def spec(self) -> IndexSpec:
        """Similarity, factory string and parameters."""
        return IndexSpec(Similarity(self.metric), self.factory, self.parameters)


@dataclass(frozen=True)
class Manifest:
    """The content of an index, and its files by part."""

    content: Content
    files: Mapping[str, FileEntry]

    @property
    def used(self) -> set[str]:
        """Names of the files that the index consists of."""
        return {entry.name for entry in self.files.values()}

    @property
    def version(self) -> str:
        """The token in the names of the files, which identifies a version."""
        return self.files[VECTORS].name.partition("-")[0]

    def check(self) -> None:
        """Raises ValueError if values are invalid, whose types are right."""
        parts = sorted(self.files)
        if not {VECTORS, ROWS} <= set(parts) <= set(PARTS):
            raise ValueError(f"its files are {parts}")
        for name in self.used:
            if not FILE_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name given by Index.save")
        if any(x.bytes < 1 for x in self.files.values()):
            raise ValueError("one of its files is empty")
        about = self.content
        if about.rows + len(about.hidden) > about.next_id:
            raise ValueError(
                f"rows={about.rows} with {len(about.hidden)} hidden and "
                f"next_id={about.next_id}"
            )
        if about.model is None:
            if MODEL in self.files:
                raise ValueError("it does not identify its model")
        elif [len(x) for x in about.model.test_embeddings] != [about.dim] * 2:
            raise ValueError("its model has embeddings of a different size")


_DOCUMENT = Document(Manifest, FORMAT)

Write = Callable[[Path], object]


def folder_at(path: str | os.PathLike[str]) -> Path:
    """The folder at a path, with links resolved except for its own name."""
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
    """Writes an index as the current version of a folder; returns its version.

    It replaces only this `version`, or any if `overwrite`.
    """
    # Not even a lock is made beside foreign files. If there is one, another
    # process may be writing, whose unfinished files look foreign.
    if not _has_lock(folder):
        try:
            _inspect(folder)
        except FileExistsError:
            if not _has_lock(folder):  # None was made in the meantime.
                raise
    (folder / DATA).mkdir(parents=True, exist_ok=True)
    with file_lock(folder / LOCK):
        current = _inspect(folder)
        if current and not overwrite and current.version != version:
            raise FileExistsError(
                "`path` of Index.save must be new, or hold the version that "
                "this index was loaded from or saved as. Received: "
                f"path={str(folder)!r}, which holds another version or another "
                "index. Use overwrite=True to replace it, or another path."
            )
        try:
            _clean(folder)
            return _write(folder, content, writers).version
        finally:
            _clean(folder)


def load(
    folder: Path, verify: bool
) -> tuple[str, Content, Engine, RowTable, Path | None]:
    """Reads version, content, vectors, rows and the model's path."""
    manifest = read(folder)
    while True:
        try:
            return manifest.version, *_load(folder, manifest, verify)
        except (FileNotFoundError, IndexFileError):
            # Another process may have replaced the version in the meantime;
            # faiss reports a missing file as one that cannot be read.
            newer = read(folder)
            if newer == manifest:
                raise
            manifest = newer


def read(folder: Path) -> Manifest:
    """Reads the manifest of an index; IndexFileError if it is damaged."""
    path = folder / MANIFEST
    try:
        check_regular(path)
        manifest = _DOCUMENT.read(path.read_text(encoding="utf-8"))
        manifest.check()
        return manifest
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"There is no index in {str(folder)!r}: it has no {MANIFEST}. Use "
            "`keras-dml index` or `Index.save` to write one."
        ) from None
    except OtherDocument as error:
        raise IndexFileError(
            f"{str(path)!r} does not belong to a keras_dml index."
            if error.version is None
            else f"{str(path)!r} must be of format version 1. Received: "
            f"{error}. Use the version of keras_dml that wrote it, or build "
            "the index again."
        ) from None
    except (ValueError, RecursionError) as error:
        raise _damage(path, error) from None


def _write(
    folder: Path, content: Content, writers: Mapping[str, Write]
) -> Manifest:
    token = secrets.token_hex(8)
    files = {
        part: _write_file(folder, f"{token}-{part}", write)
        for part, write in writers.items()
    }
    manifest = Manifest(content, files)
    path = folder / DATA / f"{token}-{MANIFEST}"
    path.write_text(_DOCUMENT.write(manifest), encoding="utf-8")
    sync(path)
    sync(folder / DATA)
    os.replace(path, folder / MANIFEST)
    sync(folder)
    return manifest


def _write_file(folder: Path, name: str, write: Write) -> FileEntry:
    path = folder / DATA / name
    write(path)
    # The checksum keeps a core busy while the disk is waited for.
    with ThreadPoolExecutor(1) as pool:
        synced = pool.submit(sync, path)
        entry = FileEntry(name, path.stat().st_size, digest(path))
        synced.result()
    return entry


def _clean(folder: Path) -> None:
    """Removes files of old and unfinished versions."""
    used = read(folder).used if is_index(folder) else set()
    for path in (folder / DATA).iterdir():
        if FILE_NAME.fullmatch(path.name) and path.name not in used:
            path.unlink()


def _has_lock(folder: Path) -> bool:
    lock = folder / LOCK
    return lock.is_file() and not lock.is_symlink()


def _inspect(folder: Path) -> Manifest | None:
    """The manifest, or None; raises an error if there are foreign files."""
    data, path = folder / DATA, folder / MANIFEST
    try:
        for link in (folder, data, path, folder / LOCK):
            if link.is_symlink():
                raise ValueError(
                    f"{str(link)!r} is a link, which is not followed"
                )
        if not folder.exists():
            return None
        manifest = read(folder) if path.exists() else None
        foreign = {x.name for x in folder.iterdir()} - {MANIFEST, DATA, LOCK}
        used = manifest.used if manifest else set()
        has_lock = _has_lock(folder)  # Without one, no save has been here.
        for file in data.iterdir() if data.exists() else ():
            name = file.name
            is_ours = name in used or (has_lock and FILE_NAME.fullmatch(name))
            if not is_ours or file.is_symlink() or not file.is_file():
                foreign.add(f"{DATA}/{name}")
        if foreign:
            names = ", ".join(sorted(foreign)[:3])
            raise ValueError(f"it holds other files: {names}")
        return manifest
    except (OSError, ValueError) as error:
        problem = str(error).removesuffix(".")
        raise FileExistsError(
            "`path` of Index.save must be a new folder, or a folder that holds "
            f"an index and nothing else. Received: path={str(folder)!r}. The "
            f"problem: {problem}. Nothing was written. Use another path, or "
            "move the other files away."
        ) from None


def _load(
    folder: Path, manifest: Manifest, verify: bool
) -> tuple[Content, Engine, RowTable, Path | None]:
    content, paths = manifest.content, _paths(folder, manifest)
    # Vectors come first, as the size of their file limits their number.
    with (
        _verifying(paths, manifest.files if verify else {}),
        _parsing(path := paths[VECTORS]),
    ):
        vectors = read_vectors(path, content)
    with _parsing(path := paths[ROWS]):
        rows = RowTable.read(path, content.rows, content.next_id)
    with _parsing(folder / MANIFEST):
        ids, hidden = rows.ids, parse_ids([*content.hidden], content.next_id)
        if len(hidden):
            ids = np.sort(np.concatenate([ids, hidden]))
            if content.factory == EXACT or not np.diff(ids).all():
                raise ValueError("its hidden vectors are not hidden")
        engine = Engine(vectors, content.spec, ids, hidden)
        if (stored := engine.stored_ids()) is not None:
            if not np.array_equal(np.sort(stored), ids):
                raise ValueError("its vectors have the ids of other rows")
    return content, engine, rows, paths.get(MODEL)


@contextlib.contextmanager
def _parsing(path: Path) -> Iterator[None]:
    """Names the file in errors of parsing it."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise _damage(path, error) from None


def _paths(folder: Path, manifest: Manifest) -> dict[str, Path]:
    """Paths of an index's files, whose existence and sizes are checked."""
    paths = {x: folder / DATA / y.name for x, y in manifest.files.items()}
    for part, path in paths.items():
        if not path.is_file():
            raise FileNotFoundError(
                f"The index {str(folder)!r} lacks the file {DATA}/{path.name}. "
                "Restore it, or build the index again."
            )
        size, expected = path.stat().st_size, manifest.files[part].bytes
        if size != expected:
            raise _damage(path, f"it has {size} bytes instead of {expected}")
    return paths


@contextlib.contextmanager
def _verifying(
    paths: Mapping[str, Path], files: Mapping[str, FileEntry]
) -> Iterator[None]:
    """Verifies checksums while a block reads; mismatches precede its errors."""
    with ThreadPoolExecutor(1) as pool:
        digests = pool.map(digest, [paths[part] for part in files])
        try:
            yield
        finally:
            for part, checksum in zip(files, digests, strict=True):
                if checksum != files[part].xxh3_128:
                    raise _damage(
                        paths[part], "its checksum is wrong"
                    ) from None


def _damage(path: Path, reason: object) -> IndexFileError:
    return IndexFileError(
        f"The index file {str(path)!r} is damaged: {reason}. Restore it from a "
        "copy, or build the index again."
    )


def read_vectors(path: Path, content: Content) -> Any:
    """Reads a faiss index of known kind, size and metric, or raises ValueError.

    Inner structures, such as the links of a graph, are not checked: checksums
    find accidents, and an index is read from people you trust.
    """
    import faiss

    factory, dim = content.factory, content.dim
    size, count = path.stat().st_size, content.rows + len(content.hidden)
    limit = getattr(faiss, "set_deserialization_vector_byte_limit", None)
    before = limit and faiss.get_deserialization_vector_byte_limit()
    # Tables that a product quantizer computes may be larger than the file.
    flags = faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
    try:
        if limit:
            limit(size)  # No vector can be larger than the file.
        index = faiss.read_index(os.fspath(path), flags)
    except TypeError:  # faiss opens only names in UTF-8.
        with path.open("rb") as file:
            reader = faiss.PyCallbackIOReader(file.read)
            index = faiss.read_index(reader, flags)
    except RuntimeError as error:
        version = faiss.__version__
        raise ValueError(f"faiss {version} cannot read it ({error})") from None
    finally:
        if limit:
            limit(before)
    shape = (index.ntotal, index.d)
    if shape != (count, dim):
        raise ValueError(f"it has vectors of shape {shape}, not {count, dim}")
    if not _fits(factory, dim, size):
        raise ValueError(f"{factory!r} does not match the size of the file")
    # faiss deletes parts together with their index, so both stay referenced.
    expected_index = make_index(dim, content.spec)
    parts, expected = _parts(index, count), _parts(expected_index, count)
    kinds, expected_kinds = (
        [_kind(x) for x, _ in y] for y in (parts, expected)
    )
    if kinds != expected_kinds or not index.is_trained:
        raise ValueError(f"it is not a trained index {factory!r}")
    for part, part_count in parts:
        if part.ntotal != part_count:
            raise ValueError("its parts have different numbers of vectors")
        if isinstance(part, faiss.IndexIVFPQ):
            part.precompute_table()
    return index


def _fits(factory: str, dim: int, size: int) -> bool:
    """Whether an index needs no more memory than a file of this size allows."""
    numbers = [int(x) for x in re.findall(r"\d+", factory[:200])]
    bits = [int(x) for x in re.findall(r"x(\d+)", factory[:200])]
    return (
        len(factory) < 200
        and max(numbers, default=0) <= max(size, 2**16)
        and max(bits, default=0) <= 24
        and 4 * dim * 2 ** max(bits, default=8) <= max(size, 2**28)
    )


def _parts(index: Any, count: int) -> list[tuple[Any, int]]:
    """An index and its inner indexes, with the number of vectors of each."""
    import faiss

    index = faiss.downcast_index(index)
    parts = [(index, count)]
    for name in ("index", "base_index", "refine_index", "storage"):
        if hasattr(index, name):
            parts += _parts(getattr(index, name), count)
    if hasattr(index, "quantizer"):
        parts += _parts(index.quantizer, index.nlist)
    return parts


def _kind(index: Any) -> tuple[Any, ...]:
    names = ("d", "metric_type", "nlist", "code_size", "qb")
    return (
        # The type of a flat index may or may not end in its metric.
        re.sub("(IP|L2)$", "", type(index).__name__),
        *(getattr(index, name, None) for name in names),
        # faiss would trust a map of positions in the file.
        hasattr(index, "direct_map") and index.direct_map.type,
    )
