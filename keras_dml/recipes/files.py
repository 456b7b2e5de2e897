"""Files of recipes, read: inheritance, settings, clear errors."""

import os
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from keras_dml.recipes.schema import Recipe, recipe_type
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
        return f"`{name}.name` must be one of {tags}. Received: {tag!r}.{hint}"
    if kind in _SHAPES:
        return f"`{name}` must be {_SHAPES[kind]}. Received: {given!r}."
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    stop = "" if message.endswith("?") else "."
    return f"`{name}`: {message}{stop} Received: {given!r}."


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
