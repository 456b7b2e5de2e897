"""When callbacks do what is too much for every epoch."""

from typing import Any, overload

import numpy as np
import numpy.typing as npt

from keras_dml.utils.types import FloatArray


@overload
def is_due(epoch: int, every: int, epochs: int) -> bool: ...


@overload
def is_due(
    epoch: FloatArray, every: int, epochs: int
) -> npt.NDArray[np.bool_]: ...


def is_due(epoch: Any, every: int, epochs: int) -> Any:
    """Whether an epoch ends a period, or is the last.

    Args:
        epoch: An epoch, from 0, or an array of epochs.
        every: Number of epochs in a period.
        epochs: Number of epochs of the training.
    """
    return (epoch % every == every - 1) | (epoch + 1 == epochs)
