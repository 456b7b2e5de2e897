"""Messages: what is wrong with a recipe, in words of its author."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from keras_dml.recipes.inheritance import RecipeError
from keras_dml.utils.arguments import did_you_mean

_short = reprlib.Repr()
_short.maxlevel = 4
_short.maxdict = _short.maxlist = _short.maxtuple = 20
_short.maxstring = _short.maxother = 300
_shown = _short.repr
"""A value as an error shows it, which is not the whole of a file."""


_SECTION = "a section, with keys and values"
_SHAPES = {
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "tuple_type": "a list",
}
"""What YAML's users call what pydantic has other words for."""


def refusal(source: str, problems: Sequence[str]) -> RecipeError:
    """The error of a recipe with problems."""
    return RecipeError(
        f"The recipe {source} cannot be used:\n  " + "\n  ".join(problems)
    )


def mistakes(
    error: ValidationError, schema: type[BaseModel], content: Mapping[str, Any]
) -> list[str]:
    """What is wrong with a recipe, in sentences."""
    found = [_explain(dict(e), schema) for e in error.errors()]
    return found + missing_files(content)


def keys_at(location: tuple[int | str, ...], schema: type[BaseModel]) -> str:
    """The dotted key at a location of pydantic's."""
    return ".".join(_section_at(location, schema)[1])


def _explain(error: dict[str, Any], schema: type[BaseModel]) -> str:
    section, keys = _section_at(error["loc"], schema)
    kind, name, given = error["type"], ".".join(keys), error["input"]
    if kind == "extra_forbidden":
        *above, key = keys
        known = list(section.model_fields)
        return (
            f"`{name}` is not a key of {'.'.join(above) or 'a recipe'}."
            f"{did_you_mean(key, known)} Known keys: {', '.join(known)}."
        )
    if kind == "missing":
        return f"`{name}` is missing."
    if kind == "union_tag_invalid":
        tag, tags = error["ctx"]["tag"], error["ctx"]["expected_tags"]
        hint = did_you_mean(tag, tags.replace("'", "").split(", "))
        return (
            f"`{name}.name` must be one of {tags}. Received: {_shown(tag)}."
            f"{hint}"
        )
    if kind in _SHAPES:
        return f"`{name}` must be {_SHAPES[kind]}. Received: {_shown(given)}."
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    stop = "" if message.endswith("?") else "."
    return f"`{name}`: {message}{stop} Received: {_shown(given)}."


def _section_at(
    location: tuple[int | str, ...], section: type[BaseModel]
) -> tuple[type[BaseModel], list[str]]:
    """The section inside `section` that has a key, and the keys to it.

    Pydantic puts the tag of a union of sections among the keys.
    """
    keys: list[str] = []
    tagged: dict[Any, type[BaseModel]] = {}
    for key in map(str, location):
        if key in tagged:
            section, tagged = tagged[key], {}
            continue
        keys.append(key)
        if key in section.model_fields:
            annotation = section.model_fields[key].annotation
            sections = [
                x
                for x in (annotation, *get_args(annotation))
                if isinstance(x, type) and issubclass(x, BaseModel)
            ]
            if len(sections) == 1:
                (section,) = sections
            else:
                tagged = {
                    get_args(x.model_fields["name"].annotation)[0]: x
                    for x in sections
                }
    return section, keys


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

    The recipe need not be valid.
    """
    found = []
    for (section, key), way_out in _FILES.items():
        value = value_at(content, section, key)
        if isinstance(value, str) and _is_missing(key, value):
            found.append(
                f"`{section}.{key}`: {value!r} does not exist. Put it there, "
                f"or use {way_out}."
            )
    return found


def value_at(content: Mapping[str, Any], section: str, key: str) -> Any:
    """A value; None if it or its section is missing."""
    keys = content.get(section)
    return keys.get(key) if isinstance(keys, Mapping) else None


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
