"""Type aliases shared by the package."""

from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le, Lt

Tensor: TypeAlias = Any
"""A backend tensor, a KerasTensor, or anything `keras.ops` accepts."""

Shape: TypeAlias = tuple[Any, ...]
"""Dimensions of a tensor; None for one that is not known."""

Tensors: TypeAlias = dict[str, Tensor]
"""Tensors by name: outputs of a head, targets, terms of a loss."""

Shapes: TypeAlias = dict[str, Shape]
"""Shapes of tensors by their names."""

Config: TypeAlias = dict[str, Any]
"""What `get_config` returns and `from_config` takes."""

FloatArray: TypeAlias = npt.NDArray[np.floating[Any]]
IntArray: TypeAlias = npt.NDArray[np.integer[Any]]
Rows: TypeAlias = npt.NDArray[np.int64]
"""Row numbers of an `ImageSet`: the only identity an image has."""

Labels: TypeAlias = npt.NDArray[Any]
"""Class of every example, (N,) int64; or several, (N, C) booleans."""

Count: TypeAlias = Annotated[int, Ge(1), Le(2**31 - 1)]
"""How many there are of something. Recipes hold to the range."""

Several: TypeAlias = Annotated[int, Ge(2)]
NonNegativeInt: TypeAlias = Annotated[int, Ge(0)]
AnyInteger: TypeAlias = Annotated[int, Ge(-(2**63))]

Units: TypeAlias = Annotated[int, Ge(1), Le(2**16)]
"""How many units a layer has, or dimensions a vector."""

Side: TypeAlias = Annotated[int, Ge(1), Le(2**15)]
"""A side of an image in pixels."""

StepCount: TypeAlias = Annotated[int, Ge(1), Le(10**6)]
"""How many steps an epoch has."""

Seed: TypeAlias = Annotated[int, Ge(0), Le(2**32 - 1)]
"""What random numbers are drawn from."""

Positive: TypeAlias = Annotated[float, Gt(0)]
NonNegative: TypeAlias = Annotated[float, Ge(0)]
Share: TypeAlias = Annotated[float, Ge(0), Le(1)]
HalfToWhole: TypeAlias = Annotated[float, Ge(0.5), Le(1)]
Fraction: TypeAlias = Annotated[float, Gt(0), Lt(1)]
HeldOut: TypeAlias = Annotated[float, Ge(0), Lt(1)]
"""A share of something that is neither none of it nor all."""

Pooling: TypeAlias = Literal["avg", "max", "avg_max", "gem", "cls", "none"]
"""How features become one vector, see `layers.FeaturePooling`."""

Reduction: TypeAlias = Literal["mean", "sum"]
