"""Embeddings in a file of their raw numbers, mapped into memory."""

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

# NumPy's type of a file that is mapped, of any shape and numbers.
_Map = np.memmap


class MappedEmbeddings(_Map):
    """Embeddings, (N, D) float32, that are read from a file when needed.

    They are an array of NumPy, read-only. A pickle of them has the file's
    name, and not what is in it: another process maps the same file, or, on
    another machine, reads the shards again. Parts of them, `x[2:5]`, are
    pickled as other arrays are.
    """

    _origin: tuple[str, str] | None = None

    @classmethod
    def of(
        cls, path: Path, shape: tuple[int, int], folder: str
    ) -> "MappedEmbeddings":
        """The embeddings in a file that `spooled` made from a folder."""
        mapped = cls(path, np.float32, "r", shape=shape)
        mapped._origin = folder, str(path)
        return mapped

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool = False
    ) -> Any:
        # What is computed from them is in memory.
        plain = np.asarray(array)
        return plain[()] if return_scalar or not plain.shape else plain

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(found, MappedEmbeddings):
            return found.view(np.ndarray)
        return found

    def __reduce__(self) -> Any:
        if self._origin is None:  # A view, such as of other numbers.
            return np.array(self).__reduce__()
        folder, path = self._origin
        return _again, (folder, path, self.shape)


def spooled(
    shards: "EmbeddingShards", cache: str | os.PathLike[str] | None
) -> MappedEmbeddings:
    """The embeddings of all shards in one file, written once.

    Args:
        shards: The shards, of which one at a time is in memory.
        cache: Folder of the file. None: a temporary folder that is removed
            when this process ends.

    Raises:
        ValueError: If there are no rows, or a shard is damaged.
        OSError: If there is no room for the file.
    """
    count, dim = shards.shape
    if not count:
        raise ValueError(
            f"The embeddings in {shards.folder!r} must be at least one to be "
            f"mapped. Received: none; {len(shards.bad)} examples were bad."
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
    except FileNotFoundError:  # A shard is gone, which it names.
        raise
    except OSError as error:
        raise OSError(
            error.errno,
            f"The embeddings of {shards.folder!r} take {size:,} bytes in a "
            f"file to be mapped, which cannot be written: {error.strerror}. "
            "Give a folder with room as `cache`, or set TMPDIR",
            str(path),
        ) from error


def _again(folder: str, path: str, shape: tuple[int, int]) -> MappedEmbeddings:
    """The embeddings that were pickled, where the pickle is read."""
    if Path(path).is_file():
        return MappedEmbeddings.of(Path(path), shape, folder)
    from keras_dml.embedding.shards import EmbeddingShards

    return spooled(EmbeddingShards(folder), None)


@functools.cache
def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="keras_dml-")
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # And no fork of it.
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder)
