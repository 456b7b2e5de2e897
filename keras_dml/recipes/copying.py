"""Copies of included recipes, to change."""

import os
from pathlib import Path

from keras_dml.recipes.included import folder, names, paths
from keras_dml.recipes.inheritance import RecipeError, RecipeFiles
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.files import write_atomically


def copy(
    name: str,
    destination: str | os.PathLike[str] = "recipes",
    overwrite: bool = False,
) -> list[Path]:
    """Copies an included recipe with those that it is based on.

    They have the same places under `destination` as among the included
    recipes, so that each finds its bases there.

    Args:
        name: Of an included recipe, see `names`.
        destination: A folder, made if need be.
        overwrite: Whether other files may be in their places.

    Returns:
        The files of the copy, that of the recipe first.

    Raises:
        RecipeError: If there is no such recipe.
        FileExistsError: If another file is in the place of one, unless
            `overwrite`. Nothing is written then.
    """
    source = paths().get(name)
    if source is None:
        raise RecipeError(
            f"There is no included recipe {name!r}."
            f"{did_you_mean(name, names())} `keras-dml recipes` lists them."
        )
    root = os.path.realpath(folder())
    contents = {
        Path(destination, os.path.relpath(path, root)): Path(path).read_bytes()
        for path in RecipeFiles().parts(source)
    }
    new = {
        path: content
        for path, content in contents.items()
        if not (path.is_file() and path.read_bytes() == content)
    }
    others = [str(path) for path in new if path.exists()]
    if others and not overwrite:
        raise FileExistsError(
            "Files of the copy must not replace others. Received: "
            f"{', '.join(others)}. Copy to another folder, or replace them "
            "with --force (`overwrite=True`)."
        )
    for path, content in new.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    return list(contents)
