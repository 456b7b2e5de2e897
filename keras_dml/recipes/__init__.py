"""Recipes: training runs described in YAML, validated and built.

Validating recipes imports all methods, so those modules are imported when they
are first used. Listing and copying recipes works without them.

Open first: `schema`, what a recipe may say. `files` reads a recipe and adds the
sections that come from the signatures of methods and data sets, `inheritance`
merges it with those it is based on. `data_sections` and `model_sections` hold
the sections, each of which builds its part of a `training.Training`.

Imports: `callbacks` and below.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_dml.recipes.files import dump, load, validate
    from keras_dml.recipes.included import names
    from keras_dml.recipes.inheritance import RecipeError, copy
    from keras_dml.recipes.schema import Recipe

__all__ = [
    "Recipe",
    "RecipeError",
    "copy",
    "dump",
    "load",
    "names",
    "validate",
]

_MODULES = {
    "Recipe": "schema",
    "RecipeError": "inheritance",
    "copy": "inheritance",
    "names": "included",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}"
            )
        module = f"{__name__}.{_MODULES.get(name, 'files')}"
        return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
