"""Losses by name."""

from typing import Any

import keras

from keras_dml.losses.base import LOSSES, MetricLoss
from keras_dml.utils.serialization import argument_names


def get(identifier: Any) -> MetricLoss:
    """The loss that `identifier` stands for.

    Args:
        identifier: A loss; a name in `LOSSES`; a dict with such a name and
            arguments, `{"name": "margin", "beta": 1.1}`; or a loss as
            serialized by Keras.

    Raises:
        ValueError: If there is no such loss or argument; the error names
            the nearest known one.
    """
    if isinstance(identifier, MetricLoss):
        return identifier
    if isinstance(identifier, str):
        identifier = {"name": identifier}
    if isinstance(identifier, dict) and "class_name" in identifier:
        return get(keras.saving.deserialize_keras_object(identifier))
    if isinstance(identifier, dict) and "name" in identifier:
        return LOSSES.make(identifier, argument_names)
    raise ValueError(
        "`loss` must be a loss of `keras_dml.losses`, its name, or a dict "
        f"with its name and arguments. Received: loss={identifier!r}. Use "
        f"one of {tuple(LOSSES)}."
    )
