"""Type aliases shared by the package."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Tensor: TypeAlias = Any
"""A backend tensor, a KerasTensor, or anything `keras.ops` accepts."""

Shape: TypeAlias = tuple[Any, ...]
"""Dimensions of a tensor; None for one that is not known."""

Config: TypeAlias = dict[str, Any]
"""What `get_config` returns and `from_config` takes."""

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.integer[Any]]
Rows: TypeAlias = npt.NDArray[np.int64]
"""Row numbers of an `ImageSet`: the only identity an image has."""
