"""Copies of included recipes to edit."""

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
    """Copies an included recipe together with its bases.

    The files keep their relative paths under `destination`, so each recipe
    finds its bases there.

    Args:
        name: Name of an included recipe, see `names`.
        destination: The folder to copy to; it is created if necessary.
        overwrite: Whether to replace other files with the same paths.

    Returns:
        The paths of the copied files, the recipe itself first.

    Raises:
        RecipeError: If there is no such recipe.
        FileExistsError: If another file has the same path, unless `overwrite`.
            Nothing is written in this case.
    """
    source = paths().get(name)
    if source is None:
        raise RecipeError(
            "There is no included recipe "
            f"{name!r}.{did_you_mean(name, names())} Use `keras-dml recipes` "
            "to list them."
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
            "Copied files must not replace other files. Received: "
            f"{', '.join(others)}. Use another folder, or --force "
            "(`overwrite=True`) to replace them."
        )
    for path, content in new.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    return list(contents)
