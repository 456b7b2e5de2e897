"""Reads and validates recipes.

Sections of methods and data sets are made from the signatures of all that are
registered; the other sections are in `schema`. Errors name the recipe's keys.
"""

import os
import reprlib
from collections.abc import Callable
from functools import cache, reduce
from operator import or_
from typing import Any, Literal, get_args

import yaml
from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from keras_dml import data
from keras_dml.methods.declaration import METHODS, Arguments, Uses, find
from keras_dml.model import MetricModel
from keras_dml.recipes.data_sections import Data
from keras_dml.recipes.inheritance import RecipeError, complete
from keras_dml.recipes.model_sections import Method, resolve
from keras_dml.recipes.schema import MOMENTUM, Recipe
from keras_dml.recipes.sections import Fields, fields_of
from keras_dml.utils.arguments import did_you_mean


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
            bases form a cycle, if a key is unknown (the message suggests the
            nearest known one), or if a value is invalid. The message lists all
            unknown keys and invalid values.
    """
    return validate(complete(path, settings), os.fspath(path))


def validate(content: dict[str, Any], source: str) -> Recipe:
    """The recipe described by a mapping, validated; see `load`."""
    try:
        schema = recipe_type(content)
        return schema.model_validate(content)
    except ValidationError as error:
        problems = [_explain(dict(x), schema) for x in error.errors()]
    except ValueError as error:
        problems = [f"`method.name`: {error}"]
    raise RecipeError(
        f"The recipe {source} cannot be used:\n  " + "\n  ".join(problems)
    )


def dump(recipe: Recipe) -> str:
    """The recipe as YAML that `load` can read."""
    return yaml.safe_dump(
        recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True
    )


def recipe_type(content: dict[str, Any]) -> type[Recipe]:
    """The schema of a recipe.

    It has every data set and method that is registered, and the method
    that the recipe names if that is "package.module:function".
    """
    method = content.get("method")
    name = method.get("name") if isinstance(method, dict) else None
    methods = list(METHODS)
    if isinstance(name, str) and ":" in name:
        methods.append(name)
    return _with_sections(
        tuple(_data_section(x, e.value) for x, e in data.DATASETS.items()),
        tuple(_method_section(x, find(x)[0]) for x in methods),
    )


@cache
def _with_sections(
    datasets: tuple[type[Data], ...], methods: tuple[type[Method], ...]
) -> type[Recipe]:
    fields: dict[str, Any] = {
        key: (reduce(or_, sections), Field(discriminator="name"))
        for key, sections in (("data", datasets), ("method", methods))
    }
    return create_model("Recipe", __base__=Recipe, **fields)


@cache
def _data_section(name: str, loader: Callable[..., Any]) -> type[Data]:
    left_out = {"seed", *data.DATASETS[name].details["leave_out"]}
    fields = fields_of(loader, lambda x: x not in left_out)
    fields["name"] = (Literal[name], ...)
    return create_model(name, __base__=Data, **fields)


@cache
def _method_section(name: str, factory: Callable[..., Any]) -> type[Method]:
    """The section of a method.

    Options come first, because arguments are checked against them.
    """
    traits = find(name)[1]
    fields: Fields = {"name": (Literal[name], ...)}
    for option, default in traits.options.items():
        fields[option] = (type(default), default)
    # Any method can have a momentum network, which a memory compares with.
    fields |= fields_of(MetricModel, MOMENTUM.__eq__)
    # Keys that every recipe has are not the method's.
    fields |= fields_of(factory, lambda x: x not in Recipe.model_fields)
    for x in traits.uses:
        fields |= fields_of(resolve(x), x.keys.__contains__)
    validators: dict[str, Any] = {
        f"check_{argument}": field_validator(argument)(_validator_of(check))
        for argument, check in traits.checks.items()
    }
    validators["check_use"] = model_validator(mode="after")(
        _reject_unused_keys(traits.uses, fields)
    )
    return create_model(
        name, __base__=Method, __validators__=validators, **fields
    )


def _validator_of(check: Callable[[Any, Arguments], None]) -> Any:
    def validate_argument(cls: Any, value: Any, info: ValidationInfo) -> Any:
        check(value, info.data)
        return value

    return validate_argument


def _reject_unused_keys(uses: list[Uses], fields: Fields) -> Any:
    """Rejects keys of samplers and callbacks that the method does not use."""

    def validate_keys(section: Method) -> Method:
        method = section.model_dump()
        idle = [x for x in uses if not x.is_used(method)]
        changed = [
            key for x in idle for key in x.keys if method[key] != fields[key][1]
        ]
        if changed and idle[0].only_with:
            needed, value = idle[0].only_with
            raise ValueError(
                f"{changed} are for {' and '.join(str(x.what) for x in idle)}, "
                f"which need `{needed}: {value}`. Received: "
                f"{needed}={method[needed]!r}. Use `{needed}: {value}`, or "
                "leave them out."
            )
        return section

    return validate_keys


_short = reprlib.Repr()
_short.maxlevel = 4
_short.maxdict = _short.maxlist = _short.maxtuple = 20
_short.maxstring = _short.maxother = 300
_repr = _short.repr
"""A value, shortened for an error message."""


_SECTION = "a section, with keys and values"
_SHAPES = {
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "tuple_type": "a list",
}
"""pydantic's kinds of errors, in the words of YAML."""


def _explain(error: dict[str, Any], schema: type[BaseModel]) -> str:
    section, keys = _section_at(error["loc"], schema)
    kind, name, value = error["type"], ".".join(keys), error["input"]
    if kind == "extra_forbidden":
        *above, key = keys
        fields = list(section.model_fields)
        return (
            f"`{name}` is not a key of {'.'.join(above) or 'a recipe'}."
            f"{did_you_mean(key, fields)} Known keys: {', '.join(fields)}."
        )
    if kind == "missing":
        return f"`{name}` is missing."
    if kind == "union_tag_invalid":
        tag, tags = error["ctx"]["tag"], error["ctx"]["expected_tags"]
        hint = did_you_mean(tag, tags.replace("'", "").split(", "))
        return (
            f"`{name}.name` must be one of {tags}. Received: {_repr(tag)}."
            f"{hint}"
        )
    if kind in _SHAPES:
        return f"`{name}` must be {_SHAPES[kind]}. Received: {_repr(value)}."
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    stop = "" if message.endswith("?") else "."
    return f"`{name}`: {message}{stop} Received: {_repr(value)}."


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
