"""Problems of a recipe that are known before its data are read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from keras_dml.recipes.inheritance import RecipeError

_FILES = {
    ("data", "path"): "--set data.path=FOLDER",
    ("data", "root"): "--set data.root=FOLDER",
    ("backbone", "name"): "--set backbone.name=NAME; to download weights, for "
    "instance --set backbone.name=EfficientNetV2B0 "
    "--set backbone.weights=imagenet",
    ("backbone", "weights"): "--set backbone.weights=FILE",
    ("method", "teacher"): "--set method.teacher=RUN",
}
"""Keys that name files, and how to name others."""


def missing_files(content: Mapping[str, Any]) -> list[str]:
    """Says which files a recipe names that do not exist, and the ways out.

    Args:
        content: The recipe as a mapping, which need not be valid.
    """
    found = []
    for (section, key), way_out in _FILES.items():
        keys = content.get(section)
        value = keys.get(key) if isinstance(keys, Mapping) else None
        if isinstance(value, str) and _is_missing(key, value):
            found.append(
                f"`{section}.{key}`: {value!r} does not exist. Put it there, "
                f"or use {way_out}."
            )
    return found


def _is_missing(key: str, value: str) -> bool:
    if key == "name" and not value.endswith(".keras"):
        return False
    is_name = key == "weights" and value == "imagenet"
    return not (is_name or "\0" in value or Path(value).expanduser().exists())


def problems_of(*steps: Callable[[], Any]) -> list[Exception]:
    """The errors of steps that do not need each other's results."""
    found: list[Exception] = []
    for step in steps:
        try:
            step()
        except (ValueError, OSError, ImportError) as error:
            found.append(error)
    return found


def raise_together(name: str, problems: list[Exception]) -> None:
    """Raises a problem as it is; several as one `RecipeError`."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = "\n  ".join(map(str, problems))
        raise RecipeError(f"The recipe {name!r} cannot be trained:\n  {lines}")
