"""faiss indexes that lie in memory of NumPy's.

NumPy asks the system for large pages, and faiss does not: searches that jump
about in memory take a fifth less time, and making an index copies nothing.
But such an index must not be changed: faiss would end the process.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from keras_dml.search.faiss_types import library
from keras_dml.utils.types import FloatArray

Memory: TypeAlias = npt.NDArray[np.uint8]
"""An index as faiss writes it into a file."""

_LINE = 64

_START = 32
"""Where in a line of the cache the vectors of an exact index start. Then a
vector ends in the line in which the next one starts: one query of a million
vectors takes 6 % less time than where malloc puts them (at 16), and 11 % less
than at 0 (AMD EPYC; batches take the same)."""

_FLAT_HEADER = 45
"""Bytes before the vectors of an exact index."""

_COUNT = slice(8, 16)
"""Where an index says how many vectors it has."""


def room(size: int) -> Memory:
    """Memory to be filled, with vectors of an exact index at `_START`."""
    memory = np.empty(size + _LINE, np.uint8)
    start = (_START - memory.ctypes.data - _FLAT_HEADER) % _LINE
    return memory[start : start + size]


def flat_room(count: int, dim: int) -> tuple[Memory, FloatArray]:
    """Memory of an exact index, and its vectors, (N, D), to be filled."""
    faiss = library()
    header = faiss.serialize_index(faiss.IndexFlatIP(dim))
    # The number of floats, which come next, is the last that it says.
    header[_COUNT] = _as_bytes(count)
    header[-8:] = _as_bytes(count * dim)
    memory = room(_FLAT_HEADER + 4 * count * dim)
    memory[:_FLAT_HEADER] = header
    vectors = memory[_FLAT_HEADER:].view(np.float32)
    return memory, vectors.reshape(count, dim)


def index_in(memory: Memory) -> Any:
    """The faiss index in `memory`, which must not be changed.

    Raises:
        RuntimeError: If this version of faiss cannot read it.
    """
    faiss = library()
    reader = faiss.ZeroCopyIOReader(faiss.swig_ptr(memory), len(memory))
    index = faiss.read_index(reader)
    # As faiss keeps what an index needs: as long as the index.
    index.referenced_objects = [memory]
    return index


def own_index(memory: Memory) -> Any:
    """A copy of the index in `memory`, in memory of faiss's own."""
    position = 0

    def read(size: int) -> bytes:
        nonlocal position
        piece = memory[position : position + size].tobytes()
        position += len(piece)
        return piece

    faiss = library()
    return faiss.read_index(faiss.PyCallbackIOReader(read))


def _as_bytes(number: int) -> Memory:
    return np.array([number], "<i8").view(np.uint8)
