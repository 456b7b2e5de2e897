"""Messages: what is wrong with a recipe, in words of its author."""

import reprlib
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from keras_dml.utils.arguments import did_you_mean

_short = reprlib.Repr()
_short.maxlevel = 4
_short.maxdict = _short.maxlist = _short.maxtuple = 20
_short.maxstring = _short.maxother = 300
_repr = _short.repr
"""A value as an error shows it, which is not the whole of a file."""


_SECTION = "a section, with keys and values"
_SHAPES = {
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "tuple_type": "a list",
}
"""What YAML's users call what pydantic has other words for."""


def explain(error: ValidationError, schema: type[BaseModel]) -> list[str]:
    """What is wrong with a recipe: a sentence for each of its errors."""
    return [_explain(dict(e), schema) for e in error.errors()]


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
