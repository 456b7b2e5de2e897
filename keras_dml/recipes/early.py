"""Early: a recipe that cannot be used is refused before Keras is imported.

Keys and their types are in `keys.json`; what a value means is checked by the
schema alone. A recipe is therefore judged here only where it differs from one
of the package, which is valid, by mistakes and by settings that no other check
of the schema looks at. Of any other, Keras must be asked.
"""

import collections.abc
import json
import os
import re
import sys
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel, Field, ValidationError, create_model

from keras_dml.recipes.included import RECIPE
from keras_dml.recipes.inheritance import RecipeError, RecipeFiles
from keras_dml.recipes.messages import (
    keys_at,
    missing_files,
    mistakes,
    raise_together,
    refusal,
    value_at,
)
from keras_dml.recipes.sections import Section
from keras_dml.utils.documents import flat

KEYS = Path(__file__).with_name("keys.json")
"""Names of sections → keys → what `pydantic.create_model` takes, as code."""

_UNCHECKED = (
    "accumulate",
    "batches.fewer_classes",
    "data",
    "evaluation.every",
    "gather",
    "jit",
    "optimizer.clipnorm",
    "optimizer.learning_rate",
    "precision",
    "refit",
    "seed",
    "train_on",
)
"""Settings that the schema accepts if they are of their type."""

_OWN_BACKBONES = (None, "bn_inception", "googlenet", "small_convnet")
"""Those that are built without other packages, files and downloads."""


def _undecided(given: Any) -> bool:
    """Only losses, which import Keras, can tell what a recipe says."""
    raise NotImplementedError


def refuse(
    path: str | os.PathLike[str], settings: Sequence[str] = ()
) -> Mapping[str, Any] | None:
    """Refuses what `load` would refuse, with the same message.

    Returns:
        What the recipe says, if it is surely valid; None if Keras must be
        asked, or is imported already.

    Raises:
        RecipeError: As of `load`.
    """
    if "keras" in sys.modules:
        return None
    files = RecipeFiles(is_several=_undecided)
    try:
        content = files.complete(path, settings)
        if ":" in str(value_at(content, "method", "name")):  # The user's own.
            return None
        schema = _schema()
        schema.model_validate(content)
    except ValidationError as error:
        wrong = [keys_at(x["loc"], schema) for x in error.errors()]
        if not _is_all(files.included(), content, wrong):
            return None
        problems = mistakes(error, schema, content)
        raise refusal(os.fspath(path), problems) from None
    except (NotImplementedError, RecursionError):
        return None
    return content if _is_all(files.included(), content, []) else None


def refuse_missing(content: Mapping[str, Any]) -> None:
    """Refuses a valid recipe whose files are missing, as `runs.train` does.

    Raises:
        FileNotFoundError, RecipeError: See `raise_together`.
    """
    if value_at(content, "backbone", "name") in _OWN_BACKBONES:
        missing = missing_files(content)
        problems: list[Exception] = [*map(FileNotFoundError, missing)]
        raise_together(content["name"], problems)


def check_run(folder: str | os.PathLike[str]) -> None:
    """Raises `RecipeError` if a folder is not that of a run."""
    if not Path(folder, RECIPE).exists():
        raise RecipeError(
            f"{os.fspath(folder)!r} is not the folder of a run: it has no "
            f"{RECIPE}. Use the folder that `keras-dml train` prints."
        )


@cache
def _schema() -> type[BaseModel]:
    """The schema of recipes, with the types of keys and no other check."""
    known: dict[str, Any] = {
        **vars(typing), "collections": collections, "Field": Field,
        "Ge": Ge, "Gt": Gt, "Le": Le, "Lt": Lt, "MinLen": MinLen,
    }  # fmt: skip
    made = Section
    for name, keys in json.loads(KEYS.read_text("utf-8")).items():
        fields = {key: eval(code, known) for key, code in keys.items()}
        made = known[name] = create_model(name, __base__=Section, **fields)
    return made


def _is_all(
    valid: Sequence[Mapping[str, Any]],
    content: Mapping[str, Any],
    wrong: Sequence[str],
) -> bool:
    """Whether types of the keys `wrong` are all that can be wrong with it."""
    if "optimizer.name" in wrong:  # What else is checked depends on it.
        return False
    new, nothing = flat(content), object()
    for old in map(flat, valid):
        changed = [
            key
            for key in {**old, **new}
            if old.get(key, nothing) != new.get(key, nothing)
            and not _is_in(key, wrong)
        ]
        # Without a name it is only a base.
        if "name" in old and all(_is_unchecked(x, content) for x in changed):
            return True
    return False


def _is_unchecked(key: str, content: Mapping[str, Any]) -> bool:
    if key == "epochs":
        schedule = value_at(content, "optimizer", "schedule") or {
            "name": "cosine"
        }
        is_cosine = isinstance(schedule, dict) and "epochs" not in schedule
        if not is_cosine or "stop_after" in content:
            return False
        warmup, epochs = schedule.get("warmup", 0), content["epochs"]
        return type(warmup) is type(epochs) is int and warmup < epochs
    if key == "name":
        return re.fullmatch(r"\w+", content["name"]) is not None
    return _is_in(key, _UNCHECKED)


def _is_in(key: str, above: Sequence[str]) -> bool:
    return any(key == x or key.startswith(f"{x}.") for x in above)
