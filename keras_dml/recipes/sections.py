"""Sections: what every part of a recipe is, whatever its keys."""

from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, model_validator

MAX_EPOCHS = 10**6


def _as_text(value: Any) -> Any:
    """A value in which true and false are words, as they are not numbers."""
    if isinstance(value, dict):
        return {key: _as_text(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(below) for below in value]
    return str(value).lower() if isinstance(value, bool) else value


def _are_numbers(annotation: Any) -> bool:
    """Whether values are numbers, or hold some, and nothing else."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        arguments = arguments[:1]
    elif get_origin(annotation) is dict:
        arguments = arguments[1:]
    if not arguments:
        return annotation in (int, float)
    left = [x for x in arguments if x not in (type(None), ...)]
    return all(map(_are_numbers, left))


class Section(BaseModel):
    """A section of a recipe; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, content: Any) -> Any:
        """Refuses true and false for numbers, which Python takes for 1, 0."""
        if not isinstance(content, dict):
            return content
        fields = cls.model_fields
        return {
            key: _as_text(value)
            if key in fields and _are_numbers(fields[key].annotation)
            else value
            for key, value in content.items()
        }

    if TYPE_CHECKING:
        # Type checkers do not know the keys that are made from signatures.
        def __getattr__(self, key: str) -> Any: ...


class Named(Section):
    """A section of a recipe whose other keys depend on its `name`."""

    name: str
