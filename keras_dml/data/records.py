"""Records: arrays of a set in array_record files, one file per array."""

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from keras_dml.data.arrayset import ArraySet
from keras_dml.data.columns import Array, Column, is_text
from keras_dml.data.examples import About
from keras_dml.utils.files import sync
from keras_dml.utils.types import Rows

_INDEX, _LABELS = "index.json", "labels.npy"

_LENGTH = np.dtype("<u4")
"""Type of the length that precedes each string of a row."""


class _Records(Column):
    """Rows of a file, each a record."""

    def __init__(
        self, path: Path, name: str, shape: tuple[int, ...], dtype: Any
    ) -> None:
        self.name, self.shape, self.dtype = name, shape, np.dtype(dtype)
        module = _array_record()
        # Rows are read in any order: nothing is worth reading ahead.
        self._reader = module.ArrayRecordReader(
            str(path), "readahead_buffer_size:0"
        )
        found = self._reader.num_records()
        if found != shape[0]:
            raise ValueError(
                f"The file {str(path)!r} must contain {shape[0]:,} records. "
                f"Received: {found:,}. It is damaged; create it again."
            )

    def take(self, rows: Rows) -> Array:
        records = self._reader.read(rows.tolist()) if len(rows) else []
        shape = (len(rows), *self.shape[1:])
        if not is_text(self.dtype):
            flat = np.frombuffer(b"".join(records), self.dtype)
            return flat.reshape(shape)
        found = np.empty(int(np.prod(shape)), object)
        found[:] = [text for record in records for text in _texts(record)]
        return found.reshape(shape)


def _texts(record: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(record):
        head = start + _LENGTH.itemsize
        length = int(np.frombuffer(record[start:head], _LENGTH)[0])
        yield record[head : head + length]
        start = head + length


def _records(array: Array) -> Iterator[bytes]:
    """The record of each row."""
    if not is_text(array.dtype):
        yield from (row.tobytes() for row in np.ascontiguousarray(array))
        return
    for row in array.reshape(len(array), -1):
        texts = [x.encode() if isinstance(x, str) else x for x in row]
        yield b"".join(
            np.array(len(text), _LENGTH).tobytes() + text for text in texts
        )


class Writer:
    """Writes rows into a new folder; see `write`."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        module = _array_record()
        self._folder = folder
        self._files = {
            # A group of records is read as a whole.
            name: module.ArrayRecordWriter(str(file), "group_size:1")
            for file, name in _files(folder, names)
        }

    def add(self, columns: Mapping[str, Array]) -> None:
        """Writes rows of all columns."""
        for name, array in columns.items():
            for record in _records(array):
                self._files[name].write(record)

    def close(self) -> None:
        for file in self._files.values():
            if file.is_open():
                file.close()

    def finish(
        self, kinds: Mapping[str, Any], count: int, about: About
    ) -> None:
        """Completes the files, and writes their description."""
        self.close()
        if about.labels is not None:
            np.save(self._folder / _LABELS, about.labels)
        index = {
            "count": count,
            "columns": [
                {"name": name, "shape": shape, "dtype": np.dtype(dtype).name}
                for name, (shape, dtype) in kinds.items()
            ],
            "names": sorted(about.names.items()),
            "labeled": about.labels is not None,
        }
        path = self._folder / _INDEX
        path.write_text(json.dumps(index), encoding="utf-8")
        for file in self._folder.iterdir():
            sync(file)


@contextmanager
def write(path: Path, names: Iterable[str]) -> Iterator[Writer]:
    """Makes a complete folder of records available when the block ends.

    If the block raises an error or the process is killed, there is nothing at
    `path`.

    Raises:
        FileExistsError: If `path` exists.
    """
    if path.exists():
        raise FileExistsError(
            f"`path` of from_dataset must not exist. Received: {str(path)!r}, "
            "which exists. Use keras_dml.data.load_examples(path) to read "
            "it, or another path."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    folder.mkdir()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        writer = Writer(folder, names)
        stack.callback(writer.close)
        yield writer
        os.rename(folder, path)
    sync(path.parent)


def load_examples(path: str | os.PathLike[str]) -> ArraySet:
    """Loads examples that `from_dataset` has stored on disk.

    Args:
        path: Their folder.

    Raises:
        FileNotFoundError: If the folder does not contain examples.
        ValueError: If their files are damaged.
    """
    folder = Path(path).expanduser()
    if not (folder / _INDEX).exists():
        raise FileNotFoundError(
            "`path` of load_examples must be a folder written by "
            "from_dataset. "
            f"Received: {os.fspath(path)!r}, which is not one or does not "
            "exist."
        )
    try:
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        labels = np.load(folder / _LABELS) if index["labeled"] else None
        kinds = {
            x["name"]: ((index["count"], *x["shape"]), x["dtype"])
            for x in index["columns"]
        }
        names = {int(label): name for label, name in index["names"]}
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(
            f"The examples at {os.fspath(path)!r} are damaged: {error!r}. "
            "Create them again."
        ) from error
    columns: dict[str, Column] = {
        name: _Records(file, _called(name), *kinds[name])
        for file, name in _files(folder, kinds)
    }
    return ArraySet.of_columns(columns, About(labels, names, None))


def _called(name: str) -> str:
    return f"`x[{name!r}]`" if name else "`x`"


def _files(folder: Path, names: Iterable[str]) -> list[tuple[Path, str]]:
    # Names of inputs may be no names of files.
    return [
        (folder / f"{number}.array_record", name)
        for number, name in enumerate(names)
    ]


def _array_record() -> Any:
    # tensorflow-datasets brings it, but not for every system.
    from keras_dml.utils.arguments import import_extra

    return import_extra(
        'storage="disk" of from_dataset',
        "array_record.python.array_record_module",
        "array-record",
    )
