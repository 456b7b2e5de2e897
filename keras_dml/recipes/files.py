"""Files of recipes, read: inheritance, settings, clear errors."""

import os
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from keras_dml.recipes.named_sections import recipe_type
from keras_dml.recipes.schema import Recipe
from keras_dml.utils.arguments import did_you_mean


class RecipeError(ValueError):
    """A recipe that cannot be used, and what to do about it."""


def load(
    path: str | os.PathLike[str], settings: tuple[str, ...] = ()
) -> Recipe:
    """Reads a recipe.

    A recipe may name another as its `base:`, a path relative to its own
    folder, and then says only what differs, see `merge`. Of a list of bases
    each goes on top of those before it.

    Args:
        path: A YAML file.
        settings: Changes on top of the file, as "key.key=value", where
            the value is YAML.

    Returns:
        The complete recipe.

    Raises:
        RecipeError: If a file is missing or not YAML, if recipes are each
            other's base, if a key is unknown (the nearest known one is
            named), or if a value does not fit.
    """
    content = _read(Path(path), ())
    for setting in settings:
        content = merge(content, parse_setting(setting))
    return validate(content, os.fspath(path))


def validate(content: dict[str, Any], source: str) -> Recipe:
    """The recipe that a mapping describes; see `load`."""
    try:
        schema = recipe_type(content)
        return schema.model_validate(content)
    except ValidationError as error:
        problems = [_explain(dict(e), schema) for e in error.errors()]
    except ValueError as error:
        problems = [f"`method.name`: {error}"]
    raise RecipeError(
        f"The recipe {source} cannot be used:\n  " + "\n  ".join(problems)
    ) from None


def dump(recipe: Recipe) -> str:
    """The recipe as YAML that `load` reads back."""
    return yaml.safe_dump(
        recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True
    )


def merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """`base` with `change` on top; neither is altered.

    Mappings are merged, unless they say that they are about something of
    another `name`: another method has other keys. A backbone has the same
    keys by any name. Anything else is replaced.
    """
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            is_other = value.get("name", old.get("name")) != old.get("name")
            replaces = is_other and key != "backbone"
            value = value if replaces else merge(old, value)
        merged[key] = value
    return merged


def parse_setting(setting: str) -> dict[str, Any]:
    """ "a.b=c" → {"a": {"b": c}}.

    Raises:
        RecipeError: If there is no "=", or the value is not YAML.
    """
    keys, separator, text = setting.partition("=")
    if not separator or not keys:
        raise RecipeError(
            "A setting must be written key.key=value. Received: "
            f"{setting!r}. For instance epochs=4 or method.num_learners=8."
        )
    try:
        value: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(
            f"The value of the setting {setting!r} is not YAML: {error}"
        ) from None
    for key in reversed(keys.split(".")):
        value = {key: value}
    return dict(value)


def _read(path: Path, below: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in below:
        chain = " → ".join(str(p) for p in (*below, path.resolve()))
        raise RecipeError(f"Recipes are each other's base: {chain}.")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(
            f"The recipe {path} cannot be read: {error.strerror}. "
            "`keras-dml recipes` lists those that there are."
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"The recipe {path} is not YAML: {error}") from None
    if not isinstance(content, dict):
        raise RecipeError(
            f"The recipe {path} must be a mapping of keys to values. "
            f"Received: {type(content).__name__}."
        )
    bases = content.pop("base", None) or []
    inherited: dict[str, Any] = {}
    for base in bases if isinstance(bases, list) else [bases]:
        other = _read(path.parent / str(base), (*below, path.resolve()))
        inherited = merge(inherited, other)
    return merge(inherited, content)


_SECTION = "a section, with keys and values"
_SHAPES = {
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "tuple_type": "a list",
}
"""What YAML's users call what pydantic has other words for."""


def _explain(error: dict[str, Any], schema: type[Recipe]) -> str:
    location = tuple(str(key) for key in error["loc"])
    if error["type"] == "extra_forbidden":
        section, keys = _section_at(location[:-1], schema)
        known = list(section.model_fields)
        hint = did_you_mean(location[-1], known)
        where = ".".join(keys) or "a recipe"
        return (
            f"`{'.'.join([*keys, location[-1]])}` is not a key of "
            f"{where}.{hint} Known keys: {', '.join(known)}."
        )
    _, keys = _section_at(location, schema)
    name = ".".join(keys)
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    if error["type"] == "missing":
        return f"`{name}` is missing."
    if error["type"] == "union_tag_invalid":
        tag, known = error["ctx"]["tag"], error["ctx"]["expected_tags"]
        hint = did_you_mean(tag, known.replace("'", "").split(", "))
        return f"`{name}.name` must be one of {known}. Received: {tag!r}.{hint}"
    if error["type"] in _SHAPES:
        shape = _SHAPES[error["type"]]
        return f"`{name}` must be {shape}. Received: {error['input']!r}."
    stop = "" if message.endswith("?") else "."
    return f"`{name}`: {message}{stop} Received: {error['input']!r}."


def _section_at(
    location: tuple[str, ...], section: type[BaseModel]
) -> tuple[type[BaseModel], tuple[str, ...]]:
    """The section inside `section` at a location, and the keys to it.

    Pydantic puts the tag of a union of sections among the keys.
    """
    keys: list[str] = []
    choices: dict[str, type[BaseModel]] = {}
    for key in location:
        if key in choices:
            section, choices = choices[key], {}
            continue
        keys.append(key)
        if key in section.model_fields:
            annotation = section.model_fields[key].annotation
            choices = _sections_by_tag(annotation)
            if isinstance(annotation, type) and issubclass(
                annotation, BaseModel
            ):
                section = annotation
    return section, tuple(keys)


def _sections_by_tag(annotation: Any) -> dict[str, type[BaseModel]]:
    sections = [
        option
        for option in get_args(annotation)
        if isinstance(option, type) and issubclass(option, BaseModel)
    ]
    return {
        get_args(option.model_fields["name"].annotation)[0]: option
        for option in sections
    }
