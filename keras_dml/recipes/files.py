"""Reading and validating recipes, and what is wrong before data are read."""

import os
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from keras_dml.recipes.included import locate
from keras_dml.recipes.inheritance import (
    TOO_DEEP,
    RecipeError,
    RecipeFiles,
    merge,
    parse_yaml,
    with_origin,
)
from keras_dml.recipes.method_sections import recipe_type
from keras_dml.recipes.schema import Recipe
from keras_dml.utils.arguments import did_you_mean

_short = reprlib.Repr()
_short.maxlevel = 4
_short.maxdict = _short.maxlist = _short.maxtuple = 20
_short.maxstring = _short.maxother = 300
_shown = _short.repr
"""A value as an error shows it, which is not the whole of a file."""


def load(
    path: str | os.PathLike[str], settings: tuple[str, ...] = ()
) -> Recipe:
    """Loads a recipe.

    A recipe can name another one as its `base:`, by path relative to its own
    folder or by the name of an included recipe, and then contains only what
    differs, see `merge`. In a list of bases, each one overrides those before
    it.

    Args:
        path: A YAML file, or the name of an included recipe, such as
            "glyphs/diva" (see `names`). An existing file takes precedence.
        settings: Settings that override the file, as "key.key=value", where the
            value is YAML.

    Returns:
        The complete recipe.

    Raises:
        RecipeError: If a file is missing, not YAML or larger than 1 MiB, if
            bases are nested more than 16 deep or form a cycle, if a key is
            unknown (the message suggests the nearest known one), or if a value
            is invalid.
    """
    content = RecipeFiles().read(locate(path))
    for setting in settings:
        content = merge(
            content, with_origin(parse_setting(setting), is_included=False)
        )
    return validate(content, os.fspath(path))


def validate(content: dict[str, Any], source: str) -> Recipe:
    """The recipe described by a mapping, validated; see `load`."""
    try:
        schema = recipe_type(content)
        return schema.model_validate(content)
    except ValidationError as error:
        problems = [_explain(dict(e), schema) for e in error.errors()]
        problems += missing_files(content)
    except ValueError as error:
        problems = [f"`method.name`: {error}"]
    except RecursionError:
        problems = [TOO_DEEP]
    raise RecipeError(
        f"The recipe {source} cannot be used:\n  " + "\n  ".join(problems)
    ) from None


def dump(recipe: Recipe) -> str:
    """The recipe as YAML that `load` can read."""
    return yaml.safe_dump(
        recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True
    )


def parse_setting(setting: str) -> dict[str, Any]:
    """ "a.b=c" → {"a": {"b": c}}.

    Raises:
        RecipeError: If there is no "=", or the value is not YAML.
    """
    keys, separator, text = setting.partition("=")
    if not separator or not keys:
        raise RecipeError(
            "A setting must have the form key.key=value. Received: "
            f"{setting!r}. Use for instance epochs=4 or method.num_learners=8."
        )
    try:
        value: Any = parse_yaml(text)
        for key in reversed(keys.split(".")):
            value = {key: value}
    except ValueError as error:
        raise RecipeError(
            f"The setting {setting[:200]!r} cannot be read: {error}."
        ) from None
    return dict(value)


_SECTION = "a section, with keys and values"
_SHAPES = {
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "tuple_type": "a list",
}
"""What YAML's users call what pydantic has other words for."""


def _explain(error: dict[str, Any], schema: type[Recipe]) -> str:
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
