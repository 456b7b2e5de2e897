"""Reading and validating recipes."""

import os
from typing import Any

import yaml
from pydantic import ValidationError

from keras_dml.recipes.inheritance import TOO_DEEP, RecipeFiles
from keras_dml.recipes.messages import mistakes, refusal
from keras_dml.recipes.method_sections import recipe_type
from keras_dml.recipes.schema import Recipe


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
    return validate(RecipeFiles().complete(path, settings), os.fspath(path))


def validate(content: dict[str, Any], source: str) -> Recipe:
    """The recipe described by a mapping, validated; see `load`."""
    try:
        schema = recipe_type(content)
        return schema.model_validate(content)
    except ValidationError as error:
        problems = mistakes(error, schema, content)
    except ValueError as error:
        problems = [f"`method.name`: {error}"]
    except RecursionError:
        problems = [TOO_DEEP]
    raise refusal(source, problems) from None


def dump(recipe: Recipe) -> str:
    """The recipe as YAML that `load` can read."""
    return yaml.safe_dump(
        recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True
    )
