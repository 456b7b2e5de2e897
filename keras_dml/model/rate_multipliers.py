"""Rate multipliers: variables with a learning rate of their own.

These are functions of a `MetricModel`, whose `rate_multipliers` select the
variables by patterns of their paths.
"""

import keras

from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.patterns import check_order, matches


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
    multipliers: dict[str, float] = model.rate_multipliers
    paths = [_path_of(model, v) for v in model.variables]
    parts = sorted({part for path in paths for part in path.split("/")})
    check_order("`rate_multipliers` of MetricModel", multipliers, paths)
    for pattern in multipliers:
        if not any(matches(pattern, path) for path in paths):
            raise ValueError(
                "`rate_multipliers` of MetricModel must be patterns that "
                "match the path of a variable. Received: "
                f"{pattern!r}, which matches none of {len(paths)} paths."
                f"{did_you_mean(pattern.strip('/'), parts)} Paths are, "
                f"for example, {paths[0]!r} and {paths[-1]!r}."
            )


def _path_of(model: keras.Model, variable: keras.Variable) -> str:
    # Layers of a functional backbone do not carry its name in theirs.
    in_backbone = any(v is variable for v in model.backbone.variables)
    return f"backbone/{variable.path}" if in_backbone else variable.path
