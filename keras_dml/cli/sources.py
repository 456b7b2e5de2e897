"""Reads the MODEL and SOURCE arguments of commands."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_dml.data import (
    Examples,
    ImageSet,
    concatenate,
    image_folder,
    tfds_images,
)
from keras_dml.data._table import FORMATS, as_classes, as_texts, read_cells
from keras_dml.data.folder import images_in
from keras_dml.embedding.shards import is_url
from keras_dml.recipes import Recipe
from keras_dml.utils.models import read_model as load

SPLITS = ("train", "validation", "test")

_TFDS = "tfds:"
_PATHS = ("path", "url", "uri")
_SHARD_COLUMNS = ("row", "name", "embedding", "box")
"""Columns that shards write themselves."""


def read_model(source: str, which: str) -> tuple[keras.Model, Recipe | None]:
    """Reads the model of a run, with its recipe, or a `.keras` file."""
    from keras_dml import runs

    if Path(source).is_file():
        return load(source), None
    return runs.load_model(source, which), runs.load_recipe(source)


def read_images(names: Sequence[str], recipe: Recipe | None) -> Examples:
    """Reads one or several sources as one set; see `read_listed`."""
    sets = [read_listed(name, recipe, verify=True)[0] for name in names]
    return sets[0] if len(sets) == 1 else concatenate(_align_labels(sets))


def read_listed(
    source: str, recipe: Recipe | None, verify: bool = False
) -> tuple[Examples, dict[str, Sequence[Any]]]:
    """Reads the images of a source, and further columns of a table.

    It is a folder of images, with a folder for every class or none; a table
    that ends in .csv, .tsv or .parquet; a list that ends in .txt;
    "tfds:NAME:SPLIT"; or a split of the recipe. With `verify`, images in
    folders of classes are opened; otherwise bad ones are found later.
    """
    if source.startswith(_TFDS):
        name, _, split = source.removeprefix(_TFDS).partition(":")
        if not (name and split):
            raise ValueError(
                f"SOURCE must be tfds:NAME:SPLIT. Received: {source!r}. Use "
                "for instance tfds:food101:train."
            )
        return tfds_images(name, split), {}
    if source in SPLITS:
        return _of_split(source, recipe), {}
    path = Path(source).expanduser()
    if path.is_dir():
        visible = [x for x in path.iterdir() if not x.name.startswith(".")]
        files = [] if any(x.is_dir() for x in visible) else images_in(path)
        images = ImageSet(files) if files else image_folder(path, verify=verify)
        return images, {}
    if path.suffix.lower() in FORMATS:
        return _of_table(path)
    if path.suffix.lower() == ".txt":
        return _of_lines(path), {}
    raise _unknown(source, path)


def _unknown(source: str, path: Path) -> Exception:
    is_there = path.exists() or is_url(source)
    kind = ValueError if is_there else FileNotFoundError
    received = "which is none" if is_there else "which does not exist"
    return kind(
        "SOURCE must be a folder of images; a table that ends in "
        f"{', '.join(FORMATS)}; a list of paths or URLs that ends in .txt; "
        f"tfds:NAME:SPLIT; or {', '.join(SPLITS)} of a run. Received: "
        f"{source!r}, {received}."
    )


def _of_lines(file: Path) -> Examples:
    if not file.is_file():
        raise _unknown(str(file), file)
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"The list {file} must be text in UTF-8. Received: {error}."
        ) from None
    addresses = [line.strip() for line in lines if line.strip()]
    if not addresses:
        raise ValueError(
            f"The list {file} must have a path or a URL in each line. "
            "Received: an empty file."
        )
    return ImageSet(_join_folder(addresses, file.parent))


def _of_table(file: Path) -> tuple[Examples, dict[str, Sequence[Any]]]:
    cells = read_cells(file)
    column = next((x for x in _PATHS if x in cells), None)
    if column is None:
        raise ValueError(
            f"The table {file} must have a column of paths or URLs, called "
            f"{', '.join(_PATHS)}. Received: {', '.join(cells) or 'none'}. "
            "Rename it."
        )
    paths = as_texts(cells.pop(column), column, file)
    labels: Any = None
    names: Any = None
    if "label" in cells:
        texts = as_texts(cells.pop("label"), "label", file)
        labels, names = as_classes(texts)
        if names is None and "name" in cells:
            names = _names(labels.tolist(), cells.pop("name"), file)
    ids = as_texts(cells.pop("id"), "id", file) if "id" in cells else paths
    for name in _SHARD_COLUMNS:
        if name in cells:
            warnings.warn(
                f"The column `{name}` of {file} is left out, because shards "
                "have their own column with that name. Rename it to keep it.",
                stacklevel=2,
            )
            del cells[name]
    full_paths = _join_folder(paths, file.parent)
    return ImageSet(full_paths, labels, names, ids), dict(cells)


def _names(
    labels: list[int], cells: Sequence[Any], file: Path
) -> dict[int, str]:
    """The names of classes that a table lists beside their numbers."""
    names: dict[int, str] = {}
    for label, cell in zip(labels, cells, strict=True):
        name = str(cell)
        if names.setdefault(label, name) != name:
            raise ValueError(
                f"The column `name` of {file} must have one name per label. "
                f"Received: {names[label]!r} and {name!r} for the label "
                f"{label}. Rename the column if it means something else."
            )
    return names


def _join_folder(addresses: Sequence[str], folder: Path) -> list[str]:
    """Joins paths to a folder, and keeps URLs."""
    return [x if is_url(x) else str(folder / x) for x in addresses]


def _of_split(name: str, recipe: Recipe | None) -> Examples:
    if recipe is None:
        raise ValueError(
            f"The split {name!r} requires the data of a run. Received: a model "
            f"without a run. Use the folder of a run, or ./{name} if it is a "
            "folder of images."
        )
    splits = recipe.data.load(recipe.seed, recipe.train_on)
    images: Examples = getattr(splits, name)
    return images


def _align_labels(sets: list[Examples]) -> list[Examples]:
    """Renumbers labels so that classes of the same name have the same number.

    Sets with several labels per example are splits of one data set, and agree.
    """
    if any(x.has_label_sets or x.labels is None for x in sets):
        return sets
    numbers: dict[str, int] = {}
    result = []
    for images in sets:
        names = [
            images.names.get(label, str(label))
            for label in images.known_labels.tolist()
        ]
        labels = [numbers.setdefault(name, len(numbers)) for name in names]
        by_label = dict(zip(labels, names, strict=True))
        result.append(images.with_labels(np.array(labels, np.int64), by_label))
    return result
