"""Models and galleries that commands read."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import keras
import numpy as np

from keras_dml.data import Examples, concatenate, image_folder
from keras_dml.data.folder import images_in
from keras_dml.recipes import Recipe
from keras_dml.utils.models import read_model as load

SPLITS = ("train", "validation", "test")

LoadedImages: TypeAlias = Examples | list[str]


def read_model(source: str, which: str) -> tuple[keras.Model, Recipe | None]:
    """The model of a run, with its recipe, or that of a `.keras` file."""
    from keras_dml import runs

    if Path(source).is_file():
        return load(source), None
    return runs.load_model(source, which), runs.load_recipe(source)


def read_images(names: Sequence[str], recipe: Recipe | None) -> LoadedImages:
    """The images of one or several sources, as one set.

    Args:
        names: Folders with a folder for every class; folders with images
            directly in them, which then have no label; or splits of the
            recipe: "train", "validation" or "test".
        recipe: The recipe of the run, if it is one.

    Raises:
        ValueError: If a source holds no images, or only some have labels.
        FileNotFoundError: If there is no such folder.
    """
    found = [_read(name, recipe) for name in names]
    sets = [x for x in found if isinstance(x, Examples)]
    if len(sets) == len(found):
        return sets[0] if len(sets) == 1 else concatenate(_renumbered(sets))
    if sets:
        raise ValueError(
            "DATA must either all have a folder per class, or none of them. "
            f"Received: {', '.join(names)}; {len(sets)} of them have. Index "
            "them separately, or put images without a class into one folder."
        )
    return [file for x in found if isinstance(x, list) for file in x]


def _read(name: str, recipe: Recipe | None) -> LoadedImages:
    if name in SPLITS:
        return read_split(name, recipe)
    folder = Path(name)
    if folder.is_dir():
        visible = [x for x in folder.iterdir() if not x.name.startswith(".")]
        if not any(x.is_dir() for x in visible):
            files = [str(x) for x in images_in(folder)]
            if files:
                return files
    return image_folder(name)


def read_split(name: str, recipe: Recipe | None) -> Examples:
    """A split of a run's data; ValueError if there is no run."""
    from keras_dml.recipes import building

    if recipe is None:
        raise ValueError(
            f"The split {name!r} requires the data of a run. Received: a model "
            f"without a run. Use the folder of a run, or ./{name} if it is a "
            "folder of images."
        )
    images: Examples = getattr(building.splits(recipe), name)
    return images


def _renumbered(sets: list[Examples]) -> list[Examples]:
    """The sets with labels that are the same where classes' names are.

    Those with several labels each are splits of one data set, which agree.
    """
    if any(images.has_label_sets for images in sets):
        return sets
    numbers: dict[str, int] = {}
    result = []
    for images in sets:
        names = [
            images.names.get(label, str(label))
            for label in images.known_labels.tolist()
        ]
        labels = [numbers.setdefault(name, len(numbers)) for name in names]
        known = dict(zip(labels, names, strict=True))
        result.append(images.with_labels(np.array(labels, np.int64), known))
    return result
