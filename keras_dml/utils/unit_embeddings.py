"""Unit embeddings: any vectors, brought to length one in threads."""

from typing import Any

import numpy as np

from keras_dml.utils.arrays import as_embeddings
from keras_dml.utils.types import FloatArray
from keras_dml.utils.vectors import blocks, in_threads, squares

_ELEMENTS = 2**17
"""Float64 numbers at a time: one MB stays in the cache of a core, and does not
go back to the system only to be asked for again."""


class UnitEmbeddings:
    """Embeddings that are brought to unit length when they are asked for.

    Args:
        x: (N, D) or (D,), real numbers.
        dim: D, or None if any will do.
        name: What messages call the argument.
        owner: The method whose argument it is.

    Attributes:
        shape: (N, D).

    Raises:
        ValueError: If the shape is another.
    """

    def __init__(self, x: Any, dim: int | None, name: str, owner: str) -> None:
        given = np.asarray(x)
        if given.ndim == 1 and given.size:
            given = given[None]
        width = given.shape[1] if given.ndim == 2 else 0
        if not width or width != (dim or width):
            wanted = "D" if dim is None else dim
            raise ValueError(
                f"`{name}` of {owner} must be embeddings, (N, {wanted}) or "
                f"({wanted},), or images: an ImageSet, files or uint8 "
                f"pixels. Received: {name} of shape {np.shape(x)} and dtype "
                f"{given.dtype}."
            )
        self.shape: tuple[int, int] = given.shape
        self._given = given
        self._array: FloatArray | None = None
        self._name = name
        self._owner = owner

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def array(self) -> FloatArray:
        """The unit vectors, (N, D) float32; see `write`."""
        if self._array is None:
            units = np.empty(self.shape, np.float32)
            self.write(units)
            self._array = units
        return self._array

    def write(self, out: FloatArray) -> None:
        """Writes the unit vectors, (N, D) float32.

        Raises:
            ValueError: If a row is not finite or zero.
        """
        if not len(self):
            return
        given = narrow = self._given
        if given.dtype != np.float32:
            given = as_embeddings(given, self._name, self._owner)
            with np.errstate(over="ignore"):
                narrow = given.astype(np.float32)

        def normalize(rows: slice) -> None:
            # Squares of float32 stay within the range of float64.
            wide = narrow[rows].astype(np.float64)
            norms = np.sqrt(squares(wide))
            # A minimum of NaN is NaN.
            if not (norms.min() > 0 and norms.max() < np.inf):
                bad = np.argmin((norms > 0) & (norms < np.inf))
                raise self._refusal(given, rows.start + int(bad))
            wide /= norms[:, None]
            out[rows] = wide

        count, dim = self.shape
        height = max(1, _ELEMENTS // dim)
        if count <= height:
            normalize(slice(0, count))
        else:
            in_threads(normalize, blocks(count, height))

    def _refusal(self, given: FloatArray, row: int) -> ValueError:
        # Says what is not finite.
        as_embeddings(given, self._name, self._owner)
        return ValueError(
            f"`{self._name}` of {self._owner} must have a length that float32 "
            "can hold and that is not zero. Received: "
            f"{self._name}[{row}] with numbers up to "
            f"{np.abs(given[row]).max():.3g}."
        )
