"""Embeddings in a raw binary file that is mapped into memory."""

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dml.utils.files import atomic_file

if TYPE_CHECKING:
    from keras_dml.embedding.shards import EmbeddingShards

# NumPy's type of memory-mapped files, for any shape and number format.
_Map = np.memmap


class MappedEmbeddings(_Map):
    """Embeddings, (N, D) float32, that are read from a file when needed.

    They are a read-only NumPy array. Pickles contain only the name of the file:
    another process maps the same file or, on another machine, reads the shards
    again. Slices such as `x[2:5]` are pickled like other arrays.
    """

    _origin: tuple[str, str] | None = None

    @classmethod
    def of(
        cls, path: Path, shape: tuple[int, int], folder: str
    ) -> "MappedEmbeddings":
        """The embeddings in a file that `spooled` wrote from a folder."""
        mapped = cls(path, np.float32, "r", shape=shape)
        mapped._origin = folder, str(path)
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
        folder, path = self._origin
        return _again, (folder, path, self.shape)


def spooled(
    shards: "EmbeddingShards", cache: str | os.PathLike[str] | None
) -> MappedEmbeddings:
    """The embeddings of all shards in one file, which is written only once.

    Args:
        shards: The shards, which are read one at a time.
        cache: Folder for the file. None uses a temporary folder, which is
            removed when this process ends.

    Raises:
        ValueError: If there are no rows, or a shard is damaged.
        OSError: If there is not enough space for the file.
    """
    count, dim = shards.shape
    if not count:
        raise ValueError(
            f"There must be at least one embedding in {shards.folder!r} to be "
            f"mapped. Received: none; {len(shards.bad)} examples could not be "
            "read."
        )
    folder = _temporary() if cache is None else Path(cache).expanduser()
    path = folder / f"embeddings-{shards.digest}.float32"
    size = 4 * count * dim
    if not path.is_file() or path.stat().st_size != size:
        _spool(shards, path, size)
    return MappedEmbeddings.of(path, (count, dim), shards.folder)


def _spool(shards: "EmbeddingShards", path: Path, size: int) -> None:
    try:
        with atomic_file(path) as partial, partial.open("wb") as file:
            for embeddings in shards.embeddings():
                file.write(embeddings.data)
    except FileNotFoundError:  # A shard is missing, and the error names it.
        raise
    except OSError as error:
        raise OSError(
            error.errno,
            f"The file for mapping the embeddings of {shards.folder!r}, of "
            f"{size:,} bytes, cannot be written: {error.strerror}. Set `cache` "
            "or TMPDIR to a folder with enough space",
            str(path),
        ) from error


def _again(folder: str, path: str, shape: tuple[int, int]) -> MappedEmbeddings:
    """Unpickles embeddings."""
    if Path(path).is_file():
        return MappedEmbeddings.of(Path(path), shape, folder)
    from keras_dml.embedding.shards import EmbeddingShards

    return spooled(EmbeddingShards(folder), None)


@functools.cache
def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="keras_dml-")
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # Not in a fork.
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder)
