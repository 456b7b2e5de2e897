"""`from_dataset`: a `tf.data` dataset, read once, as a set of examples.

On disk they are the rows of each input of the model, one after another.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, TypeAlias

import keras
import numpy as np

from keras_dml.data.arrayset import Array, ArraySet, check_finite, is_text
from keras_dml.data.as_examples import as_examples
from keras_dml.data.caching import available_memory, free_disk, megabytes
from keras_dml.data.examples import About, Examples
from keras_dml.data.fields import Names
from keras_dml.data.reading import DatasetReader, of_batches
from keras_dml.utils.arguments import checked
from keras_dml.utils.files import new_folder, sync
from keras_dml.utils.lazy_rows import ArrayRows, LazyRows, Selection
from keras_dml.utils.progress import tracked
from keras_dml.utils.tensorflow import is_dataset, tf
from keras_dml.utils.types import Rows

logger = logging.getLogger(__name__)

Storage: TypeAlias = Literal["memory", "disk"]

_OWNER = "from_dataset"

_BATCH = 256
"""Number of examples that are read at a time, if there are no batches."""

_INDEX, _LABELS = "index.json", "labels.npy"

Columns: TypeAlias = dict[str, Array]


@checked
def from_dataset(
    dataset: tf.data.Dataset | keras.utils.PyDataset,
    storage: Storage = "memory",
    path: str | os.PathLike[str] | None = None,
    *,
    names: Names | None = None,
    labeled: bool = True,
    batched: bool | None = None,
    progress: bool | None = None,
) -> Examples:
    """Reads a finite dataset once and keeps its examples.

    They can then be sampled by class, evaluated and indexed, in any order.
    After the first batch, the log (level INFO) and the progress bar report the
    total size.

    Args:
        dataset: A dataset of (x, y), batched or not. x is a tensor or a dict
            of tensors, of one shape; y is an integer or a string. A third
            item, the sample weight, is ignored. Or a `PyDataset` of these.
        storage: "memory"; or "disk": files in `path`, whose rows are read when
            they are needed. They are written next to `path` and renamed when
            complete, so nothing is left there after a failure.
        path: A new folder, for "disk". `load_examples(path)` opens it again.
        names: Class names, see `ArraySet`.
        labeled: Whether elements have a y. Examples without one can be
            embedded and indexed.
        batched: Whether elements are batches; by default they are, unless y is
            a single number or string. Required if there is no y.
        progress: Whether to show progress; None shows it in a terminal.

    Returns:
        An `ImageSet` for uint8 pixels that are kept in memory; otherwise an
        `ArraySet`.

    Raises:
        ValueError: If the dataset is empty, infinite, without y, has ragged
            elements, labels that are neither integers nor strings, or numbers
            that are not finite; if it ends with an error, or earlier than its
            cardinality; or if there is not enough memory.
        FileExistsError: If `path` exists.
        OSError: If there is not enough space for "disk".
    """
    if (path is None) == (storage == "disk"):
        raise ValueError(
            f'`path` of {_OWNER} requires storage="disk". Received: '
            f"storage={storage!r}, path={path!r}."
        )
    reader = _reader(dataset, labeled, batched)
    if path is not None:
        return _on_disk(reader, Path(path).expanduser(), names, progress)
    parts = list(_batches(reader, None, progress))
    columns = {
        name: np.concatenate([part[name] for part in parts])
        for name in parts[0]
    }
    about = reader.about(names)
    x = columns.get("", columns)
    return as_examples((x,), "dataset", _OWNER).with_labels(
        about.labels, about.names
    )


def _reader(dataset: Any, labeled: bool, batched: bool | None) -> DatasetReader:
    if isinstance(dataset, keras.utils.PyDataset):
        dataset, batched = of_batches(dataset, "dataset", _OWNER), True
    if not is_dataset(dataset):
        raise ValueError(
            f"`dataset` of {_OWNER} must be a tf.data.Dataset. Received: "
            f"{type(dataset).__name__}. For arrays, use ArraySet(x, y)."
        )
    if batched is None and not labeled:
        raise ValueError(
            f"`batched` of {_OWNER} must state whether elements are batches "
            "if there is no y. Received: labeled=False, batched=None."
        )
    reader = DatasetReader(dataset, "dataset", _OWNER, _BATCH, batched)
    if reader.is_labeled != labeled:
        form, way_out = (
            "x alone",
            "Use dataset.map(lambda x, y: x), or omit it.",
        )
        if labeled:
            form = "(x, y)"
            way_out = (
                "Use labeled=False if there are no labels; for records, use "
                "dataset.map(lambda r: (r['image'], r['label'])) or, with "
                "tfds.load, as_supervised=True."
            )
        raise ValueError(
            f"`dataset` of {_OWNER} must have elements {form} with labeled="
            f"{labeled}. Received: {dataset.element_spec}. {way_out}"
        )
    for tensor in _columns(reader.spec).values():
        if not hasattr(tensor, "shape"):
            raise ValueError(
                f"`dataset` of {_OWNER} must have an x that is a tensor or a "
                f"dict of tensors. Received: {reader.spec}."
            )
    return reader


def _columns(x: Any) -> dict[str, Any]:
    """Tensors, or their specs, by the names of the model's inputs."""
    return dict(x) if isinstance(x, dict) else {"": x}


def _batches(
    reader: DatasetReader, path: Path | None, progress: bool | None
) -> Iterator[Columns]:
    """Checked batches of columns; the first one gives the total size."""
    batches = _checked_batches(reader)
    first = next(batches)
    read = _size(first)
    total = read * (reader.count or 1)
    bound = "at most" if reader.count else "at least"
    _check_room(total, path)
    size = f"{bound} {megabytes(total)}"
    logger.info("Reading examples into %s: %s.", path or "memory", size)
    yield first
    rest = reader.count and reader.count - 1
    for batch in tracked(batches, rest, f"Reading {size}", progress):
        read += _size(batch)
        if read > total:
            _check_room(read, path)
        yield batch


def _size(batch: Columns) -> int:
    """Size of a batch in bytes; of strings, the characters count."""
    return sum(
        sum(map(len, array.flat)) if is_text(array.dtype) else array.nbytes
        for array in batch.values()
    )


def _check_room(size: int, path: Path | None) -> None:
    free = available_memory() if path is None else free_disk(path.parent)
    if size > free and path is None:
        raise ValueError(
            f"`storage` of {_OWNER} must have enough space for "
            f"{megabytes(size)} of examples. Received: "
            f'storage="memory", with {megabytes(free)} free. Use '
            'storage="disk".'
        )
    if size > free:
        raise OSError(
            f"`path` of {_OWNER} must be on a disk with space for "
            f"{megabytes(size)} of examples. Received: {str(path)!r}, "
            f"with {megabytes(free)} free. Use another disk."
        )


def _checked_batches(reader: DatasetReader) -> Iterator[Columns]:
    start, shapes = 0, None
    for x in reader:
        columns = {name: value.numpy() for name, value in _columns(x).items()}
        new_shapes = {name: array.shape[1:] for name, array in columns.items()}
        shapes = shapes or new_shapes
        if new_shapes != shapes:
            raise ValueError(
                f"`dataset` of {_OWNER} must have elements of one shape. "
                f"Received: {shapes} and {new_shapes}. Pass the "
                "`padded_shapes` of all examples to padded_batch."
            )
        rows = start + np.arange(len(next(iter(columns.values()))))
        for name, array in columns.items():
            input_name = f"x[{name!r}]" if name else "x"
            check_finite(array, f"{input_name} in `dataset`", rows, _OWNER)
        start += len(rows)
        yield columns


def _on_disk(
    reader: DatasetReader,
    path: Path,
    names: Names | None,
    progress: bool | None,
) -> ArraySet:
    if path.exists():
        raise FileExistsError(
            f"`path` of {_OWNER} must not exist. Received: {str(path)!r}, "
            "which exists. Use keras_dml.data.load_examples(path) to read "
            "it, or another path."
        )
    with new_folder(path) as folder:
        folder.mkdir()
        batches = _batches(reader, path, progress)
        columns = _write_columns(folder, list(_columns(reader.spec)), batches)
        about = reader.about(names)
        if about.labels is not None:
            np.save(folder / _LABELS, about.labels)
        index = {
            "columns": columns,
            "names": sorted(about.names.items()),
            "labeled": about.labels is not None,
        }
        (folder / _INDEX).write_text(json.dumps(index), encoding="utf-8")
        for file in folder.iterdir():
            sync(file)
    sync(path.parent)
    return load_examples(path)


def _write_columns(
    folder: Path, names: list[str], batches: Iterable[Columns]
) -> list[dict[str, Any]]:
    """Writes columns, which are numbered as names may be no names of files.

    Where each text of a column ends in its file is written as well.
    """
    count = 0
    lengths: list[list[int]] = [[] for _ in names]
    with ExitStack() as stack:
        files = [
            stack.enter_context((folder / f"{number}.rows").open("wb"))
            for number in range(len(names))
        ]
        for batch in batches:
            for name, file, of_texts in zip(names, files, lengths, strict=True):
                array = batch[name]
                if is_text(array.dtype):
                    file.writelines(array.flat)
                    of_texts += map(len, array.flat)
                else:
                    file.write(array.tobytes())
            count += len(array)
    for number, of_texts in enumerate(lengths):
        ends = np.cumsum(of_texts, dtype=np.int64)
        np.save(folder / f"{number}.ends.npy", ends)
    return [
        {
            "name": name,
            "shape": (count, *batch[name].shape[1:]),
            "dtype": batch[name].dtype.name,
        }
        for name in names
    ]


class _Texts(LazyRows):
    """Texts in a file, one after another, as bytes."""

    def __init__(self, path: Path, shape: tuple[int, ...], ends: Rows) -> None:
        super().__init__(shape, object)
        self._path, self._ends = path, ends

    def __getitem__(self, which: Selection) -> Array:
        numbers = np.arange(np.prod(self.shape)).reshape(self.shape)[which]
        texts = np.empty(numbers.shape, object)
        with self._path.open("rb") as file:
            for place, number in enumerate(numbers.flat):
                start = self._ends[number - 1] if number else 0
                file.seek(start)
                texts.flat[place] = file.read(self._ends[number] - start)
        return texts


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
            "`path` of load_examples must be a folder written by from_dataset. "
            f"Received: {os.fspath(path)!r}, which is not one or does not "
            "exist."
        )
    try:
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        labels = np.load(folder / _LABELS) if index["labeled"] else None
        columns = {
            x["name"]: _column(folder, number, tuple(x["shape"]), x["dtype"])
            for number, x in enumerate(index["columns"])
        }
        names = {int(label): name for label, name in index["names"]}
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(
            f"The examples at {os.fspath(path)!r} are damaged: {error!r}. "
            "Create them again."
        ) from error
    return ArraySet.of_columns(columns, About(labels, names, None))


def _column(
    folder: Path, number: int, shape: tuple[int, ...], dtype: str
) -> LazyRows:
    file = folder / f"{number}.rows"
    if is_text(np.dtype(dtype)):
        ends = np.load(folder / f"{number}.ends.npy", mmap_mode="r")
        return _Texts(file, shape, ends)
    return ArrayRows(np.memmap(file, np.dtype(dtype), "r", shape=shape))
