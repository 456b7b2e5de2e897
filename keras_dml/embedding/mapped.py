"""Embeddings in a raw binary file that is mapped into memory."""

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Source: TypeAlias = tuple[Callable[[str], Any], str]
"""A function that reads embeddings from a folder, and the folder."""

# NumPy's type of memory-mapped files, for any shape and number format.
_Map = np.memmap


class MappedEmbeddings(_Map):
    """Embeddings, (N, D) float32, that are read from a file when needed.

    They are a read-only NumPy array. Pickles contain only the name of the file:
    another process maps the same file or, on another machine, reads the shards
    again. Slices such as `x[2:5]` are pickled like other arrays.
    """

    _origin: tuple[str, Source] | None = None

    @classmethod
    def of(
        cls, path: Path, shape: tuple[int, int], source: Source
    ) -> "MappedEmbeddings":
        """The embeddings in a file, which can be read again from a source."""
        mapped = cls(path, np.float32, "r", shape=shape)
        mapped._origin = str(path), source
        return mapped

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool = False
    ) -> Any:
        # Results of computations are in memory.
        plain = np.asarray(array)
        return plain[()] if return_scalar or not plain.shape else plain

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(found, MappedEmbeddings):
            return found.view(np.ndarray)
        return found

    def __reduce__(self) -> Any:
        if self._origin is None:  # A view, for instance of another dtype.
            return np.array(self).__reduce__()
        path, source = self._origin
        return _again, (path, self.shape, source)


def _again(path: str, shape: tuple[int, int], source: Source) -> Any:
    """Unpickles embeddings."""
    if Path(path).is_file():
        return MappedEmbeddings.of(Path(path), shape, source)
    read, folder = source
    return read(folder)


@functools.cache
def temporary_folder() -> Path:
    """A folder of this process, which is removed when it ends."""
    folder = tempfile.mkdtemp(prefix="keras_dml-")
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # Not in a fork.
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder)
