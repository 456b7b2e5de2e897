"""The identifiers that `losses.get` takes, and their losses."""

import importlib
from collections.abc import Mapping
from typing import Any

import keras

from keras_dml.losses._function_loss import FunctionLoss
from keras_dml.losses._weighted_sum import WeightedSum
from keras_dml.losses.base import LOSSES, MetricLoss
from keras_dml.losses.composite import COMPOSITES
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.serialization import deserialized


def resolve(identifier: Any) -> MetricLoss:
    """The loss described by `identifier`; see `losses.get`."""
    given = identifier
    if isinstance(given, Mapping) and "class_name" in given:
        given = deserialized("loss", given)
    if isinstance(given, MetricLoss):
        return given
    if isinstance(given, str):
        given = {"name": given}
    if isinstance(given, Mapping) and "name" in given:
        return _named(dict(given))
    if isinstance(given, list | tuple) or is_several(given):
        return WeightedSum(given)
    if isinstance(given, keras.losses.Loss) or (
        callable(given) and not isinstance(given, type)
    ):
        return FunctionLoss(given)
    raise ValueError(
        "`loss` must be a MetricLoss, its name, a dict with its name and "
        "arguments, several losses in a dict by name or a list, or a "
        f"function. Received: loss={identifier!r}.{_hint(given)} Use one of "
        f"{(*LOSSES, *COMPOSITES)}."
    )


def _named(config: dict[str, Any]) -> MetricLoss:
    name = config["name"]
    if name in COMPOSITES or (name not in LOSSES and COMPOSITES.known_as(name)):
        return COMPOSITES.resolve(config)
    module, colon, own = str(name).rpartition(":")
    if colon and len(config) == 1:
        function = _function_in(module, own)
        if function is not None:
            return FunctionLoss(function)
    return LOSSES.resolve(config)


def _function_in(module: str, name: str) -> Any:
    """A function that no registry knows; None if there is none."""
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:  # The registry says so.
        return None
    is_known = name in LOSSES or isinstance(found, type)
    return None if is_known or not callable(found) else found


def is_several(given: Any) -> bool:
    """Whether a dict without a name has losses as keys or values."""
    if not isinstance(given, Mapping) or not given:
        return False
    known = (*LOSSES, *COMPOSITES)
    return any(
        key in known
        or ":" in str(key)
        or isinstance(value, Mapping | MetricLoss | keras.losses.Loss)
        for key, value in given.items()
    )


def _hint(given: Any) -> str:
    if not isinstance(given, Mapping) or not given:
        return ""
    key = next(iter(given))
    hint = did_you_mean(key, (*LOSSES, *COMPOSITES, "name"))
    return (
        f" There is no loss {key!r}.{hint} An argument needs its loss: "
        f"{{name: NAME, {key}: {given[key]!r}}}."
    )
