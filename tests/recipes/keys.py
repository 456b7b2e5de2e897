"""The keys of recipes and their types, as in `keras_dml/recipes/keys.json`.

It is written anew from the root of the project by

    python -m tests.recipes.keys
"""

import json
import re
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from keras_dml.recipes.early import KEYS
from keras_dml.recipes.files import recipe_type


def written() -> str:
    """The text of the file."""
    found: dict[str, dict[str, str]] = {}
    _add(recipe_type({}), found)
    return json.dumps(found, indent=0) + "\n"


def _add(section: type[BaseModel], found: dict[str, dict[str, str]]) -> None:
    """Adds a section, behind those inside it."""
    for field in section.model_fields.values():
        for below in (field.annotation, *get_args(field.annotation)):
            if isinstance(below, type) and issubclass(below, BaseModel):
                _add(below, found)
    found[section.__name__] = {
        key: _code(field) for key, field in section.model_fields.items()
    }


def _code(field: FieldInfo) -> str:
    annotation = field.annotation
    kind = annotation.__name__ if type(annotation) is type else repr(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        kind = annotation.__name__
    kind = re.sub(r"(typing|keras_dml(\.\w+)+)\.(?=\w)", "", kind)
    ranges = [repr(x) for x in field.metadata if type(x).__name__ in _RANGES]
    if ranges:
        kind = f"Annotated[{', '.join([kind, *ranges])}]"
    default = "..." if field.is_required() else "None"
    if field.discriminator:
        default = f"Field({default}, discriminator='name')"
    return f"({kind}, {default})"


_RANGES = ("Ge", "Gt", "Le", "Lt", "MinLen")

if __name__ == "__main__":
    KEYS.write_text(written(), encoding="utf-8")
