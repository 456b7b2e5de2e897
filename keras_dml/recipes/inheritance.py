"""Files of recipes, each on top of those that it is based on."""

import os
from pathlib import Path
from typing import Any

from keras_dml.recipes.included import folder, locate, names
from keras_dml.recipes.reading import read_yaml
from keras_dml.utils.arguments import did_you_mean

_MOST_BASES = 16

_IN_ORDER = ("rate_multipliers", "decay_multipliers")
"""Mappings of which the first pattern that matches counts."""


class RecipeError(ValueError):
    """A recipe is invalid; the message says why, and how to fix it."""


def merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """`base` with `change` on top; neither is altered.

    Mappings are merged, unless they say that they are about something of
    another `name`: another method has other keys. A backbone has the same
    keys by any name. Anything else is replaced, and so is a mapping by an
    empty one. A loss that is only a name can be given arguments. Where the
    order of keys counts, those of `change` come first.
    """
    merged = dict(base)
    for key, value in change.items():
        old = merged.get(key)
        if key == "loss" and isinstance(old, str) and _are_arguments(value):
            old = {"name": old}
        if isinstance(old, dict) and isinstance(value, dict) and value:
            is_other = value.get("name", old.get("name")) != old.get("name")
            replaces = is_other and key != "backbone"
            value = value if replaces else _together(key, old, value)
        merged[key] = value
    return merged


def _together(
    key: str, base: dict[str, Any], change: dict[str, Any]
) -> dict[str, Any]:
    both = merge(base, change)
    if key not in _IN_ORDER:
        return both
    return {x: both[x] for x in (*change, *both)}


def _are_arguments(value: Any) -> bool:
    """Whether a mapping in place of a loss is no loss of its own."""
    if not isinstance(value, dict) or {"name", "class_name"} & set(value):
        return False
    # Imports Keras, which copying recipes does not need otherwise.
    from keras_dml.losses.combined import is_several

    return not is_several(value)


def with_origin(content: dict[str, Any], is_included: bool) -> dict[str, Any]:
    """`content` that says whether its `classes_per_batch` may be too large.

    Args:
        content: A file, or a setting.
        is_included: Whether it comes with the package. A number of the user's
            own is met or refused.
    """
    batches = content.get("batches")
    if not isinstance(batches, dict) or "classes_per_batch" not in batches:
        return content
    return {**content, "batches": {"fewer_classes": is_included, **batches}}


class RecipeFiles:
    """Files of one recipe, each of which is read once."""

    def __init__(self) -> None:
        self._complete: dict[str, dict[str, Any]] = {}

    def parts(self, path: Path) -> list[str]:
        """The files that a recipe is made of: its own, then its bases'."""
        self.read(path)
        # A recipe is complete after its bases.
        return list(reversed(self._complete))

    def read(self, path: Path, above: tuple[str, ...] = ()) -> dict[str, Any]:
        """A file on top of its bases; `above` are those that it is one of."""
        place = os.path.realpath(path)
        chain = (*above, place)
        if place in above:
            raise RecipeError(
                "Recipes must not form a cycle of bases. Received: "
                f"{' → '.join(chain)}."
            )
        if len(chain) > _MOST_BASES:
            raise RecipeError(
                f"A recipe must have bases nested at most {_MOST_BASES} deep. "
                f"Received: {' → '.join(chain)}. Merge some of them into one "
                "file."
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
                    f"`base` of the recipe {path} must be a path or name, or a "
                    f"list of them. Received: {base!r}."
                )
            below = locate(base, path.parent)
            inherited = merge(inherited, self.read(below, chain))
        is_included = Path(chain[-1]).is_relative_to(folder().resolve())
        return merge(inherited, with_origin(content, is_included))


def _content(path: Path) -> dict[str, Any]:
    try:
        content = read_yaml(path)
    except OSError as error:
        near = did_you_mean("/".join(path.with_suffix("").parts[-2:]), names())
        raise RecipeError(
            f"The recipe {path} cannot be read: {error.strerror}.{near} Use "
            "`keras-dml recipes` to list the included recipes."
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
