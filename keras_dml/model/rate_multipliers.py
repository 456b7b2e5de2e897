"""Rate multipliers: variables with a learning rate of their own.

These are functions of a `MetricModel`, whose `rate_multipliers` select the
variables by patterns of their paths.
"""

import keras

from keras_dml.utils.patterns import check_patterns, matches


def multiplier_of(model: keras.Model, variable: keras.Variable) -> float:
    """The factor of the learning rate for a variable."""
    multipliers: dict[str, float] = model.rate_multipliers
    path = _path_of(model, variable)
    for pattern, multiplier in multipliers.items():
        if matches(pattern, path):
            return multiplier
    return 1.0


def check_multipliers(model: keras.Model) -> None:
    """Raises `ValueError` if a pattern decides on no variable."""
    paths = [_path_of(model, v) for v in model.variables]
    check_patterns(model.rate_multipliers, paths)


def _path_of(model: keras.Model, variable: keras.Variable) -> str:
    # Layers of a functional backbone do not carry its name in theirs.
    in_backbone = any(v is variable for v in model.backbone.variables)
    return f"backbone/{variable.path}" if in_backbone else variable.path
