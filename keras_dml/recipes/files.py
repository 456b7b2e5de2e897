"""Files of recipes, read: inheritance, settings, clear errors."""

import os
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from keras_dml.recipes.reading import MOST_DEPTH, parse_yaml, read_yaml
from keras_dml.recipes.schema import Recipe, recipe_type
from keras_dml.utils.arguments import did_you_mean

_MOST_BASES = 16

# Characters of a value that an error shows.
_SHOWN = 300


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
        RecipeError: If a file is missing, not YAML or larger than recipes
            are (see `reading.parse_yaml`), if bases are over 16 deep or each
            other's, if a key is unknown (the nearest known one is named), or
            if a value does not fit.
    """
    content = _Files().read(Path(path))
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
    below = keys.split(".")
    try:
        value: Any = parse_yaml(text)
        if len(below) > MOST_DEPTH:
            raise ValueError(f"it is nested more than {MOST_DEPTH} deep")
    except ValueError as error:
        raise RecipeError(
            f"The setting {setting[:200]!r} cannot be read: {error}."
        ) from None
    for key in reversed(below):
        value = {key: value}
    return dict(value)


class _Files:
    """Files of one recipe, each of which is read once."""

    def __init__(self) -> None:
        self._complete: dict[str, dict[str, Any]] = {}

    def read(self, path: Path, above: tuple[str, ...] = ()) -> dict[str, Any]:
        """A file on top of its bases; `above` are those that it is one of."""
        place = os.path.realpath(path)
        chain = (*above, place)
        if place in above:
            raise RecipeError(
                f"Recipes are each other's base: {' → '.join(chain)}."
            )
        if len(chain) > _MOST_BASES:
            raise RecipeError(
                f"A recipe must have bases at most {_MOST_BASES} deep. "
                f"Received: {' → '.join(chain)}. Put some of them into one."
            )
        if place not in self._complete:
            self._complete[place] = self._based(path, chain)
        return self._complete[place]

    def _based(self, path: Path, chain: tuple[str, ...]) -> dict[str, Any]:
        content = _content(path)
        bases = content.pop("base", None) or []
        inherited: dict[str, Any] = {}
        for base in bases if isinstance(bases, list) else [bases]:
            if not isinstance(base, str) or "\0" in base:
                raise RecipeError(
                    f"`base` of the recipe {path} must be a path, or a list of "
                    f"them. Received: {base!r}."
                )
            inherited = merge(inherited, self.read(path.parent / base, chain))
        return merge(inherited, content)


def _content(path: Path) -> dict[str, Any]:
    try:
        content = read_yaml(path)
    except OSError as error:
        raise RecipeError(
            f"The recipe {path} cannot be read: {error.strerror}. "
            "`keras-dml recipes` lists those that there are."
        ) from None
    except ValueError as error:
        raise RecipeError(
            f"The recipe {path} cannot be read: {error}."
        ) from None
    if not isinstance(content, dict):
        raise RecipeError(
            f"The recipe {path} must be a mapping of keys to values. "
            f"Received: {type(content).__name__}."
        )
    return content


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


def _shown(value: Any) -> str:
    """A value as an error shows it, which is not the whole of a file."""
    text = repr(value)
    return text if len(text) < _SHOWN else f"{text[:_SHOWN]}…"


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
