"""The folder of a run: what is in it and how it is read back."""

import json
import os
import shutil
from pathlib import Path

import keras

from keras_dml.recipes import Recipe, RecipeError, dump, load
from keras_dml.runs.outcome import Outcome

RECIPE = "recipe.yaml"
METRICS = "metrics.csv"
RESULT = "result.json"
SUMMARY = "summary.md"


def create_folder(
    path: str | os.PathLike[str], recipe: Recipe, overwrite: bool = False
) -> Path:
    """Makes the folder of a new run, with its complete recipe in it.

    Args:
        path: The folder; it may exist if it is empty.
        recipe: The recipe of the run.
        overwrite: Whether a run that is there already is removed.

    Raises:
        FileExistsError: If there is something at `path` already, unless
            it is a run and `overwrite` is set.
    """
    folder = Path(path)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        _make_way(folder, overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECIPE).write_text(dump(recipe), encoding="utf-8")
    return folder


def free_folder(name: str, inside: str = "runs") -> Path:
    """`inside/name`, or with a number where that is taken."""
    folder = Path(inside) / name
    number = 2
    while folder.exists():
        folder = Path(inside) / f"{name}-{number}"
        number += 1
    return folder


def _make_way(folder: Path, overwrite: bool) -> None:
    is_run = (folder / RECIPE).exists()
    if not (is_run and overwrite):
        way_out = "--overwrite to replace it, or " if is_run else ""
        raise FileExistsError(
            f"The output {folder} exists already. Use {way_out}another "
            "--output."
        )
    shutil.rmtree(folder)


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Writes the result as JSON and the summary as Markdown."""
    result = json.dumps(outcome.to_dict(), indent=2) + "\n"
    (folder / RESULT).write_text(result, encoding="utf-8")
    (folder / SUMMARY).write_text(outcome.summary(), encoding="utf-8")


def load_recipe(folder: str | os.PathLike[str]) -> Recipe:
    """The recipe of a run.

    Raises:
        RecipeError: If the folder holds no run.
    """
    path = Path(folder) / RECIPE
    if not path.exists():
        raise RecipeError(
            f"{os.fspath(folder)!r} is not the folder of a run: it has no "
            f"{RECIPE}. `keras-dml train` prints the folder that it writes."
        )
    return load(path)


def load_model(
    folder: str | os.PathLike[str], which: str = "best"
) -> keras.Model:
    """The best or the last model of a run.

    Where a run ended before its first epoch did there is no best model,
    and the last one is returned.

    Raises:
        FileNotFoundError: If the run saved no model.
    """
    for name in (which, "last"):
        path = Path(folder) / f"{name}.keras"
        if path.exists():
            return keras.models.load_model(path, compile=False)
    raise FileNotFoundError(
        f"The run {os.fspath(folder)!r} has no {which}.keras: it ended "
        "before a model was saved. Train it again with --overwrite."
    )
