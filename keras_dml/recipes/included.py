"""The recipes included in the package, which are addressed by name.

`glyphs/diva` is the file `glyphs/diva.yaml` of their folder. That is
`library` of this package where it was installed from a wheel, and `recipes`
beside the package in a checkout.
"""

import os
from importlib import resources
from pathlib import Path

RECIPE = "recipe.yaml"
"""The recipe in the folder of a run."""


def folder() -> Path:
    """The folder of the included recipes."""
    package = Path(str(resources.files(__package__)))
    library = package / "library"
    return library if library.is_dir() else package.parents[1] / "recipes"


def names() -> list[str]:
    """The sorted names of the included recipes, as taken by `load`."""
    # A leading underscore marks what only other recipes are based on.
    return sorted(x for x in paths() if x.rpartition("/")[2][0] != "_")


def paths() -> dict[str, Path]:
    """The files of included recipes and their bases, by name."""
    root = folder()
    return {
        path.relative_to(root).with_suffix("").as_posix(): path
        for path in root.rglob("*.yaml")
    }


def locate(
    source: str | os.PathLike[str], beside: str | os.PathLike[str] = ""
) -> Path:
    """The file of a recipe, by its path in the folder `beside`, or by name.

    An existing file takes precedence over a name. There is no such file if
    `source` is neither.
    """
    path = Path(beside, source)
    if path.exists() and not path.is_dir():
        return path
    return paths().get(os.fspath(source), path)
