"""Hashing: the bytes of examples, and a digest that identifies a set."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_dml.data.arrayset import ArraySet
from keras_dml.data.examples import Examples, any_labels_of
from keras_dml.data.imageset import ImageSet
from keras_dml.utils import files
from keras_dml.utils.lazy_rows import ArrayRows
from keras_dml.utils.types import Rows
from keras_dml.utils.vectors import blocks

_BLOCK_ROWS = 1024

_MIDDLE_BYTES = 512
"""Bytes in the middle of a file, in which files of one size mostly differ."""


def contents(examples: Examples) -> Iterator[bytes]:
    """The bytes of the inputs of examples, in blocks that fit into memory."""
    for rows in blocks(len(examples), _BLOCK_ROWS):
        inputs = examples.inputs(np.arange(rows.start, rows.stop))
        yield from contents_of_arrays(inputs)


def contents_of_arrays(structure: Any) -> Iterator[bytes]:
    """The bytes of a structure's arrays, with paths, types and shapes."""
    for path, array in keras.tree.flatten_with_path(structure):
        yield f"{path}{array.dtype.str}{array.shape}".encode()
        yield (
            repr(array.tolist()).encode()
            if array.dtype.hasobject
            else array.tobytes()
        )


def equal_contents(*sets: Examples) -> Rows:
    """Numbers of the examples of some sets, (N,): the same for equal contents.

    Images are equal if their files have the same bytes, and the same box.
    """
    images = [x for x in sets if isinstance(x, ImageSet)]
    file_keys = _file_keys({path for x in images for path in x.paths or ()})
    keys: list[Any] = []
    for examples in sets:
        if isinstance(examples, ImageSet) and examples.paths is not None:
            boxes: Any = repeat(None)
            if examples.boxes is not None:
                boxes = map(bytes, examples.boxes)
            keys += zip(map(file_keys.get, examples.paths), boxes, strict=False)
            continue
        for row in range(len(examples)):
            one = contents_of_arrays(examples.inputs([row]))
            keys.append(hashlib.sha256(b"".join(one)).digest())
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(x, len(numbers)) for x in keys])


def _file_keys(paths: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Keys that are equal for files with the same bytes.

    Only files of equal sizes are read, and whole only if their middles agree.
    """
    keys: dict[str, tuple[Any, ...]] = dict.fromkeys(paths, ())
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for read in (os.path.getsize, _middle, files.digest):
            counts = Counter(keys.values())
            alike = [path for path, key in keys.items() if counts[key] > 1]
            for path, part in zip(
                alike,
                pool.map(partial(_read_or_name, read), alike),
                strict=True,
            ):
                keys[path] = (*keys[path], part)
    return keys


def _middle(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(file.seek(0, os.SEEK_END) // 2)
        return file.read(_MIDDLE_BYTES)


def _read_or_name(read: Callable[[Any], Any], path: str) -> Any:
    """The result of `read`, or the path of a file that cannot be read."""
    try:
        return read(Path(path))
    except OSError:
        return path


def digest(examples: Examples) -> str:
    """The SHA-256 of a set's examples, their order and all of their labels.

    Examples are identified by their ids in the source; otherwise, files are
    identified by their paths below their common folder, and pixels and arrays
    by their values. So a set that is moved to another folder keeps its digest.
    """
    labels = any_labels_of(examples, "examples.labels", "digest")
    if examples.has_label_sets:
        hashed = hashlib.sha256(str(labels.shape).encode() + labels.tobytes())
    else:
        hashed = hashlib.sha256(labels.astype("<i8").tobytes())
    names = examples.ids
    if names is None and isinstance(examples, ImageSet) and examples.paths:
        paths = [os.path.abspath(x) for x in examples.paths]
        root = os.path.commonpath(map(os.path.dirname, paths))
        names = tuple(os.path.relpath(x, root) for x in paths)
    if names is not None:
        hashed.update(b"".join(name.encode() + b"\0" for name in names))
    elif isinstance(examples, ImageSet) and examples.pixels is not None:
        hashed.update(str(examples.pixels.shape).encode())
        hashed.update(examples.pixels.tobytes())
    else:
        for part in contents(examples):
            hashed.update(part)
    return hashed.hexdigest()


def same_examples(a: Any, b: Any) -> bool:
    """Whether two values are the same object, files or arrays of examples."""
    if isinstance(a, ImageSet) and isinstance(b, ImageSet):
        first, second = (np.asarray(x.boxes) for x in (a, b))  # May be None.
        same = a.paths == b.paths and np.array_equal(first, second)
        return same and (bool(a.paths) or same_array(a.images, b.images))
    if isinstance(a, ArraySet) and isinstance(b, ArraySet):
        return set(a.columns) == set(b.columns) and all(
            x is y
            or (
                isinstance(x, ArrayRows)
                and isinstance(y, ArrayRows)
                and same_array(x.source, y.source)
            )
            for x, y in ((x, b.columns[k]) for k, x in a.columns.items())
        )
    return same_array(a, b)


def same_array(a: Any, b: Any) -> bool:
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return a is b
    first, second = (
        (x.__array_interface__["data"][0], x.shape, x.strides, x.dtype)
        for x in (a, b)
    )
    return first == second
